"""The requests of jobs to a site's Slurm, worked out once: partition, limits, and the fixed part of the priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.associations import Associations, associations_of
from perdure.scheduling.slurm.limits import ARRAY, LimitHolder, refusal
from perdure.scheduling.slurm.priority import Sizes, normalised, size_factor
from perdure.scheduling.slurm.settings import Partition, PriorityWeights, RunningLimits, SchedulerSettings
from perdure.scheduling.view import View
from perdure.slurm_words.reasons import PARTITION_DOWN, PARTITION_NODES, PARTITION_TIME

_EVERYTHING = Partition("")
_GPU_TRES, _CPU_TRES, _NODE_TRES = "gres/gpu", "cpu", "node"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JobRequests:
    """Columns of shape (n_jobs,), and what they refer to.

    Worked out once a run, for nothing in it changes while jobs wait. `fixed` is in units of priority; `refused` are
    rows.
    """

    partitions: tuple[Partition, ...]
    partition: NDArray[np.int32]
    limit: NDArray[np.int64]  # ticks; 0 where neither the job nor its partition has one
    fixed: Floats  # of its priority: all but age and fair share
    associations: Associations
    holders: tuple[tuple[LimitHolder, ...], ...]  # of each job those whose limits hold for it
    refused: Mapping[int, str]  # jobs that can never start, and why

    def tier(self, row: int) -> int:
        """The PriorityTier of a job's partition: the larger goes first, whatever the priorities."""
        return self.partitions[int(self.partition[row])].priority_tier


def requests_of(view: View, settings: SchedulerSettings, sizes: Sequence[int] = ()) -> JobRequests:
    """The requests of all jobs of a view; `sizes` are the GPUs of each node, where jobs run on nodes.

    Names that the settings do not know are no error, for traces outlive settings: an unknown partition means the
    default one, an unknown QOS none, an unknown account the root.
    """
    partitions = settings.partitions or (_EVERYTHING,)
    partition = _partition_of(view, partitions)
    limit = _limits(view, partitions, partition)
    whole = [_gpus_of(each, view.total_gpus, sizes) for each in partitions]
    associations = associations_of(view, settings.associations)
    qos = _qos_of(view, settings)
    holders = _holders(view, settings, partitions, partition, qos, associations)
    return JobRequests(
        partitions,
        partition,
        limit,
        _fixed(view, settings, partitions, partition, limit, np.array(whole, np.float64), qos, associations),
        associations,
        holders,
        _refused(view, partitions, partition, limit, whole, holders),
    )


def _partition_of(view: View, partitions: Sequence[Partition]) -> NDArray[np.int32]:
    """The partition that each job names, of several the first; the default one where it names none that is known."""
    default = next((i for i, each in enumerate(partitions) if each.is_default), 0)
    if view.asks.partition is None:
        return np.full(len(view.gpus), default, np.int32)
    place = {each.name: i for i, each in enumerate(partitions)}
    words = [next((place[name] for name in text.split(",") if name in place), default)
             for text in view.asks.partition.words]  # fmt: skip
    return np.array(words, np.int32)[view.asks.partition.of]


def _limits(view: View, partitions: Sequence[Partition], partition: NDArray[np.int32]) -> NDArray[np.int64]:
    """The limit that each job asks for, else its partition's DefaultTime, else its MaxTime."""
    defaults_s = [each.default_time_s or each.max_time_s or 0.0 for each in partitions]
    defaults = np.array([round(seconds * view.ticks_per_s) for seconds in defaults_s], np.int64)
    asked = np.array(view.walltime, np.int64)
    return np.where(asked > 0, asked, defaults[partition])


def _gpus_of(partition: Partition, total: int, sizes: Sequence[int]) -> int:
    """GPUs that a partition has: of the whole cluster where its nodes are not known."""
    return total if partition.nodes is None or not sizes else sum(sizes[node] for node in partition.nodes)


def _qos_of(view: View, settings: SchedulerSettings) -> NDArray[np.int64]:
    """The row of each job's QOS in the settings; -1 where it has none that is known."""
    place = {each.name: i for i, each in enumerate(settings.qos)}
    if view.asks.qos is None:
        return np.full(len(view.gpus), place.get("normal", -1), np.int64)
    return np.array([place.get(word, -1) for word in view.asks.qos.words], np.int64)[view.asks.qos.of]


def _fixed(
    view: View,
    settings: SchedulerSettings,
    partitions: Sequence[Partition],
    partition: NDArray[np.int32],
    limit: NDArray[np.int64],
    whole: Floats,
    qos: NDArray[np.int64],
    associations: Associations,
) -> Floats:
    """The sum of the weighted factors that never change while a job waits, less its nice value; shape (n_jobs,).

    Association, size, partition, QOS and TRES. Zeros under priority/basic, where jobs go in the order in which they
    came. Weights of TRES that are not known here (memory) are left out.
    """
    n, how = len(view.gpus), settings.priority
    if not how.multifactor or not n:
        return np.zeros(n)
    weights, sizes = how.weights, _sizes(view, settings)
    if weights == PriorityWeights(age=weights.age, fairshare=weights.fairshare):  # as for each future of a queue
        return np.zeros(n) if view.asks.nice is None else -view.asks.nice.astype(np.float64)
    of_assoc = np.array([each.priority for each in associations.known], np.float64)
    of_part = np.array([each.priority_job_factor for each in partitions], np.float64)
    of_qos = np.array([*(each.priority for each in settings.qos), 0], np.float64)  # the last: -1, none
    length = np.where(limit > 0, limit, np.array(view.work, np.int64))
    total = weights.assoc * normalised(of_assoc, of_assoc.max(), "NO_NORMAL_ASSOC", how)[list(associations.of_job)]
    total = total + weights.job_size * size_factor(sizes, how, length / view.ticks_per_s / 60)
    total = total + weights.partition * normalised(of_part, of_part.max(), "NO_NORMAL_PART", how)[partition]
    total = total + weights.qos * normalised(of_qos, of_qos.max(), "NO_NORMAL_QOS", how)[qos]
    asked: dict[str, tuple[Floats, Floats | float]] = {
        _GPU_TRES: (np.array(view.gpus, np.float64), whole[partition]),
        _CPU_TRES: (sizes.cpus, sizes.all_cpus),
        _NODE_TRES: (sizes.nodes, sizes.all_nodes),
    }
    for tres, weight in weights.tres.items():
        if tres in asked:
            count, of_all = asked[tres]
            total = total + weight * (count if "NO_NORMAL_TRES" in how.flags else np.minimum(count / of_all, 1.0))
    return total if view.asks.nice is None else total - view.asks.nice


