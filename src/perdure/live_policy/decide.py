"""What a policy in force does after a look: whose place changes, who makes room, and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perdure.errors import ConfigError
from perdure.live_policy.opt_in import consent_of, unfit
from perdure.live_policy.policies import LivePolicy, policy_in_force
from perdure.live_policy.preemptions import PolicyMemory, SizeChoices, kept_now, ranked_on, wanted_now
from perdure.live_policy.priorities import PriorityStanding, wanted_priorities
from perdure.live_policy.queue_view import Ran, job_number, order_of, picture_of
from perdure.live_policy.rounds import RoundPolicy
from perdure.live_policy.settings import PolicySettings
from perdure.live_policy.sizes import SizeChange, allowed_sizes
from perdure.model.jobs import JobSize, PolicyConsent
from perdure.waits.queue import Queue, QueuedJob, QueueLook

SHIFTING = "priority/multifactor"  # where a nice is taken from the priority, and from nothing else


class NiceChange(Struct, frozen=True):
    """A job's new nice; `before`: what it had before the policy changed it, `seen`: what it has now."""

    job_id: str
    nice: int
    before: int
    seen: int


class OrderedJob(Struct, frozen=True):
    """A waiting job that takes part: its place by the policy, and by the manager as it is now."""

    job_id: str
    user: str
    gpus: int
    attained_s: float  # it has run so long
    place: int  # from 1
    place_seen: int
    priority: int
    wanted: int
    consent: PolicyConsent
    starts: bool  # it would start now, could the policy give out the GPUs itself


class PlannedPreemption(Struct, frozen=True):
    """A running job that makes room."""

    job_id: str
    starts: str
    why: str


class LiveDecision(Struct, frozen=True):
    """What is to be done after a look, and what is shown of it."""

    now_s: float
    policy: str
    order: tuple[OrderedJob, ...] = ()
    changes: tuple[NiceChange, ...] = ()
    preemptions: tuple[PlannedPreemption, ...] = ()
    kept: Mapping[str, str] = {}  # jobs that run on, and why they do not make room
    left: Mapping[str, str] = {}  # jobs that opted in and are left alone, and why
    remarks: tuple[str, ...] = ()
    running: tuple[str, ...] = ()  # jobs that take part and run
    sizes: tuple[SizeChange, ...] = ()


def check_manager(look: QueueLook) -> None:
    """Raise `ConfigError` where a job's nice does not shift its priority."""
    kind = look.config.get("prioritytype")
    if kind is not None and kind != SHIFTING:
        what = f"PriorityType={kind}: there a nice does not move a job by as much"
        raise ConfigError("slurm.conf", what, f"Set PriorityType={SHIFTING}, or do without --policy")


def decide(
    look: QueueLook, history: Mapping[str, Sequence[Ran]], settings: PolicySettings, memory: PolicyMemory
) -> LiveDecision:
    """Decide from one look. `history`: spans in which jobs ran before their present start.

    Raises `ConfigError` for a policy that cannot be in force, and for a manager where it cannot work.
    """
    check_manager(look)
    policy, remark = policy_in_force(settings, memory.services, memory.past)
    queue = look.queue
    opted_in = [job for job in queue.jobs if consent_of(job, settings) is not PolicyConsent.NONE]
    taking_part, choices = _with_choices(opted_in, queue, policy, memory)
    nodes = Counter(node.gpus for node in queue.nodes if node.is_usable and node.gpus)
    left = {job.job_id: why for job in taking_part if (why := unfit(job) or _unplanned(job, nodes, policy))}
    rows = [job for job in taking_part if job.job_id not in left]
    ordered = _ordered(queue, rows, history, policy, settings, memory, choices)
    waiting = [job for job in ordered if job.is_waiting]
    priorities = _priorities(waiting, queue, memory.nice)
    found = wanted_now(queue, rows, history, policy, settings, memory, priorities, choices)
    starts = {job.job_id for job in found.starts}
    to_wait = _to_wait(ordered, starts, {each.job.job_id for each in found.preemptions})
    wanted = _priorities(to_wait, queue, memory.nice)
    seen = {job.job_id: at for at, job in enumerate(sorted(waiting, key=_precedence(queue)), 1)}
    return LiveDecision(
        now_s=queue.now_s,
        policy=policy.name,
        order=tuple(
            OrderedJob(
                job.job_id, job.user, job.gpus, sum(until - since for since, until in history.get(job.job_id, ())),
                place, seen[job.job_id], job.priority, wanted[job.job_id], consent_of(job, settings),
                job.job_id in starts,
            )
            for place, job in enumerate(waiting, 1)
        ),
        changes=_changes(to_wait, wanted, memory.nice)[: settings.changes],
        preemptions=tuple(PlannedPreemption(job.job_id, gainer.job_id, why) for job, gainer, why in found.preemptions),
        kept=found.kept,
        left=left,
        remarks=(remark,) if remark else (),
        running=tuple(job.job_id for job in rows if job.is_running),
        sizes=_size_changes(taking_part, found.sizes, memory)[: settings.changes],
    )  # fmt: skip


