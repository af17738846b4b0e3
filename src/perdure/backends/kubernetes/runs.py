"""How one pod ran, and how that ended, in the model's words. Pure.

A pod runs once, unless the kubelet restarts its containers in place (``restartPolicy: OnFailure``): then the run before
the present one is known, too.

Source: the pod lifecycle, its conditions and reasons in the documentation of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perdure.backends.kubernetes.held import HeldObject
from perdure.backends.kubernetes.objects import (
    Document,
    annotation,
    at,
    condition,
    fields,
    instant,
    items,
    label,
    name_of,
    text,
    uid_of,
    whole,
)
from perdure.model.jobs import AttemptState

INDEX = "batch.kubernetes.io/job-completion-index"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"  # of a child Job, not of a pod
JOB_NAME = "job-name"
REPLICA_TYPE, REPLICA_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
TRACKING = "batch.kubernetes.io/job-tracking"  # the finalizer of a pod that its Job's controller has still to count
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

NEVER_STARTS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Why a container waits that will hardly ever start."""


class RunEnd(NamedTuple):
    """How a run ended."""

    state: AttemptState
    reason: str
    code: int = 0
    signal: int = 0


_DISRUPTED = {  # by the reason of the condition DisruptionTarget
    "PreemptionByScheduler": AttemptState.PREEMPTED,
    "EvictionByEvictionAPI": AttemptState.PREEMPTED,
    "DeletionByTaintManager": AttemptState.PREEMPTED,  # of a node that is well
    "DeletionByPodGC": AttemptState.NODE_FAIL,  # its node is gone
    "TerminationByKubelet": AttemptState.PREEMPTED,
}
_POD_REASONS = {  # by status.reason
    "NodeLost": AttemptState.NODE_FAIL,
    "NodeShutdown": AttemptState.NODE_FAIL,
    "Shutdown": AttemptState.NODE_FAIL,
    "Terminated": AttemptState.NODE_FAIL,
    "DeadlineExceeded": AttemptState.TIMEOUT,
    "Preempting": AttemptState.PREEMPTED,
    "Preempted": AttemptState.PREEMPTED,
    "UnexpectedAdmissionError": AttemptState.LAUNCH_FAILED,
    "NodeAffinity": AttemptState.LAUNCH_FAILED,
    "OutOfcpu": AttemptState.LAUNCH_FAILED,
    "OutOfmemory": AttemptState.LAUNCH_FAILED,
    "OutOfpods": AttemptState.LAUNCH_FAILED,
}
_CONTAINER_REASONS = {  # by the reason of a container's end
    "OOMKilled": AttemptState.OUT_OF_MEMORY,
    "ContainerCannotRun": AttemptState.LAUNCH_FAILED,
    "StartError": AttemptState.LAUNCH_FAILED,
    "ContainerStatusUnknown": AttemptState.LOST,
}


class PodRun(Struct, frozen=True):
    """One run of one pod."""

    namespace: str
    pod: str
    uid: str
    slot: str  # its place in the gang, as `slot_of` tells it
    round: str  # the controller's own count of restarts, where it writes one
    born_s: float  # what tells it from all other runs of its slot
    node: str = ""  # "" until it is bound
    start_s: float | None = None  # of its first container
    container: str = ""
    is_previous: bool = False  # its log is that of the container before the present one
    waits_for: str = ""  # why it does not start
    end: RunEnd | None = None
    end_s: float | None = None
    gpus: int = 0
    is_pod_over: bool = False  # with it the whole pod ended
    is_tracked: bool = False  # its Job's controller has not counted it yet

    is_going: bool = False  # it was told to end

    @property
    def is_at_work(self) -> bool:
        """Whether its container runs, and nobody has told it to end."""
        return self.end is None and self.start_s is not None and not self.waits_for and not self.is_going

    @property
    def failed(self) -> bool:
        return self.end is not None and self.end.state is not AttemptState.COMPLETED


