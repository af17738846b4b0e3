"""Gavel's allocations: the fraction of time that each job spends on each GPU type, by linear programs.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
sections 3 and 4; details after its public code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack, kron, vstack

from perdure.errors import InputError
from perdure.scheduling.interior import raise_lowest, reach

Floats = NDArray[np.float64]
SLACK = 1e-7  # relative: what a solver's tolerance may hide


@dataclass(frozen=True, slots=True)
class GavelRound:
    """The jobs and GPU types of one round.

    `throughput` (n_jobs, n_types) in steps a second, 0 where a job cannot run; `workers` (n_types,) in GPUs; `scale`
    (n_jobs,) is the GPUs that a job takes at once, `weight` (n_jobs,) its share among others.
    """

    throughput: Floats
    workers: Floats
    scale: Floats
    weight: Floats

    def __post_init__(self) -> None:
        """Raises `InputError` for values that are not valid, and for a job that runs on no GPU type."""
        self._must_be_whole()
        wrong = ~np.isfinite(self.throughput) | (self.throughput < 0)
        if wrong.any():
            job, kind = np.argwhere(wrong)[0]
            said = f"its throughput on GPU type {kind} is {self.throughput[job, kind]:g}"
            raise InputError(f"job {job}", said, "Give steps a second, and 0 where it cannot run")
        idle = np.flatnonzero(~((self.throughput > 0) & (self.workers > 0)).any(axis=1))
        if len(idle):
            raise InputError(f"job {idle[0]}", "it runs on no GPU type that there is", "Leave it out of this round")

    def _must_be_whole(self) -> None:
        types = len(self.workers)
        if self.throughput.ndim != 2 or self.throughput.shape[1] != types:
            raise InputError("throughputs", f"not {types} of each job, as there are GPU types", "Give one for each")
        wrong = np.flatnonzero(~(np.isfinite(self.workers) & (self.workers >= 0)))
        if len(wrong):
            raise InputError(
                f"GPU type {wrong[0]}", f"it has {self.workers[wrong[0]]:g} GPUs", "Give a number from 0 on"
            )
        for name, values in (("GPUs", self.scale), ("weight", self.weight)):
            if values.shape != (len(self.throughput),):
                raise InputError(name, f"not one for each of {len(self.throughput)} jobs", "Give one for each")
            wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
            if len(wrong):
                raise InputError(f"job {wrong[0]}", f"its {name}: {values[wrong[0]]:g}", "Give a number above 0")

    @classmethod
    def of(
        cls, throughput: Floats, workers: Floats, scale: Floats | None = None, weight: Floats | None = None
    ) -> GavelRound:
        """With scale and weight of 1 unless given."""
        ones = np.ones(len(throughput))
        return cls(throughput, workers, ones if scale is None else scale, ones if weight is None else weight)

    def blind(self) -> GavelRound:
        """The same round for a policy that takes every GPU type to be as fast as the best one."""
        best = self.throughput.max(axis=1, keepdims=True)
        return GavelRound(np.where(self.throughput > 0, best, 0.0), self.workers, self.scale, self.weight)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Fractions of time (n_jobs, n_types), and the value that the program made best."""

    value: float
    fractions: Floats


def equal_share(cluster: GavelRound) -> Floats:
    """Throughput (n_jobs,) if every job had the same part of every GPU type, as much as one job can use."""
    share = cluster.workers / len(cluster.throughput)
    return np.asarray(cluster.throughput @ (share / share.sum() if share.sum() > 0 else share), float)


def least_attained(cluster: GavelRound) -> Allocation:
    """Max-min fairness: the smallest of the jobs' throughputs over their weighted equal share is as large as can be.

    >>> found = least_attained(GavelRound.of(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([1.0, 1.0])))
    >>> round(found.value, 6)
    1.0
    """
    return _raise_smallest(cluster, cluster.scale / (cluster.weight * equal_share(cluster)))


def least_attained_middle(cluster: GavelRound) -> Allocation:
    """The same, in the middle of all that are as good: nobody gets what is to spare by the place where it stands."""
    factor = cluster.scale / (cluster.weight * equal_share(cluster))
    found = raise_lowest(cluster.throughput * factor[:, None], cluster.scale, cluster.workers)
    return Allocation(found.level, found.x)


