"""One look: jobs, attempts and nodes from the objects that are held. Pure.

A job's state follows from its own conditions and from its last attempt. Between a failure and the pod by which its
controller tries again a job waits: the next attempt is the controller's, and nobody else's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from perdure.backends.kubernetes.attempts import PodGroup, attempts_of, from_history, grouped
from perdure.backends.kubernetes.held import NOTHING_HELD, HeldObject, MirrorView
from perdure.backends.kubernetes.marks import (
    HISTORY,
    HOSTNAME,
    NODES,
    QUEUE,
    RESUME_AT,
    RETRY,
    STASH,
    is_managed,
)
from perdure.backends.kubernetes.nodes import is_down, node_of
from perdure.backends.kubernetes.objects import (
    Document,
    annotation,
    condition,
    controller_of,
    fields,
    instant,
    items,
    label,
    name_of,
    namespace_of,
    seconds_of,
    text,
    texts,
    uid_of,
    version_of,
    whole,
)
from perdure.backends.kubernetes.runs import PodRun, RunEnd, gpus_of, runs_of
from perdure.backends.kubernetes.workloads import JOB, JOB_SET, JOBSET_UID, WorkloadForm, key_of, owner_key
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, RetryPreference
from perdure.model.nodes import Node

SETTLE_S = 60.0  # how long the controller may take to say that a failed pod was its job's last
DELETED_S = 5.0  # after a pod was deleted its job may be, too
FIELD_NODE = "metadata.name"
_RANGE = re.compile(r"([0-9]{1,6})-([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """What the settings say of reading."""

    cluster: str
    owner_label: str = ""
    launch_patience_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Sighted:
    """What the mirrors hold."""

    jobs: Mapping[WorkloadForm, MirrorView] = field(default_factory=dict)
    pods: MirrorView = NOTHING_HELD
    nodes: MirrorView = NOTHING_HELD
    queued: MirrorView = NOTHING_HELD  # Kueue's Workloads


@dataclass(frozen=True, slots=True)
class SightedJob:
    """One job with its attempts, oldest first."""

    job: Job
    attempts: tuple[Attempt, ...]
    groups: tuple[PodGroup, ...]
    document: Document

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


class QuietJob(NamedTuple):
    """A job in which nothing depends on time: it is as it was while its objects are the same ones."""

    held: HeldObject
    pods: tuple[HeldObject, ...]
    others: tuple[object, ...]  # what else it was read with
    sighted: SightedJob

    def holds(self, held: HeldObject, pods: Sequence[HeldObject], others: tuple[object, ...]) -> bool:
        is_same = self.held is held and len(self.pods) == len(pods) and self.others == others
        return is_same and all(one is other for one, other in zip(self.pods, pods, strict=True))


def jobs_in(
    seen: Sighted, rules: ReadingRules, now: float, memory: dict[str, QuietJob] | None = None
) -> list[SightedJob]:
    """All jobs, those that are gone before those that have their names now.

    `memory` is what the look before left there, and saves most of the work where little has changed.
    """
    pods, reader = _pods_by_owner(seen), _Reader(seen, rules, now)
    known, kept = memory or {}, {}
    found: list[SightedJob] = []
    last: dict[str, int] = {}
    for form, view in seen.jobs.items():
        for held in sorted(view.objects, key=_by_age):
            if held.once(_is_stash):
                continue
            job_id, uid = held.once(form.job_id), held.once(uid_of)
            mine = pods.get(key_of(form, held.document), ())
            others = (last.get(job_id, 0), *reader.besides(uid))
            before = known.get(uid)
            if before is None or not before.holds(held, mine, others):
                before = QuietJob(held, tuple(mine), others, reader.read(form, held, mine, last.get(job_id, 0)))
            if is_quiet(before.sighted):
                kept[uid] = before
            found.append(before.sighted)
            last[job_id] = max((a.id.incarnation for a in found[-1].attempts), default=last.get(job_id, 0))
    if memory is not None:
        memory.clear()
        memory.update(kept)
    return found


def is_quiet(sighted: SightedJob) -> bool:
    """Whether time alone changes nothing: the job is over, as its last attempt, or all of its pods run."""
    latest = sighted.latest
    if sighted.job.state.is_over:
        return latest is None or latest.state.is_over
    runs = sighted.groups[-1].runs if sighted.groups else ()
    return bool(runs) and all(run.is_at_work for run in runs)


def sighted_job(
    form: WorkloadForm,
    held: HeldObject,
    pods: Iterable[HeldObject],
    seen: Sighted,
    rules: ReadingRules,
    now: float,
) -> SightedJob:
    """One job with its attempts, made of its pods; objects of its name that are gone came before."""
    reader, gone = _Reader(seen, rules, now), _pods_by_owner(seen)
    before, job_id = 0, form.job_id(held.document)
    view = seen.jobs.get(form, NOTHING_HELD)
    for each in sorted(view.objects, key=_by_age):
        if each.gone_s is not None and form.job_id(each.document) == job_id and not each.once(_is_stash):
            earlier = reader.read(form, each, gone.get(key_of(form, each.document), ()), before)
            before = max((attempt.id.incarnation for attempt in earlier.attempts), default=before)
    return reader.read(form, held, pods, before)


def _pods_by_owner(seen: Sighted) -> dict[str, list[HeldObject]]:
    pods: dict[str, list[HeldObject]] = defaultdict(list)
    for held in seen.pods.objects:
        if key := held.once(owner_key):
            pods[key].append(held)
    return pods


def _is_of_its_time(pod: HeldObject, held: HeldObject) -> bool:
    """Whether a pod is of this JobSet, not of one before of its name: by uid, else by time."""
    if told := label(pod.document, JOBSET_UID):
        return told == uid_of(held.document)
    born_s, made_s = pod.once(_made_s), held.once(_made_s)
    return made_s <= born_s and (held.gone_s is None or born_s <= held.gone_s)


def _by_age(held: HeldObject) -> tuple[bool, float, float]:
    return held.gone_s is None, held.once(_made_s), held.gone_s or 0.0


def _made_s(document: Document) -> float:
    return instant(document, "metadata", "creationTimestamp") or 0.0


class _Reader:
    """What is known of nodes and of Kueue's Workloads at one instant."""

    def __init__(self, seen: Sighted, rules: ReadingRules, now: float) -> None:
        self._rules, self._now = rules, now
        alive = [held for held in seen.nodes.objects if held.gone_s is None]
        self._known = {node.once(name_of) for node in alive}
        self._down = {node.once(name_of) for node in alive if node.once(is_down)}
        self._nodes = hash((frozenset(self._known), frozenset(self._down)))
        self._admissions = {
            text(owner, "uid"): held.document
            for held in seen.queued.objects
            if held.gone_s is None
            for owner in items(held.document, "metadata", "ownerReferences")
        }

    def read(self, form: WorkloadForm, held: HeldObject, pods: Iterable[HeldObject], after: int) -> SightedJob:
        """One job; `after` is the last incarnation of an object of its name before."""
        document, rules, now = held.document, self._rules, self._now
        if form is JOB_SET:
            pods = [pod for pod in pods if _is_of_its_time(pod, held)]
        runs = chain.from_iterable(runs_of(pod, now, rules.launch_patience_s, self._node_failed) for pod in pods)
        admission = self._admissions.get(uid_of(document), {})
        job_id, user = form.job_id(document), user_of(document, rules)
        past = from_history(annotation(document, HISTORY), job_id, rules.cluster, user)
        after = max((each.id.incarnation for each in past), default=after)
        groups = grouped(runs, form.width(document), after)
        how_over, over_s = form.how_over(document) or _how_gone(held) or (None, now)
        if how_over is not None and _is_ahead(how_over, groups) and now - over_s < DELETED_S:
            how_over = None
        needed = 1 if form is JOB and is_queue(document) else form.width(document)
        settled = _settling(form, document, groups[-1].runs if groups else (), now)
        own = attempts_of(groups, job_id, rules.cluster, user, needed, how_over, over_s, settled)
        attempts = (*past, *(_while_suspended(each, form, document, admission) for each in own))
        job = _job(form, held, groups, attempts, admission, rules)
        return SightedJob(job, attempts, tuple(groups), document)

    def besides(self, uid: str) -> tuple[object, ...]:
        """What a job is read with besides its pods."""
        return version_of(self._admissions.get(uid, {})), self._nodes

    def _node_failed(self, name: str) -> bool:
        return name in self._down or (bool(self._known) and bool(name) and name not in self._known)


