"""Where a gang fits, and whom it may push aside: pure functions of what is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.backends.local.records import AttemptRecord, LocalJob, LocalNode


@dataclass(frozen=True, slots=True)
class Free:
    """What is free on one node."""

    gpus: frozenset[int]
    slots: int


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The node and the GPU numbers of one task."""

    node: str
    gpus: tuple[int, ...]


def free_capacity(nodes: Iterable[LocalNode], running: Iterable[AttemptRecord]) -> dict[str, Free]:
    """What is free on each node that takes work, besides what `running` attempts hold."""
    free = {node.name: Free(frozenset(range(node.gpus)), node.slots) for node in nodes if node.takes_work}
    for attempt in running:
        free = occupy(free, zip(attempt.nodes, attempt.devices, strict=True))
    return free


def occupy(free: Mapping[str, Free], places: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Free]:
    """What stays free once these (node, GPUs) are taken; nodes that take no work are passed over."""
    left = dict(free)
    for node, gpus in places:
        if node in left:
            left[node] = Free(left[node].gpus - set(gpus), left[node].slots - 1)
    return left


def place(job: LocalJob, free: Mapping[str, Free]) -> tuple[TaskPlace, ...] | None:
    """A place for each task of the gang; None where they do not all fit.

    Required nodes come first; the others are those where the fewest GPUs stay over (best fit), which keeps
    room for wide jobs. Of a node the lowest GPU numbers are taken.
    """
    need = job.spec.gpus_per_node
    fitting = [
        name for name, room in free.items() if room.slots > 0 and len(room.gpus) >= need and name not in job.excluded
    ]
    if not set(job.required) <= set(fitting):
        return None
    others = sorted((name for name in fitting if name not in job.required), key=lambda name: len(free[name].gpus))
    chosen = [*job.required, *others][: job.node_count]
    if len(chosen) < job.node_count:
        return None
    return tuple(TaskPlace(name, tuple(sorted(free[name].gpus)[:need])) for name in chosen)


def choose_victims(
    job: LocalJob,
    nodes: Sequence[LocalNode],
    running: Sequence[AttemptRecord],
    jobs: Mapping[str, LocalJob],
) -> tuple[AttemptRecord, ...]:
    """The attempts to preempt so that `job` fits; empty where nothing helps or enough is being freed already.

    Only preemptible jobs of lower priority are taken: the lowest priority first, then the latest start. None is
    taken without success: whoever turns out not to be needed is spared.
    """
    staying = [attempt for attempt in running if attempt.ending is None]
    candidates = [a for a in staying if _may_be_preempted(jobs[a.job_id], job)]
    if not candidates or place(job, free_capacity(nodes, staying)) is not None:
        return ()
    candidates.sort(key=lambda a: (jobs[a.job_id].spec.priority, -a.start_s))

    def fits_without(victims: Sequence[AttemptRecord]) -> bool:
        return place(job, free_capacity(nodes, [a for a in staying if a not in victims])) is not None

    enough = next((candidates[:n] for n in range(1, len(candidates) + 1) if fits_without(candidates[:n])), [])
    for attempt in tuple(enough):
        spared = [other for other in enough if other is not attempt]
        if fits_without(spared):
            enough = spared
    return tuple(enough)


def _may_be_preempted(victim: LocalJob, by: LocalJob) -> bool:
    return victim.spec.preemptible and victim.spec.priority < by.spec.priority