def runs_of(held: HeldObject, now: float, patience_s: float, node_failed: Callable[[str], bool]) -> Iterator[PodRun]:
    """The runs of a pod, oldest first. `node_failed` tells of a node whether it is down or was given up."""
    pod = held.document
    container = _main_container(pod)
    status = _status_of(pod, container)
    born_s = instant(pod, "metadata", "creationTimestamp") or 0.0
    base = PodRun(
        namespace=text(pod, "metadata", "namespace"),
        pod=name_of(pod),
        uid=uid_of(pod),
        slot=slot_of(pod),
        round=label(pod, RESTART_ATTEMPT) or annotation(pod, RESTART_ATTEMPT),
        born_s=born_s,
        node=text(pod, "spec", "nodeName"),
        container=container,
        gpus=gpus_of(pod),
    )
    before = fields(status, "lastState", "terminated")
    restarts = whole(status, "restartCount") or 0
    if restarts and before:
        ended = _container_end(before)
        began_s = instant(before, "startedAt")
        yield replace(
            base,
            born_s=born_s if restarts == 1 or began_s is None else began_s,
            start_s=began_s,
            is_previous=True,
            end=ended,
            end_s=instant(before, "finishedAt") or now,
        )
    waiting = text(status, "state", "waiting", "reason")
    if restarts and waiting == "CrashLoopBackOff":
        return  # the next run has not begun
    start_s = _present_start_s(status)
    end = _end(held, status, now, patience_s, node_failed)
    yield replace(
        base,
        born_s=start_s if restarts and start_s is not None else born_s,
        start_s=start_s,
        waits_for=waiting or _unscheduled(pod),
        end=end,
        end_s=_end_s(held, now) if end is not None else None,
        is_going=_is_going(pod),
        is_pod_over=end is not None and (held.gone_s is not None or text(pod, "status", "phase") == "Failed"),
        is_tracked=held.gone_s is None and TRACKING in (at(pod, "metadata", "finalizers") or ()),
    )


def logs_now(runs: Iterable[PodRun], pods: Iterable[Document]) -> tuple[PodRun, ...]:
    """The runs whose logs the cluster still has, each with where its log is now.

    A run whose pod is not among `pods` stays as it is: reading its log then says that the pod is gone.
    """
    by_name = {name_of(pod): pod for pod in pods}
    found = []
    for run in runs:
        pod = by_name.get(run.pod)
        kept = {run.start_s: run.is_previous} if pod is None else _kept_logs(pod) if uid_of(pod) == run.uid else {}
        if run.start_s is None or run.start_s in kept:
            found.append(replace(run, is_previous=kept.get(run.start_s, run.is_previous)))
    return tuple(found)


def _kept_logs(pod: Document) -> dict[float | None, bool]:
    """The runs of a pod's container whose logs its node has, by their start: whether each is the one before."""
    status = _status_of(pod, _main_container(pod))
    return {instant(status, "lastState", "terminated", "startedAt"): True, _present_start_s(status): False}


def _present_start_s(status: Document) -> float | None:
    return instant(status, "state", "running", "startedAt") or instant(status, "state", "terminated", "startedAt")


def _status_of(pod: Document, container: str) -> Document:
    return next((each for each in items(pod, "status", "containerStatuses") if each.get("name") == container), {})


def _main_container(pod: Document) -> str:
    named = annotation(pod, DEFAULT_CONTAINER)
    names = [text(each, "name") for each in items(pod, "spec", "containers")]
    return named if named in names else next(iter(names), "")


def slot_of(pod: Document) -> str:
    """Which place of its job a pod fills: its index, behind what the index counts within; else the pod's own uid.

    An index counts the pods of one Job, of which a JobSet has many, or the replicas of one type.
    """
    index = label(pod, INDEX) or annotation(pod, INDEX)
    if index and label(pod, JOBSET_NAME):  # old versions do not number their Jobs
        return f"{label(pod, JOBSET_INDEX) or label(pod, JOB_NAME)}-{index}"
    if index:
        return index
    replica = label(pod, REPLICA_TYPE), label(pod, REPLICA_INDEX)
    return "-".join(replica) if any(replica) else uid_of(pod)