def _sizes(view: View, settings: SchedulerSettings) -> Sizes:
    """Nodes and processors where the settings tell how many there are, and the trace what is asked for; else GPUs.

    So the size factor of a trace without nodes compares shares of the GPUs.
    """
    gpus, total = np.array(view.gpus, np.float64), float(view.total_gpus)
    nodes, all_nodes, cpus, all_cpus = gpus, total, gpus, total
    if settings.nodes and view.asks.nodes is not None:
        nodes, all_nodes = np.maximum(view.asks.nodes, 1).astype(np.float64), float(settings.nodes)
    if settings.cpus and view.asks.cpus is not None:
        cpus, all_cpus = np.maximum(view.asks.cpus, 1).astype(np.float64), float(settings.cpus)
    return Sizes(nodes, cpus, all_nodes, all_cpus)


def _holders(
    view: View,
    settings: SchedulerSettings,
    partitions: Sequence[Partition],
    partition: NDArray[np.int32],
    qos: NDArray[np.int64],
    associations: Associations,
) -> tuple[tuple[LimitHolder, ...], ...]:
    """Those that have a limit at all; jobs of one user, account, QOS, partition and array share a tuple.

    A limit that a QOS sets takes the place of the same one further on; jobs count there all the same.
    """
    limits = {each.limits for each in settings.qos} | {each.limits for each in associations.known}
    arrays = view.asks.array
    if limits <= {RunningLimits()} and arrays is None:
        return ((),) * len(view.gpus)
    known = {each.name: each for each in settings.qos}
    made: dict[tuple[int, ...], tuple[LimitHolder, ...]] = {}

    def holders(node: int, place: int, named: int, user: int, array: int) -> tuple[LimitHolder, ...]:
        found = [] if arrays is None else _of_array(arrays.words[array])
        of_qos: list[RunningLimits] = []
        of_part, own = known.get(partitions[place].qos), settings.qos[named] if named >= 0 else None
        both = (own, of_part) if own is not None and own.over_partition else (of_part, own)
        for each in both if own != of_part else (own,):
            if each is not None and each.limits != RunningLimits():
                found.append(LimitHolder("QOS", ("qos", each.name), user, each.limits.unless_in(of_qos)))
                of_qos.append(each.limits)
        for above in associations.above(node):
            if (its := associations.known[above].limits) != RunningLimits():
                found.append(LimitHolder("Assoc", ("assoc", above), user, its.unless_in(of_qos)))
        return tuple(found)

    of_array = [0] * len(view.gpus) if arrays is None else arrays.of.tolist()
    keys = zip(associations.of_job, partition.tolist(), qos.tolist(), view.user, of_array, strict=True)
    rows = []
    for key in keys:
        if key not in made:
            made[key] = holders(*key)
        rows.append(made[key])
    return tuple(rows)


def _of_array(text: str) -> list[LimitHolder]:
    """The limit on running tasks of an array: of "12%2", or none."""
    name, _, most = text.partition("%")
    return [LimitHolder(ARRAY, ("array", name), 0, RunningLimits(grp_jobs=int(most)))] if most.isdecimal() else []


def _refused(
    view: View,
    partitions: Sequence[Partition],
    partition: NDArray[np.int32],
    limit: NDArray[np.int64],
    whole: Sequence[int],
    holders: Sequence[tuple[LimitHolder, ...]],
) -> dict[int, str]:
    """The jobs that can never start, each with the reason that squeue would show."""
    found: dict[int, str] = {}
    up = np.array([each.is_up for each in partitions])
    longest = np.array([np.inf if each.max_time_s is None else each.max_time_s for each in partitions])
    has_room = np.array(view.gpus, np.int64) <= np.array(whole, np.int64)[partition]
    bounded = np.array([each.max_nodes is not None for each in partitions])
    limited = np.array([bool(each) for each in holders], np.bool_)
    is_fine = up[partition] & (limit / view.ticks_per_s <= longest[partition]) & has_room
    for row in np.flatnonzero(~is_fine | bounded[partition] | limited).tolist():
        place, limit_s, gpus = int(partition[row]), int(limit[row]) / view.ticks_per_s, view.gpus[row]
        each = partitions[place]
        nodes = 0 if view.asks.nodes is None else int(view.asks.nodes[row])
        if not each.is_up:
            found[row] = PARTITION_DOWN
        elif each.max_time_s is not None and limit_s > each.max_time_s:
            found[row] = PARTITION_TIME
        elif gpus > whole[place] or (each.max_nodes is not None and nodes > each.max_nodes):
            found[row] = PARTITION_NODES
        elif (why := refusal(holders[row], gpus, limit_s)) is not None:
            found[row] = why
    return found