def makespan(cluster: GavelRound, steps_left: Floats) -> Allocation:
    """All jobs are done as early as can be: `value` is the largest part of what is left that all do in a second."""
    return _raise_smallest(cluster, 1.0 / steps_left)


def early_enough(cluster: GavelRound, steps_left: Floats) -> Allocation:
    """Makespan as the public code has it: the last end that halving an interval allows, up to 5% late.

    `value` is as that of `makespan`. What is to spare is not spent on being early: jobs get more than they need.
    """
    soonest_s = 1.0 / makespan(cluster, steps_left).value
    low, high, most, found = 100.0, 1e6, 1e6, 0.0
    while not found:
        while 1.05 * low < high:
            middle = (low + high) / 2
            if middle > soonest_s:
                found = high = middle
            else:
                low = middle
        low, most = most, 10 * most
        high = most
    fractions = reach(cluster.throughput, steps_left / found, cluster.scale, cluster.workers)
    return makespan(cluster, steps_left) if fractions is None else Allocation(1.0 / found, fractions)


def finish_time_fairness(cluster: GavelRound, spent_s: Floats, steps_left: Floats, alone_s: Floats) -> Allocation:
    """The largest rho is as small as can be: `value` is that rho.

    A job's rho is the time it will have taken, `spent_s` and what is left, over `alone_s`, what it would have taken
    with its equal share from the start. All (n_jobs,). A rho can be had if the throughputs that it asks for can; by
    Newton's method on how far they can, within an interval.
    """

    def reached(rho: float) -> ReachedLevel:
        found = raise_lowest(cluster.throughput * needed(rho)[:, None], cluster.scale, cluster.workers)
        return ReachedLevel(found.level, (cluster.throughput * found.x).sum(axis=1), found.price)

    def needed(rho: float) -> Floats:
        return part_needed(rho, spent_s, steps_left, alone_s)

    low = float(np.max(spent_s / alone_s))
    high = float(np.max((spent_s + steps_left / even(cluster)) / alone_s))
    rho = smallest_rho(reached, low, high, alone_s / steps_left)
    gain = cluster.throughput * needed(rho)[:, None]
    return Allocation(rho, raise_lowest(gain, cluster.scale, cluster.workers, centred=True).x)


@dataclass(frozen=True, slots=True)
class ReachedLevel:
    """How far what a rho asks for can be had: 1 is just so; throughput and price of each job there (n_jobs,)."""

    level: float
    throughput: Floats
    price: Floats


def part_needed(rho: float, spent_s: Floats, steps_left: Floats, alone_s: Floats) -> Floats:
    """What a job's throughput is to be multiplied by (n_jobs,), so that 1 is what a rho asks for."""
    return np.asarray(np.maximum(rho * alone_s - spent_s, 1e-9 * alone_s) / steps_left, float)


def smallest_rho(reached: Callable[[float], ReachedLevel], low: float, high: float, steepness: Floats) -> float:
    """The smallest rho between `low` and `high` that can be had; `steepness` (n_jobs,) is how its needs grow."""
    rho, found = high, reached(high)
    while high - low > 1e-7 * high:
        slope = float(found.price @ (found.throughput * steepness))
        rho += (1.0 - found.level) / slope if slope > 0 else 0.0
        if not low < rho < high:
            rho = (low + high) / 2
        found = reached(rho)
        if found.level >= 1.0 - 1e-7:
            high = rho
        else:
            low = rho
        if abs(found.level - 1.0) < 1e-7:
            break
    return high


def even(cluster: GavelRound) -> Floats:
    """Throughput (n_jobs,) with a share of each type that all jobs can have at once."""
    return np.asarray(cluster.throughput @ (cluster.workers / (cluster.scale.sum() + cluster.workers.sum())), float)


def total_throughput(cluster: GavelRound, price: Floats) -> Allocation:
    """The sum of throughputs, each over the price of its GPU type (n_types,), is as large as can be.

    Efficient, and not fair: who makes more steps for the money comes first, be the steps large or small.

    >>> total_throughput(GavelRound.of(np.array([[4.0, 3.0]]), np.array([1.0, 1.0])), np.array([2.0, 1.0])).value
    3.0
    """
    return _maximise(cluster, cluster.throughput / price)