def _is_ahead(how_over: RunEnd, groups: list[PodGroup]) -> bool:
    """Whether the job says that it failed, and the pod that did is still seen at work: it comes by another watch."""
    return bool(groups) and how_over.state is AttemptState.FAILED and not groups[-1].is_over


def _how_gone(held: HeldObject) -> tuple[RunEnd, float] | None:
    deleted = RunEnd(AttemptState.CANCELLED, "the job was deleted")
    if held.gone_s is not None:
        return deleted, held.gone_s
    since = instant(held.document, "metadata", "deletionTimestamp")
    return (deleted, since) if since is not None else None


def _while_suspended(attempt: Attempt, form: WorkloadForm, document: Document, admission: Document) -> Attempt:
    """Pods that went because the job was suspended: by Kueue for another's sake, or by a person."""
    if attempt.state is not AttemptState.REQUEUED or not form.is_suspended(document):
        return attempt
    evicted = condition(admission, "Evicted")
    if evicted is not None:
        reason = f"{text(evicted, 'reason')}: {text(evicted, 'message')}".strip(": ")
        return replace(attempt, state=AttemptState.PREEMPTED, reason=f"evicted by Kueue: {reason}")
    return replace(attempt, reason="the job was suspended")


def _job(
    form: WorkloadForm,
    held: HeldObject,
    groups: list[PodGroup],
    attempts: tuple[Attempt, ...],
    admission: Document,
    rules: ReadingRules,
) -> Job:
    document = held.document
    latest = attempts[-1] if attempts else None
    state, reason = _state(form, held, groups, latest, admission)
    excluded, required = _node_rules(form, document)
    width = form.width(document)
    resume_s = seconds_of(annotation(document, RESUME_AT))
    controller = controller_of(document)
    return Job(
        rules.cluster,
        form.job_id(document),
        name_of(document),
        user_of(document, rules),
        state,
        instant(document, "metadata", "creationTimestamp") or 0.0,
        partition=label(document, QUEUE),
        gpus=form.gpus(document),
        node_count=width,
        restart_nodes=_restart_nodes(form, document),
        walltime_s=_walltime_s(form, document),
        may_requeue=why_not_again(form, document) == "",
        wish=RetryPreference.NEVER if annotation(document, RETRY) == "never" else RetryPreference.AUTO,
        reason=reason,
        excluded=excluded,
        required=required,
        required_by=f"nodeSelector {HOSTNAME}",
        restarts=max(0, len(groups) - 1) + sum(each.id.incarnation < _first(groups) for each in attempts),
        eligible_s=resume_s if state is JobState.PENDING and resume_s else None,
        account=namespace_of(document),
        is_cron=controller.get("kind") == "CronJob",
    )


