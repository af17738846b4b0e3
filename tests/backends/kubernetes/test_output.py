"""Logs of pods: which run of a container they are of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.backends.kubernetes.api import ClusterApi
from perdure.backends.kubernetes.attempts import log_path
from perdure.backends.kubernetes.output import read_output
from perdure.backends.kubernetes.runs import PodRun, logs_now
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.model.jobs import Attempt
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import job
from tests.backends.kubernetes.standin.cluster import StandInCluster

PODS = ("train-0", "train-1")
NOW = 1_800_000_000.0


def at(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def api(cluster: StandInCluster) -> Iterator[ClusterApi]:
    """Two pods that nothing runs, whose containers have been restarted in place."""
    for pod, is_previous in product(PODS, (False, True)):
        cluster.api.logs["team", pod, "main", is_previous] = f"{pod} {is_previous}".encode()
    for pod in PODS:
        metadata = {"name": pod, "namespace": "team"}
        spec = {"containers": [{"name": "main", "image": "trainer"}], "schedulingGates": [{"name": "test/never"}]}
        cluster.api.store.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}
        )
    opened = ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig()))
    yield opened
    opened.close()


@pytest.mark.parametrize("is_previous", [False, True])
def test_each_log_is_that_of_the_run_which_it_is_named_for(api: ClusterApi, is_previous: bool) -> None:
    first = PodRun("team", PODS[0], "u", "0", "", 0.0, container="main", is_previous=is_previous)
    second = replace(first, pod=PODS[1], slot="1", is_previous=not is_previous)
    ranks = [(run.slot, log_path(run)) for run in (first, second)]
    found = read_output(api, log_path(first), ranks, 1000)
    assert found.absent == ()
    assert [(file.rank, file.text.decode()) for file in found.files] == [
        ("", f"train-0 {is_previous}"),
        ("1", f"train-1 {not is_previous}"),
    ]


def test_no_attempt_gets_the_log_of_a_later_run_of_its_container(kube: KubernetesHarness) -> None:
    document = job("train", Program(exit_code=1, run_s=1.2), backoffLimit=6)
    document["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    kube.apply(document)
    logs, known = kube.cluster.api.logs, list[Attempt]()
    for number in range(3):
        (runs,) = kube.until(
            lambda seen: [a for a in seen.attempts if a.end_s is None and a.id not in {old.id for old in known}]
        )
        (place,) = (place for place in logs if not place[-1])
        logs[place] = f"run {number}".encode()
        known.append(runs)
        told = [[file.text.decode() for file in kube.backend.output(attempt).files] for attempt in known]
        assert told == [[], [f"run {number - 1}"], [f"run {number}"]][-len(known) :]
    assert "restarted again" in str(kube.backend.output(known[0]).absent)


def test_a_log_is_found_whose_container_was_restarted_since_the_last_look(kube: KubernetesHarness) -> None:
    document = job("train", Program(exit_code=1, run_s=1.2), backoffLimit=6)
    document["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    kube.apply(document)
    (attempt,) = kube.until(lambda seen: [a for a in seen.attempts if a.reason == "" and a.end_s is None])
    store = kube.cluster.api.store
    for _ in kube.moments():  # nobody looks
        (pod,) = store.all_of("pods")
        status = pod["status"]["containerStatuses"][0]
        if status["restartCount"] and "running" in status["state"]:
            break
    for place in list(kube.cluster.api.logs):
        kube.cluster.api.logs[place] = b"the one before" if place[-1] else b"the present one"
    (file,) = kube.backend.output(attempt).files
    assert file.text == b"the one before"


PLACE = PodRun("team", "train-0", "u", "0", "", 0.0, node="n1", start_s=NOW - 60, container="main")


@pytest.mark.parametrize(
    ("pod", "is_previous"),
    [
        ({"running": 60}, [False]),
        ({"running": 60, "uid": "another"}, []),
        ({"last": 60, "running": 9}, [True]),
        ({"last": 60}, [True]),
        ({"last": 30, "running": 9}, []),
    ],
)
def test_where_the_log_of_a_run_is_now(pod: dict[str, Any], is_previous: list[bool]) -> None:
    last = {"lastState": {"terminated": {"startedAt": at(pod["last"])}}} if "last" in pod else {}
    state = {"state": {"running": {"startedAt": at(pod["running"])}}} if "running" in pod else {}
    status = {"containerStatuses": [{"name": "main", **last, **state}]}
    told = {"metadata": {"name": "train-0", "uid": pod.get("uid", "u")}, "spec": {"containers": [{"name": "main"}]}}
    found = logs_now((PLACE,), [{**told, "status": status}])
    assert [run.is_previous for run in found] == is_previous
    assert logs_now((PLACE,), ()) == (PLACE,)


def test_logs_of_more_ranks_than_are_read_are_counted(api: ClusterApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.backends.kubernetes.output.MOST_RANKS", 1)
    path = f"/pods/team/{PODS[0]}/main"
    ranks = [("0", path), *((str(rank), f"/pods/team/{PODS[1]}/c{rank}") for rank in (1, 2, 3))]
    assert read_output(api, path, ranks, 1000).left_out == 2


def test_the_log_of_a_pod_without_an_index_has_its_name_and_no_rank(kube: KubernetesHarness) -> None:
    kube.apply(job("train", Program(node_count=2, run_s=600.0), completionMode="NonIndexed"))
    (attempt,) = kube.until(lambda seen: [a for a in seen.attempts if len(a.nodes) == 2])
    other = next(file for file in kube.backend.output(attempt).files if file.rank)
    assert other.rank == other.path.split("/")[3]
