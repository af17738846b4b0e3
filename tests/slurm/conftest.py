"""One real Slurm for all tests here, or the reason why there is none."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.harness import account_of_failure, require_cluster


@pytest.fixture(scope="session")
def cluster() -> SlurmCluster:
    """The shared cluster; a test leaves it as it found it (`quiet_cluster` sees to that)."""
    return require_cluster()


@pytest.fixture
def quiet_cluster(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The shared cluster without jobs, all nodes in service; and so again afterwards."""
    yield cluster
    cluster.cancel_all()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    account_of_failure(item, (yield).get_result())
