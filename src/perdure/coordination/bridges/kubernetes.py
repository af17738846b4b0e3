"""Kubernetes: conditions and taints of Nodes, the state of Pods, and Events.

Reads single objects, lists (``kubectl get nodes -o json``), watches (``{"type": ..., "object": {...}}``), and many of
them one after the other. A pod's failure is one of its job: the job is found by the labels of Job, JobSet and Kubeflow.

Source: the well-known conditions, taints, labels and reasons of the Kubernetes documentation; conditions of
node-problem-detector, and any other that a site's own monitors set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from perdure.coordination.bridges import causes, fields
from perdure.coordination.bridges.bridged import BridgeContext, Meaning, ReportedFailure, led_by_first, record_of
from perdure.coordination.bridges.documents import MAX_DOCUMENTS, documents
from perdure.coordination.record import ExceptionRecord, Transient

_MAX_RANK = 2**31

_DOWN, _UNREACHABLE = Meaning("node.down", 0, Transient.YES), Meaning("node.unreachable", 1, Transient.YES)
_EVICTED, _PREEMPTED = Meaning("job.evicted", 0, Transient.YES), Meaning("job.preempted", 0, Transient.YES)
_TIMEOUT, _OOM = Meaning("job.timeout", 0, Transient.NO), Meaning("app.oom", 0, Transient.NO)
_AGAIN, _NEVER = Meaning("launcher.transient", 0, Transient.YES), Meaning("launcher.permanent", 0, Transient.NO)
_DISK, _MEMORY = Meaning("node.disk", 4), Meaning("node.memory", 4)
_STORAGE = Meaning("storage.degraded", 2, Transient.YES)
_OTHER_CONDITION = 3  # severity

_CONDITIONS = {  # a condition that is what it should not be
    ("Ready", "False"): _DOWN,
    ("Ready", "Unknown"): _UNREACHABLE,
    ("MemoryPressure", "True"): _MEMORY,
    ("DiskPressure", "True"): _DISK,
    ("PIDPressure", "True"): Meaning("node.pids", 4),
    ("NetworkUnavailable", "True"): Meaning("network.down", 1, Transient.YES),
    ("KernelDeadlock", "True"): Meaning("node.kernel", 1),
    ("ReadonlyFilesystem", "True"): Meaning("node.disk", 1),
    ("CorruptDockerOverlay2", "True"): Meaning("node.disk", 2),
    ("XfsShutdown", "True"): Meaning("node.disk", 1),
}
_GOOD_WHEN_TRUE = ("Ready", "Healthy", "Available", "Succeeded")  # ends of names

_TAINTS = {
    "node.kubernetes.io/not-ready": _DOWN,
    "node.kubernetes.io/unreachable": _UNREACHABLE,
    "node.kubernetes.io/out-of-service": _DOWN,
    "node.cloudprovider.kubernetes.io/shutdown": _DOWN,
    "node.kubernetes.io/memory-pressure": _MEMORY,
    "node.kubernetes.io/disk-pressure": _DISK,
    "node.kubernetes.io/pid-pressure": Meaning("node.pids", 4),
    "node.kubernetes.io/network-unavailable": Meaning("network.down", 1, Transient.YES),
}

_POD_REASONS = {
    "Evicted": _EVICTED,
    "NodeLost": Meaning("node.unreachable", 0, Transient.YES),
    "Preempting": _PREEMPTED,
    "Preempted": _PREEMPTED,
    "DeadlineExceeded": _TIMEOUT,
    "NodeShutdown": _EVICTED,
    "Terminated": _EVICTED,
    "Shutdown": _EVICTED,
    "UnexpectedAdmissionError": _AGAIN,
    "NodeAffinity": _AGAIN,
    # why a pod is about to be disrupted
    "PreemptionByScheduler": _PREEMPTED,
    "DeletionByTaintManager": _EVICTED,
    "EvictionByEvictionAPI": _EVICTED,
    "DeletionByPodGC": _DOWN,
    "TerminationByKubelet": _EVICTED,
}
_WAITING = {
    "ImagePullBackOff": _AGAIN,
    "ErrImagePull": _AGAIN,
    "CreateContainerError": _AGAIN,
    "RunContainerError": _AGAIN,
    "InvalidImageName": _NEVER,
    "ErrImageNeverPull": _NEVER,
    "CreateContainerConfigError": _NEVER,
}
_ENDED = {
    "OOMKilled": _OOM,
    "DeadlineExceeded": _TIMEOUT,
    "ContainerCannotRun": _NEVER,
    "StartError": _NEVER,
    "Evicted": _EVICTED,
}
_EVENTS = {
    "NodeNotReady": _DOWN,
    "Rebooted": _DOWN,
    "NodeShutdown": _DOWN,
    "SystemOOM": _MEMORY,
    "OOMKilling": _MEMORY,
    "FreeDiskSpaceFailed": _DISK,
    "ImageGCFailed": _DISK,
    "EvictionThresholdMet": _DISK,
    "NetworkNotReady": Meaning("network.degraded", 2, Transient.YES),
    "KernelOops": Meaning("node.kernel", 2),
    "TaskHung": Meaning("node.kernel", 2),
    "FilesystemIsReadOnly": Meaning("node.disk", 1),
    "Evicted": _EVICTED,
    "TaintManagerEviction": _EVICTED,
    "Preempted": _PREEMPTED,
    "DeadlineExceeded": _TIMEOUT,
    "FailedMount": _STORAGE,
    "FailedAttachVolume": _STORAGE,
    "FailedCreatePodSandBox": replace(_AGAIN, severity=2),
    "BackoffLimitExceeded": Meaning("process.exit"),
}
_SUFFIXES = {"Job": "", "JobSet": ":jobset", "PyTorchJob": ":pytorchjob"}  # of ids, as the backend makes them
_JOBSET_NAME, _JOBSET_INDEX = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/job-global-index"
_REPLICA_TYPE, _INDEX = "training.kubeflow.org/replica-type", "batch.kubernetes.io/job-completion-index"
_JOB_LABELS = {  # and the kind that sets it; Kubeflow's other kinds have no id of their own
    _JOBSET_NAME: "JobSet",
    "training.kubeflow.org/job-name": "PyTorchJob",
    "batch.kubernetes.io/job-name": "Job",
    "job-name": "Job",
}


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read objects. What is neither a Node nor a Pod nor an Event cannot be read."""
    for document in documents(text, context.format):
        for said in _objects(fields.mapping(document)):
            made = _READERS.get(fields.line(said.get("kind")))
            if made is None:
                yield None
            else:
                yield from led_by_first([record_of(told, context) for told in made(said, context.now)])