def _first(groups: list[PodGroup]) -> float:
    """The incarnation of the first attempt that is not of an object before this one."""
    return groups[0].incarnation if groups else float("inf")


def why_not_again(form: WorkloadForm, document: Document) -> str:
    """Why Perdure must not put a job back; "" where it may."""
    failed = condition(document, form.failed)
    owner = controller_of(document)
    if not is_managed(document):
        return "its owner has not opted in: label perdure.dev/managed=true"
    if annotation(document, RETRY) == "never":
        return "its owner wants it not to be put back: annotation perdure.dev/retry=never"
    if owner:
        return f"{text(owner, 'kind')} {text(owner, 'name')} manages it, and starts it again by itself"
    if failed is not None and text(failed, "reason") == "PodFailurePolicy":
        return f"its podFailurePolicy ends it: {text(failed, 'message')}"
    if form is JOB and whole(document, "spec", "backoffLimitPerIndex") is not None:
        return "its indexes fail one by one (backoffLimitPerIndex)"
    if form is JOB and is_queue(document):
        return "its pods share a queue of work (completions are not as many as parallelism)"
    if form is JOB and fields(document, "spec").get("manualSelector") is True:
        return "it selects its pods itself (manualSelector)"
    return ""


def _settling(form: WorkloadForm, document: Document, runs: Iterable[PodRun], now: float) -> Callable[[PodRun], bool]:
    """Whether it is known what becomes of the job after a run that failed: tried again, over, or deleted as a whole."""
    is_final, is_suspended = ends_here(form, document, runs), form.is_suspended(document)

    def settled(run: PodRun) -> bool:
        is_deleted = run.end is not None and run.end.state is AttemptState.REQUEUED and not is_suspended
        patience_s = SETTLE_S if is_final and run.is_pod_over else DELETED_S if is_deleted else 0.0
        return now - (run.end_s or 0.0) >= patience_s

    return settled


def ends_here(form: WorkloadForm, document: Document, runs: Iterable[PodRun]) -> bool:
    """Whether a pod that failed ends the job, which then soon says so, rather than being replaced."""
    if form is not JOB:
        restarts, most = (
            whole(document, "status", "restarts") or 0,
            whole(document, "spec", "failurePolicy", "maxRestarts"),
        )
        return form.suffix != "jobset" or restarts >= (most or 0)
    if condition(document, "FailureTarget") is not None or (
        fields(document, "spec", "podFailurePolicy") and any(run.is_tracked for run in runs if run.failed)
    ):
        return True
    limit = whole(document, "spec", "backoffLimit")
    counted = whole(document, "status", "failed") or 0
    return counted + sum(run.is_tracked for run in runs if run.failed) > (6 if limit is None else limit)


