"""The service on a Kubernetes cluster: a Job that fails is judged by its pod's log, and put back by a real decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.backends.kind import Mark
from perdure.cli import doctor
from perdure.service.runtime import one_cluster
from perdure.service.settings import Settings, load
from tests.backends.kubernetes.deployed import SERVICE, grant_rights
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import NAMESPACE, job
from tests.backends.kubernetes.standin.cluster import StandInCluster

BROKEN_GPU = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
PATIENCE_S = 60.0


def settings_for(cluster: StandInCluster, home: Path, **flags: Any) -> Settings:
    given = {
        "service.cluster": "kubernetes",
        "service.port": 0,
        "service.poll_s": 0.2,
        "kubernetes.kubeconfig": str(cluster.kubeconfig(SERVICE)),
        "retry.back_off_s": 0.1,
        **flags,
    }
    settings = load({"HOME": str(home)}, flags=given).settings
    return replace(settings, service=replace(settings.service, state=home / "state"))


def served(settings: Settings, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Run the service, but for its pages, while something happens once it has looked for the first time."""

    def serve(_: object, engine: Any, *__: object) -> int:
        until = time.monotonic() + PATIENCE_S
        while not engine.state.known.nodes and time.monotonic() < until:
            time.sleep(0.05)
        meanwhile()
        return 0

    monkeypatch.setattr(one_cluster, "serve", serve)
    assert one_cluster.run(settings) == 0


def wait_for_requeue(cluster: StandInCluster) -> None:
    """Wait until Perdure has put a job back, and said so."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for each in cluster.api.store.all_of("jobs"):
            if {"perdure.dev/done-requeue", "perdure.dev/comment"} <= each["metadata"].get("annotations", {}).keys():
                return
        time.sleep(0.1)


def test_a_failed_job_is_put_back_off_its_node(
    cluster: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant_rights(cluster)

    def fails() -> None:
        KubernetesHarness(cluster).apply(job("train", Program(says=BROKEN_GPU, exit_code=1, run_s=1.0)))
        wait_for_requeue(cluster)

    served(settings_for(cluster, tmp_path, **{"service.act": True}), monkeypatch, fails)
    made = cluster.api.store.get("jobs", NAMESPACE, "train")
    assert "perdure why team.train" in made["metadata"]["annotations"]["perdure.dev/comment"]


def test_a_service_that_only_watches_changes_nothing(
    cluster: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant_rights(cluster)

    def fails() -> None:
        KubernetesHarness(cluster).apply(job("train", Program(says=BROKEN_GPU, exit_code=1)))
        time.sleep(4.0)

    served(settings_for(cluster, tmp_path), monkeypatch, fails)
    assert {method for method, path in cluster.api.requests} == {"GET"}


def test_doctor_says_what_is_missing(cluster: StandInCluster, tmp_path: Path) -> None:
    grant_rights(cluster)
    settings = settings_for(cluster, tmp_path)
    checkup = doctor.of_cluster(settings)
    assert checkup.answered
    assert [(each.mark, each.what) for each in checkup.found if each.mark is not Mark.OK] == [
        (Mark.WARN, "no Job has opted in")
    ]
    cluster.api.access.rules[SERVICE] = [
        (space, rule) for space, rule in cluster.api.access.rules[SERVICE] if "delete" not in rule["verbs"]
    ]
    found = [each for each in doctor.of_cluster(settings).found if each.mark is not Mark.OK]
    assert "may not get jobs, create jobs, patch jobs, delete jobs" in found[0].what
    assert "kubectl apply -k deploy/kubernetes" in found[0].fix
    with cluster.cut_off():
        silent = doctor.of_cluster(settings)
    assert not silent.answered
    assert "does not answer" in silent.found[0].what