def first_come(cluster: GavelRound, order: NDArray[np.int64]) -> Allocation:
    """FIFO that knows GPU types: throughput over that on the job's best type weighs by the job's place.

    `order` (n_jobs,) is 0 for the oldest.
    """
    best = cluster.throughput.max(axis=1, keepdims=True)
    relative = np.divide(cluster.throughput, best, where=best > 0, out=np.zeros_like(cluster.throughput))
    return _maximise(cluster, (len(order) - order)[:, None] * relative)


def water_filling(cluster: GavelRound) -> Allocation:
    """Max-min fairness to the end: once the smallest cannot rise, the next smallest does, and so on.

    `value` is the smallest. Each program's dual prices name jobs that hold the smallest down in every best allocation;
    these keep what they have while the others rise, so that there are at most as many programs as jobs.
    """
    factor = cluster.scale / (cluster.weight * equal_share(cluster))
    floor, held = np.zeros(len(factor)), np.zeros(len(factor), bool)
    found = first = _solve_smallest(cluster, factor, floor, held)
    while True:
        floor = np.where(held, floor, found.level)
        held |= found.price > 0.01 * found.price.max()  # a smaller one is held later, and may be rounding
        if held.all() or found.price.max() <= 0:
            return Allocation(first.level, found.fractions)
        found = _solve_smallest(cluster, factor, floor, held)


@dataclass(frozen=True, slots=True)
class _Smallest:
    """The level that all but the held reach, and each job's dual price: how much the level would give for its rise."""

    level: float
    fractions: Floats
    price: Floats


def _raise_smallest(cluster: GavelRound, factor: Floats) -> Allocation:
    """The allocation whose smallest `factor * throughput` is largest."""
    found = _solve_smallest(cluster, factor, np.zeros(len(factor)), np.zeros(len(factor), bool))
    return Allocation(found.level, found.fractions)


def _solve_smallest(cluster: GavelRound, factor: Floats, floor: Floats, held: NDArray[np.bool_]) -> _Smallest:
    """The smallest `factor * throughput` is largest, with those `held` at their floor or above instead."""
    jobs, types = cluster.throughput.shape
    above = hstack([-_weighted(cluster, factor), csr_matrix((~held).astype(float)[:, None])])
    found = linprog(
        np.concatenate([np.zeros(jobs * types), [-1.0]]),
        A_ub=vstack([hstack([_limits(cluster), csr_matrix((jobs + types, 1))]), above]),
        b_ub=np.concatenate([_bound(cluster), np.where(held, -floor * (1 - SLACK), 0.0)]),
        bounds=(0.0, None),
        method="highs",
    )
    price = np.where(held, 0.0, -found.ineqlin.marginals[jobs + types :])
    return _Smallest(float(found.x[-1]), np.maximum(found.x[:-1], 0.0).reshape(jobs, types), price)


def _maximise(cluster: GavelRound, value: Floats) -> Allocation:
    """The allocation with the largest sum of `value` (n_jobs, n_types) times fraction."""
    found = linprog(-value.ravel(), A_ub=_limits(cluster), b_ub=_bound(cluster), bounds=(0.0, None), method="highs")
    return Allocation(-float(found.fun), np.maximum(found.x, 0.0).reshape(value.shape))


def _weighted(cluster: GavelRound, factor: Floats) -> csr_matrix:
    """`factor * throughput` of each job, as rows over the fractions."""
    jobs, types = cluster.throughput.shape
    entries = (cluster.throughput * factor[:, None]).ravel()
    return csr_matrix((entries, (np.repeat(np.arange(jobs), types), np.arange(jobs * types))))


def _limits(cluster: GavelRound) -> csr_matrix:
    """No job has more than all of its time, and no GPU type more than its workers; rows over the fractions."""
    jobs, types = cluster.throughput.shape
    return vstack([kron(eye(jobs), np.ones((1, types))), kron(cluster.scale[None, :], eye(types))]).tocsr()


def _bound(cluster: GavelRound) -> Floats:
    return np.concatenate([np.ones(len(cluster.throughput)), cluster.workers])