def _unscheduled(pod: Document) -> str:
    found = next((c for c in items(pod, "status", "conditions") if c.get("type") == "PodScheduled"), {})
    if found.get("status") != "False":
        return ""
    return f"{text(found, 'reason')}: {text(found, 'message')}".strip(": ")


def _end(
    held: HeldObject, status: Document, now: float, patience_s: float, node_failed: Callable[[str], bool]
) -> RunEnd | None:
    """How the present run ended; None while it goes on, or may still begin."""
    pod = held.document
    phase, node = text(pod, "status", "phase"), text(pod, "spec", "nodeName")
    if phase == "Succeeded":
        return RunEnd(AttemptState.COMPLETED, "")
    told = _told_end(pod, node, node_failed)
    if phase == "Failed" and _ended_by_deletion(pod):
        return told or _deleted(node, node_failed)
    if phase == "Failed":
        return told or _container_end(_first_failed(pod)) or RunEnd(AttemptState.FAILED, "the pod failed")
    if _ended_by_deletion(pod) and held.gone_s is not None:
        return told or _deleted(node, node_failed)
    if held.gone_s is not None or _is_past_deletion(pod, now) or (_is_going(pod) and node_failed(node)):
        return told or _container_end(_first_failed(pod)) or _deleted(node, node_failed)
    waiting = text(status, "state", "waiting", "reason")
    since = instant(pod, "status", "startTime")
    if waiting in NEVER_STARTS and since is not None and now - since >= patience_s:
        message = text(status, "state", "waiting", "message")
        return RunEnd(AttemptState.LAUNCH_FAILED, f"{waiting}: {message}".rstrip(": "))
    return None


def _deleted(node: str, node_failed: Callable[[str], bool]) -> RunEnd:
    if node and node_failed(node):
        return RunEnd(AttemptState.NODE_FAIL, f"node {node} is down")
    return RunEnd(AttemptState.REQUEUED, "its pod was deleted")


def _ended_by_deletion(pod: Document) -> bool:
    """Whether its containers ended after somebody had told it to go."""
    until = instant(pod, "metadata", "deletionTimestamp")
    if until is None:
        return False
    asked_s = until - (whole(pod, "metadata", "deletionGracePeriodSeconds") or 0)
    failed_s = instant(_first_failed(pod), "finishedAt")
    return failed_s is None or failed_s >= asked_s


def _is_going(pod: Document) -> bool:
    return bool(text(pod, "metadata", "deletionTimestamp"))


def _is_past_deletion(pod: Document, now: float) -> bool:
    """The time that it had to end by itself is over: deletionTimestamp has the grace period in it."""
    until = instant(pod, "metadata", "deletionTimestamp")
    return until is not None and now > until


def _told_end(pod: Document, node: str, node_failed: Callable[[str], bool]) -> RunEnd | None:
    """What ended the pod as a whole, where something other than its program did."""
    reason, message = text(pod, "status", "reason"), text(pod, "status", "message")
    if reason == "Evicted":
        return RunEnd(_evicted(message), f"Evicted: {message}".rstrip(": "))
    told = condition(pod, "DisruptionTarget")
    if told is not None:
        cause = text(told, "reason")
        state = AttemptState.NODE_FAIL if node and node_failed(node) else _DISRUPTED.get(cause, AttemptState.PREEMPTED)
        if state is AttemptState.PREEMPTED and reason in ("Terminated", "NodeShutdown", "Shutdown"):
            state = AttemptState.NODE_FAIL
        return RunEnd(state, f"{cause}: {text(told, 'message')}".rstrip(": "))
    state_of_reason = _POD_REASONS.get(reason)
    if state_of_reason is not None:
        return RunEnd(state_of_reason, f"{reason}: {message}".rstrip(": "))
    return None