def _to_wait(ordered: Sequence[QueuedJob], starts: Collection[str], yields: Collection[str]) -> Sequence[QueuedJob]:
    """Who waits, in the order in which the manager is to consider them: those first that would start now.

    A policy passes over a gang that finds no room. A manager keeps room for it, and lets nobody start behind it who
    might still run then.
    """
    there = [job for job in ordered if job.is_waiting or job.job_id in yields]
    return sorted(there, key=lambda job: job.job_id not in starts)


def _with_choices(
    jobs: Sequence[QueuedJob], queue: Queue, policy: LivePolicy, memory: PolicyMemory
) -> tuple[Sequence[QueuedJob], SizeChoices]:
    """The jobs with the sizes that each may be given by a policy that chooses sizes; what these are."""
    if not isinstance(policy, RoundPolicy):
        return jobs, {}
    alike = {job.partitions for job in jobs}
    there = {names: [node for node in queue.nodes_of(names) if node.is_usable and node.gpus] for names in alike}
    found = {
        job.job_id: sizes
        for job in jobs
        if job.is_waiting and (sizes := allowed_sizes(job, memory.sizes.get(job.job_id), there[job.partitions]))
    }
    return [replace(job, sizes=tuple(found.get(job.job_id, ()))) for job in jobs], found


def _unplanned(job: QueuedJob, nodes: Mapping[int, int], policy: LivePolicy) -> str:
    return policy.unfit(job, nodes) if isinstance(policy, RoundPolicy) else ""


def _ordered(
    queue: Queue,
    rows: Sequence[QueuedJob],
    history: Mapping[str, Sequence[Ran]],
    policy: LivePolicy,
    settings: PolicySettings,
    memory: PolicyMemory,
    choices: SizeChoices,
) -> Sequence[QueuedJob]:
    """The rows in the policy's order. One that plans in rounds plans with what is on offer."""
    kept = kept_now(queue, rows, policy, settings, memory) if isinstance(policy, RoundPolicy) else {}
    there = picture_of(queue, [job for job in rows if not kept.get(job.job_id)], history)
    picture, ranked, _ = ranked_on(there, policy, choices)
    own = {job.job_id: job for job in rows}
    return [own[picture.jobs[row].job_id] for row in order_of(picture, ranked)]


def _size_changes(
    jobs: Sequence[QueuedJob], wanted: Mapping[str, JobSize], memory: PolicyMemory
) -> tuple[SizeChange, ...]:
    return tuple(
        SizeChange(job.job_id, wanted[job.job_id], memory.sizes.get(job.job_id, job.asks), job.asks)
        for job in jobs
        if job.asks is not None and job.job_id in wanted and job.asks != wanted[job.job_id]
    )


def _tier(job: QueuedJob, tiers: Mapping[str, int]) -> int:
    return max((tiers.get(name, 1) for name in job.partitions), default=1)


def _precedence(queue: Queue) -> Callable[[QueuedJob], tuple[float, ...]]:
    """What the manager considers first."""
    tiers = {each.name: each.priority_tier for each in queue.partitions}
    return lambda job: (-_tier(job, tiers), -job.priority, job.submit_s, job_number(job.job_id))


def _priorities(waiting: Sequence[QueuedJob], queue: Queue, nice: Mapping[str, int]) -> dict[str, int]:
    """What each job's priority is to be. A partition's tier goes before all priorities: each tier has its own order."""
    tiers = {each.name: each.priority_tier for each in queue.partitions}
    found: dict[str, int] = {}
    for tier in sorted({_tier(job, tiers) for job in waiting}):
        jobs = [job for job in waiting if _tier(job, tiers) == tier]
        standings = [
            PriorityStanding(
                job.priority, max(1, job.priority + job.nice - nice.get(job.job_id, job.nice)), job.submit_s,
                job_number(job.job_id),
            )
            for job in jobs
        ]  # fmt: skip
        found |= zip((job.job_id for job in jobs), wanted_priorities(standings), strict=True)
    return found


def _changes(
    waiting: Sequence[QueuedJob], wanted: Mapping[str, int], nice: Mapping[str, int]
) -> tuple[NiceChange, ...]:
    return tuple(
        NiceChange(job.job_id, job.nice + job.priority - wanted[job.job_id], nice.get(job.job_id, job.nice), job.nice)
        for job in waiting
        if wanted[job.job_id] != job.priority
    )
