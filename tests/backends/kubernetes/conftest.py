"""The cluster and the backend that tests of Kubernetes use."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.standin.cluster import StandInCluster, open_cluster


@pytest.fixture
def open_stand_in(tmp_path: Path) -> Iterator[Callable[..., StandInCluster]]:
    """Opens clusters that end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(open_cluster(tmp_path, **options))


@pytest.fixture
def cluster(open_stand_in: Callable[..., StandInCluster]) -> StandInCluster:
    return open_stand_in()


@pytest.fixture
def kube(cluster: StandInCluster) -> Iterator[KubernetesHarness]:
    """A backend that watches the cluster."""
    pytest.importorskip("lightkube", reason="the extra k8s is not installed")
    harness = KubernetesHarness(cluster)
    yield harness
    harness.backend.close()
