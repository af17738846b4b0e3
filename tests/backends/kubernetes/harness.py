"""The stand-in for a Kubernetes cluster as the backend checks want it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.backends.check_harness import Program
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.model.jobs import Attempt, Job
from perdure.model.observation import Observation
from tests.backends.kubernetes.deployed import SERVICE, grant_rights
from tests.backends.kubernetes.manifests import NAMESPACE, job
from tests.backends.kubernetes.standin.cluster import StandInCluster, open_cluster
from tests.backends.kubernetes.standin.kinds import admitted

T = TypeVar("T")

PATIENCE_S = 30.0


class KubernetesHarness:
    """What `perdure.backends.checks` asks of a cluster."""

    def __init__(self, cluster: StandInCluster, token: str = "admin", holder: str = "test:1", **settings: Any) -> None:
        from perdure.backends.kubernetes.api import ClusterApi
        from perdure.backends.kubernetes.backend import KubernetesBackend

        given = KubernetesSettings(**{"kubeconfig": cluster.kubeconfig(token), **settings})
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.since_s = time.time() - 2.0
        self.backend = KubernetesBackend("kube", ClusterApi.of(given), given, holder)
        self._numbers = itertools.count(1)

    def submit(self, program: Program) -> str:
        return self.apply(job(f"train-{next(self._numbers)}", program))

    def apply(self, document: dict[str, Any]) -> str:
        """Make an object as its owner would; returns its job's id."""
        kind = next(each for each in self.cluster.api.kinds if each.kind == document["kind"])
        self.cluster.api.store.create(kind.plural, admitted(kind, document))
        suffix = "" if kind.plural == "jobs" else f":{kind.kind.lower()}"
        return f"{document['metadata'].get('namespace', NAMESPACE)}.{document['metadata']['name']}{suffix}"

    def until(self, holds: Callable[[Observation], T | None]) -> T:
        """Look until something holds, and return it."""
        for _ in self.moments():
            if found := holds(self.backend.observe(self.since_s)):
                return found
        raise AssertionError(f"not so after {PATIENCE_S} s: {self.backend.observe(self.since_s)}")

    def ended(self, job_id: str, after: int = 0) -> Attempt:
        """The first attempt of a job after an incarnation, once it is over."""
        return self.until(
            lambda seen: next(
                (a for a in seen.attempts if a.id.job_id == job_id and a.id.incarnation > after and a.state.is_over),
                None,
            )
        )

    def job(self, job_id: str) -> Job:
        return next(job for job in self.backend.observe(self.since_s).jobs if job.job_id == job_id)

    def moments(self) -> Iterator[None]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            time.sleep(0.03)
            yield

    def fail_node(self, node: str) -> None:
        self.cluster.fail_node(node)

    def return_node(self, node: str) -> None:
        self.cluster.return_node(node)

    def cut_off(self) -> AbstractContextManager[None]:
        return self.cluster.cut_off()


@contextmanager
def open_harness(directory: Path) -> Iterator[KubernetesHarness]:
    pytest.importorskip("lightkube", reason="the extra k8s is not installed")
    with open_cluster(directory) as cluster:
        grant_rights(cluster)  # all checks pass with the rights of the manifests
        harness = KubernetesHarness(cluster, SERVICE)
        try:
            yield harness
        finally:
            harness.backend.close()
