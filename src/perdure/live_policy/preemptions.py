"""Who makes room: running jobs that the policy would not let run, where that lets a better one start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.limit_use import LimitUse
from perdure.live_policy.opt_in import consent_of, unfit
from perdure.live_policy.policies import LivePolicy
from perdure.live_policy.queue_view import GpuPass, QueuePicture, Ran, job_number, pass_over, picture_of
from perdure.live_policy.rounds import RoundPolicy
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobSize, PolicyConsent
from perdure.scheduling.protocol import RankingPolicy
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.waits.queue import Queue, QueuedJob

SizeChoices = Mapping[str, Mapping[int, JobSize]]
"""Of waiting jobs that have a choice, what each may be given, by GPUs."""
HOUR_S = 3600.0
MOST_REFUSALS = 3  # passes that limits turn down, after which the next one has those alone that they allowed
STARTABLE = ("", "None", "Priority", "Resources")
"""Why a job waits that starts as soon as there is room for it, and it is its turn."""


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """What was done before, and what is known besides the look."""

    preempted: Mapping[str, int] = field(default_factory=dict)  # how often each job was put back by the policy
    preempted_s: Sequence[float] = ()  # when the policy put jobs back
    on_their_way: Collection[str] = ()  # jobs that are being put back
    checkpoint_s: Mapping[str, float] = field(default_factory=dict)  # last known checkpoint of a job
    nice: Mapping[str, int] = field(default_factory=dict)  # what each job had before the policy changed it
    services: Sequence[float] = ()  # of past jobs, in GPU-seconds
    past: EndedJobs = field(default_factory=EndedJobs)
    sizes: Mapping[str, JobSize] = field(default_factory=dict)  # what each job asked for before the policy changed it
    limits: SiteLimits = field(default_factory=SiteLimits)  # of QOS and accounts


class WantedPreemption(NamedTuple):
    """A running job that is to be put back, for whom, and why."""

    job: QueuedJob
    starts: QueuedJob
    why: str


class PassResult(NamedTuple):
    """Who would start now, who makes room, and why others that run do not."""

    starts: tuple[QueuedJob, ...]
    preemptions: tuple[WantedPreemption, ...]
    kept: Mapping[str, str]
    sizes: Mapping[str, JobSize]  # of waiting jobs that have a choice


def startable(job: QueuedJob, now_s: float) -> bool:
    """Whether nothing but room and turn keeps a waiting job from starting."""
    return job.is_waiting and job.eligible_s is not None and job.eligible_s <= now_s and job.reason in STARTABLE


def why_kept(
    job: QueuedJob, now_s: float, usable: Collection[str], settings: PolicySettings, memory: PolicyMemory
) -> str:
    """Why a running job is not put back now; "" where it may be. `usable`: nodes that take new work."""
    if consent_of(job, settings) is not PolicyConsent.PREEMPT:
        return "it did not allow it"
    if not job.may_requeue:
        return "it may not be put back (--no-requeue, or not a batch job)"
    if job.job_id in memory.on_their_way:
        return "it is being put back"
    if memory.preempted.get(job.job_id, 0) >= settings.preemptions_per_job:
        return f"it was put back {settings.preemptions_per_job} times already"
    ran_s = now_s - (job.start_s if job.start_s is not None else now_s)
    if ran_s < settings.least_run_s:
        return f"it has run {ran_s:.0f} s, and may run for at least {settings.least_run_s:.0f} s"
    if not all(name in usable for name in job.running_on):
        return "one of its nodes takes no new work"
    return _checkpoint_in_the_way(job, now_s, settings, memory)


def _checkpoint_in_the_way(job: QueuedJob, now_s: float, settings: PolicySettings, memory: PolicyMemory) -> str:
    """Of a checkpoint before its latest start nothing more is to be gained."""
    saved_s = memory.checkpoint_s.get(job.job_id)
    if saved_s is None or saved_s < (job.start_s or 0.0):
        return "no checkpoint of this start is known" if settings.needs_checkpoint else ""
    age_s = now_s - saved_s
    return f"its last checkpoint is {age_s:.0f} s old" if age_s > settings.checkpoint_age_s else ""


def kept_now(
    queue: Queue, rows: Sequence[QueuedJob], policy: LivePolicy, settings: PolicySettings, memory: PolicyMemory
) -> dict[str, str]:
    """Of the rows that run, why each is not put back now; "" where it may be. {} where the policy does not preempt."""
    usable = {node.name for node in queue.nodes if node.is_usable}
    if not policy.preemptive:
        return {}
    kept = {job.job_id: why_kept(job, queue.now_s, usable, settings, memory) for job in rows if job.is_running}
    if isinstance(policy, RoundPolicy):
        for job in rows:
            if job.is_running and not kept[job.job_id]:
                kept[job.job_id] = policy.why_kept(job, queue.now_s)
    return kept


def wanted_now(
    queue: Queue,
    rows: Sequence[QueuedJob],
    history: Mapping[str, Sequence[Ran]],
    policy: LivePolicy,
    settings: PolicySettings,
    memory: PolicyMemory,
    priority: Mapping[str, int],
    choices: SizeChoices,
) -> PassResult:
    """Who starts and who makes room. `priority` is what the waiting rows have once their places are changed.

    Jobs that may not be put back keep what they have, whatever the policy thinks of them. So do, in a pass that wants
    more than may be put back in this hour, those that the policy would rather have run.
    """
    others, use = _Others(queue, rows, priority), LimitUse(queue, memory.limits)
    waiting = [job for job in rows if startable(job, queue.now_s) and not unfit(job)]
    kept = kept_now(queue, rows, policy, settings, memory)
    movable = [job for job in rows if kept.get(job.job_id) == ""]
    left = settings.preemptions_per_hour - sum(at_s > queue.now_s - HOUR_S for at_s in memory.preempted_s)
    refusals = 0
    while True:
        picture, ranked, sizes = ranked_on(picture_of(queue, (*waiting, *movable), history), policy, choices)
        found = pass_over(picture, ranked)
        starts = tuple(picture.jobs[row] for row in found.starts if picture.jobs[row].is_waiting)
        yields = [picture.jobs[row] for row in _least_wanted(found)]
        if yields and (blocked := {job.job_id for job in starts if others.come_before(job)}):
            waiting = [job for job in waiting if job.job_id not in blocked]
            continue
        if len(yields) > max(0, left):
            for job in yields[max(0, left) :]:
                kept[job.job_id] = f"{settings.preemptions_per_hour} jobs were put back in this hour already"
            movable = [job for job in movable if not kept[job.job_id]]
            continue
        if refused := use.refused(sorted(starts, key=_rank(picture, found)), waiting, yields):
            refusals += 1
            there = waiting if refusals < MOST_REFUSALS else starts
            waiting = [job for job in there if job.job_id not in refused]
            continue
        wanted = tuple(_wanted(job, starts, policy.name) for job in yields)
        return PassResult(starts, wanted, _told(kept), sizes)


def ranked_on(
    picture: QueuePicture, policy: LivePolicy, choices: SizeChoices
) -> tuple[QueuePicture, RankingPolicy, Mapping[str, JobSize]]:
    """The picture with the sizes that a plan gives its waiting jobs, what ranks its rows, and these sizes."""
    if not isinstance(policy, RoundPolicy):
        return picture, policy, {}
    ranked, gpus = policy.on(picture)
    sizes = {job_id: choices[job_id][count] for job_id, count in gpus.items()}
    jobs = tuple(
        replace(job, gpus=size.gpus, nodes=size.nodes) if (size := sizes.get(job.job_id)) else job
        for job in picture.jobs
    )
    return dataclasses.replace(picture, jobs=jobs), ranked, sizes


def _rank(picture: QueuePicture, found: GpuPass) -> Callable[[QueuedJob], int]:
    place = {picture.jobs[row].job_id: at for at, row in enumerate(found.order)}
    return lambda job: place.get(job.job_id, len(place))


def _least_wanted(found: GpuPass) -> list[int]:
    """Those who make room, whom the policy wants least first."""
    rank = {row: place for place, row in enumerate(found.order)}
    return sorted(found.yields, key=lambda row: -rank.get(row, len(rank)))


def _told(kept: Mapping[str, str]) -> dict[str, str]:
    return {job_id: why for job_id, why in kept.items() if why}


def _wanted(job: QueuedJob, starts: Sequence[QueuedJob], policy: str) -> WantedPreemption:
    """For the first that starts of those that may use the same nodes."""
    gainer = next((each for each in starts if not set(each.partitions).isdisjoint(job.partitions)), starts[0])
    return WantedPreemption(job, gainer, f"{policy} lets job {gainer.job_id} run before job {job.job_id}")


class _Others:
    """Waiting jobs outside the policy, which would take what is freed where they come first."""

    def __init__(self, queue: Queue, rows: Sequence[QueuedJob], priority: Mapping[str, int]) -> None:
        own = {job.job_id for job in rows}
        waiting = (job for job in queue.waiting() if job.job_id not in own and job.gpus)
        self._jobs = [job for job in waiting if startable(job, queue.now_s)]
        self._queue, self._priority = queue, priority
        self._tier = {each.name: each.priority_tier for each in queue.partitions}
        self._rivals: dict[tuple[str, ...], set[str]] = {}  # partitions that share nodes with these

    def come_before(self, job: QueuedJob) -> bool:
        """Whether the manager considers any of them before this job, on the same nodes."""
        if not self._jobs:
            return False
        if job.partitions not in self._rivals:
            shared = (node.partitions for node in self._queue.nodes_of(job.partitions))
            self._rivals[job.partitions] = set(job.partitions).union(*shared)
        rivals, own = self._rivals[job.partitions], self._precedence(job, min)
        return any(not rivals.isdisjoint(each.partitions) and self._precedence(each, max) < own for each in self._jobs)

    def _precedence(self, job: QueuedJob, tier: Callable[..., int]) -> tuple[int, int, float, int]:
        """A job of several partitions is considered in each by its tier there; through which it starts is open."""
        of_it = tier((self._tier.get(name, 1) for name in job.partitions), default=1)
        return (-of_it, -self._priority.get(job.job_id, job.priority), job.submit_s, job_number(job.job_id))