def _objects(said: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects of a list, each of its own kind, the one of a watch, or the one itself."""
    if "items" in said:
        kind = fields.line(said.get("kind")).removesuffix("List")
        for item in fields.items(said["items"], MAX_DOCUMENTS):
            yield {"kind": kind, **fields.mapping(item)}
    elif isinstance(said.get("object"), Mapping):
        yield said["object"]
    else:
        yield said


# -- nodes


def _of_node(said: Mapping[str, Any], now: float) -> list[ReportedFailure]:
    """A taint that repeats a condition is not a second exception."""
    metadata = fields.mapping(said.get("metadata"))
    node = fields.node(metadata.get("name"))
    if not node:
        return []
    found = [
        told
        for condition in fields.objects(fields.mapping(said.get("status")).get("conditions"))
        if (told := _of_condition(condition, node, now)) is not None
    ]
    known = {told.meaning.type for told in found}
    taints = fields.objects(fields.mapping(said.get("spec")).get("taints"))
    told_by_taints = [told for taint in taints if (told := _of_taint(taint, node, now)) is not None]
    return found + [told for told in told_by_taints if told.meaning.type not in known]


def _of_condition(condition: Mapping[str, Any], node: str, now: float) -> ReportedFailure | None:
    kind, status = fields.line(condition.get("type")), fields.line(condition.get("status"))
    meaning = _CONDITIONS.get((kind, status)) or _custom(kind, status)
    if meaning is None:
        return None
    since, reason = fields.line(condition.get("lastTransitionTime")), fields.line(condition.get("reason"))
    return ReportedFailure(
        meaning=meaning,
        facts=("condition", node, kind, status, since),
        time_s=fields.instant(since, now),
        note=fields.line(condition.get("message"), 1024) or reason,
        nodes=(node,),
        host=node,
        component="kubernetes node",
        known={"condition": f"{kind}={status}", "reason": reason},
    )


def _custom(kind: str, status: str) -> Meaning | None:
    """A site's own condition: bad when true, unless its name says that true is good."""
    name = fields.dotted_part(kind)
    if not name or any(kind == known for known, _ in _CONDITIONS):
        return None
    bad = status == "False" if kind.endswith(_GOOD_WHEN_TRUE) else status == "True"
    return Meaning(f"node.{name}", _OTHER_CONDITION) if bad else None


def _of_taint(taint: Mapping[str, Any], node: str, now: float) -> ReportedFailure | None:
    key, since = fields.line(taint.get("key")), fields.line(taint.get("timeAdded"))
    meaning = _TAINTS.get(key)
    if meaning is None:
        return None
    return ReportedFailure(
        meaning=meaning,
        facts=("taint", node, key, since),
        time_s=fields.instant(since, now),
        note=f"taint {key}",
        nodes=(node,),
        host=node,
        component="kubernetes node",
        known={"taint": key},
    )


# -- pods


@dataclass(frozen=True, slots=True)
class _Pod:
    """Which pod it is, and whose."""

    uid: str
    name: str
    job_id: str
    node: str
    ranks: tuple[int, ...]

    def told(
        self, meaning: Meaning, facts: tuple[object, ...], time_s: float | None, note: str, **known: object
    ) -> ReportedFailure:
        return ReportedFailure(
            meaning=meaning,
            facts=(self.uid or self.name, *facts),
            time_s=time_s,
            note=note,
            job_id=self.job_id,
            nodes=(self.node,),
            ranks=self.ranks,
            step=self.name,
            host=self.node,
            component="kubernetes pod",
            known=known,
        )


def _pod(said: Mapping[str, Any]) -> _Pod | None:
    metadata, spec = fields.mapping(said.get("metadata")), fields.mapping(said.get("spec"))
    name, space = fields.name(metadata.get("name")), fields.name(metadata.get("namespace")) or "default"
    if not name:
        return None
    labels = {**fields.mapping(metadata.get("annotations")), **fields.mapping(metadata.get("labels"))}
    owner = next((fields.name(o.get("name")) for o in fields.objects(metadata.get("ownerReferences"))), "")
    labelled = ((fields.name(labels.get(label)), kind) for label, kind in _JOB_LABELS.items())
    job, kind = next((found for found in labelled if found[0]), (owner or name, "Job"))
    rank = fields.whole(_told_rank(labels, spec), most=_MAX_RANK)
    ranks = () if rank is None else (rank,)
    return _Pod(
        fields.name(metadata.get("uid")), name, _job_id(space, job, kind), fields.node(spec.get("nodeName")), ranks
    )


def _told_rank(labels: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    """The rank of a pod among all of its job, where the pod by itself tells it; else None.

    A JobSet numbers its Jobs, and a Job its pods: only of the first Job it is known how many pods come before.
    Kubeflow numbers the replicas of each type; what their program's rank is its operator writes into RANK.
    """
    if _REPLICA_TYPE in labels:
        variables = [v for c in fields.objects(spec.get("containers")) for v in fields.objects(c.get("env"))]
        return next((v.get("value") for v in variables if v.get("name") == "RANK"), None)
    is_in_set = _JOBSET_NAME in labels or _JOBSET_INDEX in labels
    return labels.get(_INDEX) if not is_in_set or labels.get(_JOBSET_INDEX) == "0" else None


def _job_id(space: str, name: str, kind: str) -> str:
    """The id that the Kubernetes backend gives the job, so that both speak of one."""
    return f"{space}.{name}{_SUFFIXES[kind]}"[:256]


def _of_pod(said: Mapping[str, Any], now: float) -> list[ReportedFailure]:
    """Why the pod as a whole ended comes first: how its containers ended follows from that."""
    pod, status = _pod(said), fields.mapping(said.get("status"))
    if pod is None:
        return []
    containers = (
        container
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in fields.objects(status.get(kind))
    )
    return [*_of_whole_pod(pod, status, now), *(told for c in containers for told in _of_container(pod, c, now))]


def _of_whole_pod(pod: _Pod, status: Mapping[str, Any], now: float) -> Iterator[ReportedFailure]:
    """One exception at most: a disruption that was announced, else the reason of the end."""
    for condition in fields.objects(status.get("conditions")):
        reason, since = fields.line(condition.get("reason")), fields.line(condition.get("lastTransitionTime"))
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            note = fields.line(condition.get("message"), 1024) or reason
            meaning = _POD_REASONS.get(reason, _EVICTED)
            yield pod.told(meaning, ("disruption", reason, since), fields.instant(since, now), note, reason=reason)
            return
    reason, since = fields.line(status.get("reason")), fields.line(status.get("startTime"))
    meaning_of_end = _AGAIN if reason.startswith("OutOf") else _POD_REASONS.get(reason)
    if meaning_of_end is not None:
        note = fields.line(status.get("message"), 1024) or reason
        yield pod.told(meaning_of_end, ("end", reason, since), None, note, reason=reason)


def _of_container(pod: _Pod, said: Mapping[str, Any], now: float) -> Iterator[ReportedFailure]:
    """How the container ended last, and why it cannot start."""
    name, restarts = fields.line(said.get("name")), fields.whole(said.get("restartCount")) or 0
    state = fields.mapping(said.get("state"))
    for ended in (state.get("terminated"), fields.mapping(said.get("lastState")).get("terminated")):
        told = _of_end(pod, name, restarts, fields.mapping(ended), now)
        if told is not None:
            yield told
            break
    waiting = fields.mapping(state.get("waiting"))
    reason = fields.line(waiting.get("reason"))
    if reason in _WAITING:
        note = fields.line(waiting.get("message"), 1024) or reason
        yield pod.told(_WAITING[reason], ("waiting", name, reason), None, note, container=name, reason=reason)


def _of_end(pod: _Pod, name: str, restarts: int, ended: Mapping[str, Any], now: float) -> ReportedFailure | None:
    code = fields.whole(ended.get("exitCode"), -64, 255)
    by_signal = fields.whole(ended.get("signal"), 1, 64)
    reason, finished = fields.line(ended.get("reason")), fields.line(ended.get("finishedAt"))
    meaning = _ENDED.get(reason) or causes.of_exit(-by_signal if by_signal else code or 0)
    if meaning is None:
        return None
    signal = by_signal or causes.signal_of(code or 0)
    known = {
        "container": name,
        "reason": reason,
        "exit_code": code,
        "signal": causes.signal_name(signal) if signal else "",
        "restarts": restarts,
    }
    note = fields.line(ended.get("message"), 1024) or f"container {name}: {reason or 'ended'} ({code})"
    return pod.told(meaning, (name, finished, code, reason), fields.instant(finished, now), note, **known)


# -- events


def _of_event(said: Mapping[str, Any], now: float) -> list[ReportedFailure]:
    """Events of ``v1`` and ``events.k8s.io/v1``. Unknown reasons, and what is normal, are not failures."""
    about = fields.mapping(said.get("involvedObject") or said.get("regarding"))
    reason = fields.line(said.get("reason"))
    meaning = _EVENTS.get(reason)
    if meaning is None or (said.get("type") == "Normal" and reason not in ("NodeNotReady", "Preempted")):
        return []
    series = fields.mapping(said.get("series"))
    stamps = (said.get("firstTimestamp"), said.get("eventTime"), said.get("deprecatedFirstTimestamp"))
    stamp = next((text for value in stamps if (text := fields.line(value))), "")
    counts = (said.get("count"), series.get("count"), said.get("deprecatedCount"))
    count = next((number for value in counts if (number := fields.whole(value, 1))), 1)
    uid = fields.line(fields.mapping(said.get("metadata")).get("uid"))
    kind, name = fields.line(about.get("kind")), fields.name(about.get("name"))
    source = fields.mapping(said.get("source"))
    host = fields.node(about.get("name")) if kind == "Node" else fields.node(source.get("host"))
    space = fields.name(about.get("namespace")) or "default"
    return [
        ReportedFailure(
            meaning=meaning,
            facts=("event", uid, kind, space, name, reason, stamp),
            time_s=fields.instant(stamp, now),
            note=fields.line(said.get("message") or said.get("note"), 1024) or reason,
            job_id=_job_id(space, name, kind) if kind in _SUFFIXES and name else "",
            nodes=(host,),
            step=name if kind == "Pod" else "",
            host=host,
            component=fields.line(source.get("component") or said.get("reportingController")),
            known={"reason": reason, "object": f"{kind}/{name}"},
            repeats=count - 1,
        )
    ]


_READERS = {"Node": _of_node, "Pod": _of_pod, "Event": _of_event}
