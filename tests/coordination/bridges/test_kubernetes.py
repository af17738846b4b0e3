"""Nodes, Pods and Events of Kubernetes."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from perdure.backends.kubernetes.workloads import job_id_of
from perdure.coordination.bridges.registry import read
from perdure.coordination.record import ExceptionRecord, Transient
from tests.coordination.bridges.samples import NODE, NOW, POD


def records(*objects: Mapping[str, Collection[Collection[str]]]) -> tuple[ExceptionRecord, ...]:
    bridged = read("kubernetes", "\n".join(map(json.dumps, objects)), "c", NOW)
    assert bridged.skipped == 0
    return bridged.records


def node(*conditions: tuple[str, str], taints: tuple[str, ...] = ()) -> dict[Any, Any]:
    stated = [
        {"type": kind, "status": status, "lastTransitionTime": "2025-11-21T08:00:00Z"} for kind, status in conditions
    ]
    return {**NODE, "status": {"conditions": stated}, "spec": {"taints": [{"key": key} for key in taints]}}


def pod(**status: Any) -> dict[Any, Any]:
    return {**POD, "status": status}


def ended(**terminated: Any) -> dict[Any, Any]:
    return pod(containerStatuses=[{"name": "main", "restartCount": 2, "state": {"terminated": terminated}}])


def event(reason: str, kind: str = "Pod", **rest: Any) -> dict[Any, Any]:
    about = {"kind": kind, "name": "n7" if kind == "Node" else "train-3", "namespace": "ml"}
    return {"kind": "Event", "type": "Warning", "reason": reason, "involvedObject": about, "count": 3, **rest}


def known(record: ExceptionRecord) -> dict[Any, Any]:
    return {annotation.key: annotation.value for annotation in record.annotations}


def test_a_node_that_is_silent_and_tainted_for_it_is_one_exception() -> None:
    (record,) = records(NODE)
    assert (record.type, record.subject.nodes, record.time_s) == ("node.unreachable", ("n7",), 1763712000.0)
    assert (record.note, known(record)["condition"]) == ("Kubelet stopped posting node status.", "Ready=Unknown")


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("Ready", "False", "node.down"),
        ("MemoryPressure", "True", "node.memory"),
        ("DiskPressure", "True", "node.disk"),
        ("NetworkUnavailable", "True", "network.down"),
        ("ReadonlyFilesystem", "True", "node.disk"),
        ("KernelDeadlock", "True", "node.kernel"),
        ("FrequentKubeletRestart", "True", "node.frequent-kubelet-restart"),
        ("SysLogsXIDError", "True", "node.sys-logs-xid-error"),
        ("GPUHealthy", "False", "node.gpu-healthy"),
    ],
)
def test_conditions(kind: str, status: str, expected: str) -> None:
    assert [record.type for record in records(node((kind, status)))] == [expected]


@pytest.mark.parametrize(
    "condition",
    [("Ready", "True"), ("DiskPressure", "False"), ("DiskPressure", "Unknown"), ("GPUHealthy", "True"), ("", "True")],
)
def test_conditions_that_are_as_they_should_be(condition: tuple[str, str]) -> None:
    assert records(node(condition)) == ()


def test_taints_tell_what_conditions_do_not() -> None:
    taints = ("node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/unschedulable", "nvidia.com/gpu")
    (record,) = records(node(("Ready", "True"), taints=taints))
    assert (record.type, known(record)["taint"]) == ("node.down", taints[0])


def test_a_container_that_ended_is_a_failure_of_its_rank_and_job() -> None:
    (record,) = records(POD)
    subject = record.subject
    assert (record.type, record.transient) == ("app.oom", Transient.NO)
    assert (subject.job_id, subject.ranks, subject.nodes, subject.step) == ("ml.train", (3,), ("n7",), "train-3-x")
    assert known(record)["signal"] == "SIGKILL"


@pytest.mark.parametrize(
    ("terminated", "expected"),
    [
        ({"exitCode": 1, "reason": "Error"}, "process.exit"),
        ({"exitCode": 139, "reason": "Error"}, "process.signal"),
        ({"exitCode": 0, "signal": 15}, "process.signal"),
        ({"exitCode": 127, "reason": "ContainerCannotRun"}, "launcher.permanent"),
        ({"exitCode": 128, "reason": "StartError"}, "launcher.permanent"),
    ],
)
def test_ends_of_containers(terminated: Mapping[str, Any], expected: str) -> None:
    assert [record.type for record in records(ended(**terminated))] == [expected]


def test_a_container_that_went_well_is_none() -> None:
    assert records(ended(exitCode=0, reason="Completed")) == ()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Evicted", "job.evicted"),
        ("NodeLost", "node.unreachable"),
        ("Preempting", "job.preempted"),
        ("DeadlineExceeded", "job.timeout"),
        ("OutOfnvidia.com/gpu", "launcher.transient"),
    ],
)
def test_reasons_of_pods(reason: str, expected: str) -> None:
    assert [record.type for record in records(pod(reason=reason, phase="Failed"))] == [expected]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("PreemptionByScheduler", "job.preempted"),
        ("DeletionByTaintManager", "job.evicted"),
        ("EvictionByEvictionAPI", "job.evicted"),
        ("DeletionByPodGC", "node.down"),
        ("SomethingNew", "job.evicted"),
    ],
)
def test_a_disruption_is_why_the_container_ended(reason: str, expected: str) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "lastTransitionTime": "2025-11-21T08:00:00Z",
    }
    status = {"conditions": [condition], **ended(exitCode=143)["status"], "reason": "Evicted"}
    disrupted, container = records(pod(**status))
    assert (disrupted.type, disrupted.cause) == (expected, "")
    assert (container.type, container.cause) == ("process.signal", disrupted.id)


def test_a_disruption_that_is_called_off_is_none() -> None:
    condition = {"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}
    (container,) = records(pod(conditions=[condition], **ended(exitCode=143)["status"]))
    assert (container.type, container.cause) == ("process.signal", "")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ImagePullBackOff", "launcher.transient"),
        ("InvalidImageName", "launcher.permanent"),
        ("ContainerCreating", None),
    ],
)
def test_containers_that_cannot_start(reason: str, expected: str | None) -> None:
    waiting = pod(containerStatuses=[{"name": "main", "state": {"waiting": {"reason": reason}}}])
    assert [record.type for record in records(waiting)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (event("NodeNotReady", "Node"), "node.down"),
        (event("SystemOOM", "Node"), "node.memory"),
        (event("FailedMount"), "storage.degraded"),
        (event("Preempted", type="Normal"), "job.preempted"),
        (event("DeadlineExceeded", "Job"), "job.timeout"),
        (event("Scheduled", type="Normal"), None),
        (event("Rebooted", "Node", type="Normal"), None),
        (event("BackOff"), None),
    ],
)
def test_events(said: dict[Any, Any], expected: str | None) -> None:
    assert [record.type for record in records(said)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("label", "suffix", "event_kind"),
    [
        ("batch.kubernetes.io/job-name", "", "Job"),
        ("jobset.sigs.k8s.io/jobset-name", "jobset", "JobSet"),
        ("training.kubeflow.org/job-name", "pytorchjob", "PyTorchJob"),
    ],
)
def test_a_job_has_the_id_that_the_backend_gives_it(label: str, suffix: str, event_kind: str) -> None:
    metadata = {"name": "train-3-x", "namespace": "ml", "labels": {label: "train-3"}}
    (of_pod,) = records({**POD, "metadata": metadata})
    (of_job,) = records(event("DeadlineExceeded", event_kind))
    assert of_pod.subject.job_id == of_job.subject.job_id == job_id_of("ml", "train-3", suffix)


def test_an_event_counts_and_names_its_object() -> None:
    (record,) = records(event("NodeNotReady", "Node", firstTimestamp="2025-11-21T08:00:00Z", message="down"))
    assert (record.repeats, record.subject.nodes, record.time_s) == (2, ("n7",), 1763712000.0)
    (job,) = records(event("DeadlineExceeded", "Job"))
    assert job.subject.job_id == "ml.train-3"
    (newer,) = records(
        {"kind": "Event", "reason": "Evicted", "type": "Warning", "regarding": {"kind": "Pod", "name": "p"}}
    )
    assert (newer.subject.step, newer.repeats) == ("p", 0)


def test_lists_and_watches_hold_the_same_objects() -> None:
    plain = {record.id for record in records(NODE, POD)}
    listed = {"kind": "List", "items": [NODE, POD]}
    bare = {key: value for key, value in NODE.items() if key != "kind"}
    assert {record.id for record in records(listed)} == plain
    assert {record.id for record in records({"kind": "NodeList", "items": [bare]}, POD)} == plain
    assert {
        record.id for record in records({"type": "MODIFIED", "object": NODE}, {"type": "ADDED", "object": POD})
    } == plain


def test_another_kind_is_left_out() -> None:
    bridged = read("kubernetes", json.dumps({"kind": "List", "items": [{"kind": "Secret"}, NODE, 7]}), "c", NOW)
    assert ([record.type for record in bridged.records], bridged.skipped) == (["node.unreachable"], 2)


JOBSET, TRAINING, BATCH = "jobset.sigs.k8s.io", "training.kubeflow.org", "batch.kubernetes.io"


@pytest.mark.parametrize(
    ("labels", "environment", "ranks"),
    [
        ({f"{BATCH}/job-completion-index": "3"}, {"RANK": "7"}, (3,)),
        ({f"{JOBSET}/jobset-name": "train", f"{JOBSET}/job-global-index": "0", f"{BATCH}/job-completion-index": "3"},
         {}, (3,)),
        ({f"{JOBSET}/jobset-name": "train", f"{JOBSET}/job-global-index": "2", f"{BATCH}/job-completion-index": "3"},
         {}, ()),
        ({f"{JOBSET}/jobset-name": "train", f"{JOBSET}/job-global-index": "0"}, {}, ()),
        ({f"{JOBSET}/jobset-name": "train", f"{BATCH}/job-completion-index": "3"}, {}, ()),
        ({f"{TRAINING}/replica-type": "master", f"{TRAINING}/replica-index": "0"}, {"RANK": "0"}, (0,)),
        ({f"{TRAINING}/replica-type": "worker", f"{TRAINING}/replica-index": "0"}, {"RANK": "1"}, (1,)),
        ({f"{TRAINING}/replica-type": "worker", f"{TRAINING}/replica-index": "0"}, {}, ()),
        ({f"{TRAINING}/replica-type": "worker", f"{TRAINING}/replica-index": "0"}, {"RANK": "-1"}, ()),
    ],
)  # fmt: skip
def test_a_rank_is_told_where_a_pod_by_itself_tells_it(
    labels: dict[str, str], environment: dict[str, str], ranks: tuple[int, ...]
) -> None:
    """How many pods the Jobs before one have only the JobSet's spec says; Kubeflow's indexes are those of one type."""
    told = [{"name": "OTHER", "value": "5"}, *({"name": key, "value": value} for key, value in environment.items())]
    spec = {"nodeName": "n7", "containers": [{"name": "beside"}, {"name": "main", "env": told}]}
    for place in ("labels", "annotations"):  # the index of a pod was an annotation only before Kubernetes 1.28
        metadata = {"name": "train-3-x", "namespace": "ml", place: labels}
        (record,) = records({**POD, "metadata": metadata, "spec": spec})
        assert record.subject.ranks == ranks