def is_queue(document: Document) -> bool:
    """Whether the pods of a Job share work, and need not run together."""
    parallelism, completions = whole(document, "spec", "parallelism"), whole(document, "spec", "completions")
    pods = 1 if parallelism is None else parallelism
    return completions > pods if completions is not None else pods > 1


def _state(
    form: WorkloadForm, held: HeldObject, groups: list[PodGroup], latest: Attempt | None, admission: Document
) -> tuple[JobState, str]:
    document = held.document
    over = form.how_over(document)
    if over is not None:
        return (JobState.COMPLETED if over[0].state is AttemptState.COMPLETED else JobState.FAILED), over[0].reason
    if held.gone_s is not None:
        return JobState.CANCELLED, "it was deleted"
    if form.is_suspended(document):
        return _suspended(document, admission)
    if latest is not None and not latest.state.is_over:
        return JobState.RUNNING, latest.reason
    waits = next((run.waits_for for group in groups[-1:] for run in group.runs if run.waits_for), "")
    if latest is not None and groups and groups[-1].is_over:
        waits = f"its controller tries again after {latest.state}"
    return JobState.PENDING, waits


def _suspended(document: Document, admission: Document) -> tuple[JobState, str]:
    """Kueue suspends what waits in its queues: held is there what is not active."""
    if annotation(document, RESUME_AT):
        return JobState.PENDING, "put back by Perdure, for later"
    if not label(document, QUEUE):
        return JobState.HELD, "suspended"
    if fields(admission, "spec").get("active") is False:
        return JobState.HELD, "its Workload is not active"
    waits = next((c for c in items(admission, "status", "conditions") if c.get("type") == "QuotaReserved"), {})
    return JobState.PENDING, f"in queue {label(document, QUEUE)}: {text(waits, 'message')}".rstrip(": ")


def user_of(document: Document, rules: ReadingRules) -> str:
    """Whose it is. A label counts only where the site says that it writes it itself."""
    named = label(document, rules.owner_label) if rules.owner_label else ""
    return named or namespace_of(document)


def _restart_nodes(form: WorkloadForm, document: Document) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(annotation(document, NODES))
    if form is not JOB or found is None:
        return None
    fewest, most = int(found[1]), int(found[2])
    return (fewest, most) if 0 < fewest <= most else None


def _walltime_s(form: WorkloadForm, document: Document) -> float | None:
    path = ("spec", "runPolicy") if form.suffix == "pytorchjob" else ("spec",)
    seconds = whole(fields(document, *path), "activeDeadlineSeconds")
    return float(seconds) if seconds is not None else None


def _node_rules(form: WorkloadForm, document: Document) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nodes that no pod of a job may be on, and those that one must be on."""
    templates = [template for _, template in form.templates(document)]
    excluded = [_excluded(template) for template in templates]
    required = {text(template, "spec", "nodeSelector", HOSTNAME) for template in templates} - {""}
    return (tuple(sorted(set.intersection(*excluded))) if excluded else ()), tuple(sorted(required))


def _excluded(template: Document) -> set[str]:
    """What all terms of a template's required node affinity leave out by name."""
    terms = items(
        template, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )  # fmt: skip
    left_out = [
        {
            name
            for rule in items(term, "matchFields")
            if rule.get("key") == FIELD_NODE and rule.get("operator") == "NotIn"
            for name in texts(rule, "values")
        }
        for term in terms
    ]
    return set.intersection(*left_out) if left_out else set()


def nodes_in(seen: Sighted) -> list[Node]:
    """All nodes, with the GPUs that pods hold on them."""
    used: dict[str, int] = defaultdict(int)
    found_busy: set[str] = set()
    for held in seen.pods.objects:
        if held.gone_s is None and (node := held.once(_occupied_node)):
            used[node] += held.once(gpus_of)
            if held.once(owner_key):
                found_busy.add(node)
    alive = [held for held in seen.nodes.objects if held.gone_s is None]
    busy = frozenset(found_busy)
    by_name = sorted(alive, key=lambda held: held.once(name_of))
    return [node_of(held.document, used, busy) for held in by_name]


def _occupied_node(pod: Document) -> str:
    """The node whose GPUs a pod holds; "" of one that is over, or has none yet."""
    return "" if text(pod, "status", "phase") in ("Succeeded", "Failed") else text(pod, "spec", "nodeName")


def _is_stash(document: Document) -> bool:
    """Whether it is the copy of a Job that is being made again."""
    return bool(label(document, STASH))