def _evicted(message: str) -> AttemptState:
    """The kubelet evicts what is over its own limit, and others where the node itself runs short."""
    if "memory" in message:
        return AttemptState.OUT_OF_MEMORY
    return AttemptState.PREEMPTED if message.startswith("The node was low on resource") else AttemptState.FAILED


def _first_failed(pod: Document) -> Document:
    """The container that ended first with a code that is not zero; init containers come before others."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        ends = [fields(each, "state", "terminated") for each in items(pod, "status", kind)]
        bad = [end for end in ends if end and whole(end, "exitCode") != 0]
        if bad:
            return min(bad, key=lambda end: instant(end, "finishedAt") or 0.0)
    return {}


def _container_end(terminated: Document) -> RunEnd | None:
    if not terminated:
        return None
    code, reason = whole(terminated, "exitCode") or 0, text(terminated, "reason")
    if code == 0 and reason in ("", "Completed"):
        return RunEnd(AttemptState.COMPLETED, "")
    signal = whole(terminated, "signal") or 0
    state = _CONTAINER_REASONS.get(reason, AttemptState.FAILED)
    why = reason if reason != "Error" else ""
    message = text(terminated, "message")
    return RunEnd(state, f"{why}: {message}".strip(": "), code, signal)


def _end_s(held: HeldObject, now: float) -> float:
    """When it ended: the last end of a container, else when it was to be gone, else when it was seen to be."""
    pod = held.document
    ends = [
        found
        for each in items(pod, "status", "containerStatuses")
        if (found := instant(each, "state", "terminated", "finishedAt")) is not None
    ]
    told, until = condition(pod, "DisruptionTarget"), instant(pod, "metadata", "deletionTimestamp")
    seen_s = now if held.gone_s is None else held.gone_s
    went_s = seen_s if until is None else min(until, seen_s)  # it may go before its grace period is over
    candidates = [max(ends, default=None), instant(told, "lastTransitionTime") if told else None]
    return next((each for each in candidates if each is not None), went_s)


def gpus_of(pod: Document) -> int:
    """GPUs that a pod has asked for, of any maker; init containers run before the others."""
    main = sum(gpus_in(fields(each, "resources", "limits")) for each in items(pod, "spec", "containers"))
    first = max(
        (gpus_in(fields(each, "resources", "limits")) for each in items(pod, "spec", "initContainers")), default=0
    )
    return max(main, first)


def gpus_in(resources: Document) -> int:
    """GPUs in a list of resources, as ``status.allocatable`` of a node."""
    return sum(_count(amount) for name, amount in resources.items() if is_gpu(name))


def is_gpu(resource: str) -> bool:
    """Whether a resource's name is one of GPUs, or of parts of one.

    >>> [is_gpu(name) for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "cpu")]
    [True, True, True, False]
    """
    maker, _, name = resource.partition("/")
    return (maker, name) in _GPUS or (maker == "nvidia.com" and name.startswith("mig-"))


MOST_GPUS, MOST_DIGITS = 1_000_000, 19  # of one container: what it asks for may be any number
_GPUS = frozenset(
    {
        ("nvidia.com", "gpu"),
        ("nvidia.com", "gpu.shared"),
        ("amd.com", "gpu"),
        ("gpu.intel.com", "i915"),
        ("gpu.intel.com", "xe"),
        ("habana.ai", "gaudi"),
        ("google.com", "tpu"),
        ("aws.amazon.com", "neuron"),
        ("huawei.com", "Ascend910"),
    }
)


def _count(amount: object) -> int:
    """Extended resources are whole numbers, as text."""
    told = str(amount) if isinstance(amount, int | str) else ""
    return min(int(told[:MOST_DIGITS]), MOST_GPUS) if told.isdecimal() else 0
