"""Gavel's allocations where two jobs may share GPUs: fractions of time for jobs and for pairs, by linear programs.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
section 3.1 ("space sharing"). Jobs' throughput is normalised as without pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack, kron, vstack

from perdure.errors import InputError
from perdure.scheduling.gavel import (
    SLACK,
    Allocation,
    Floats,
    GavelRound,
    ReachedLevel,
    equal_share,
    even,
    part_needed,
    smallest_rho,
)


@dataclass(frozen=True, slots=True)
class PackedRound:
    """The jobs and GPU types of one round, and the pairs of jobs that may share GPUs.

    `pairs` (n_pairs, 2) has places of jobs that take as many GPUs; `together` (n_pairs, 2, n_types) their throughputs
    beside each other, 0 where they do not run so. Units are the jobs alone and then the pairs.
    """

    cluster: GavelRound
    pairs: NDArray[np.int64]
    together: Floats

    def __post_init__(self) -> None:
        """Raises `InputError` for a pair or a throughput that is not valid."""
        jobs = len(self.cluster.throughput)
        for place, (one, other) in enumerate(self.pairs.tolist()):
            if not (0 <= one < jobs and 0 <= other < jobs) or one == other:
                raise InputError(
                    f"pair {place}", f"jobs {one} and {other} are not two of {jobs}", "Name two that differ"
                )
            if self.cluster.scale[one] != self.cluster.scale[other]:
                what = f"jobs {one} and {other} take different numbers of GPUs"
                raise InputError(f"pair {place}", what, "Pair jobs that take as many")
        wrong = ~np.isfinite(self.together) | (self.together < 0)
        if wrong.any():
            place, _, kind = np.argwhere(wrong)[0]
            raise InputError(f"pair {place}", f"its throughput on GPU type {kind} is not valid", "Give steps a second")

    def worthwhile(self) -> PackedRound:
        """Without the pairs that two jobs in turns are as good as on all types; no optimum is lost with them."""
        alone = np.where(self.cluster.throughput > 0, self.cluster.throughput, np.inf)[self.pairs]
        gains = ((self.together / alone).sum(axis=1) > 1.0) & (self.together > 0).all(axis=1)
        kept = gains.any(axis=1)
        together = np.where(gains[:, None, :], self.together, 0.0)[kept]
        return PackedRound(self.cluster, self.pairs[kept], together)

    @property
    def members(self) -> csr_matrix:
        """Which jobs are in which unit (n_jobs, n_units), 1 where one is."""
        jobs, pairs = len(self.cluster.throughput), len(self.pairs)
        row = np.concatenate([np.arange(jobs), self.pairs[:, 0], self.pairs[:, 1]])
        unit = np.concatenate([np.arange(jobs), *[jobs + np.arange(pairs)] * 2])
        return csr_matrix((np.ones(len(row)), (row, unit)), shape=(jobs, jobs + pairs))

    @property
    def scale(self) -> Floats:
        """GPUs of each unit (n_units,)."""
        return np.concatenate([self.cluster.scale, self.cluster.scale[self.pairs[:, 0]]])

    def throughput(self, fractions: Floats) -> Floats:
        """Of each job (n_jobs,), all its units taken together."""
        return np.asarray(self.rates(np.ones(len(self.cluster.throughput))) @ fractions.ravel(), float)

    def rates(self, factor: Floats) -> csr_matrix:
        """`factor * throughput` of each job, as rows over the fractions of units and types."""
        jobs, types = self.cluster.throughput.shape
        pairs = len(self.pairs)
        columns = np.arange(jobs * types).reshape(jobs, types)
        beside = jobs * types + np.arange(pairs * types).reshape(pairs, 1, types).repeat(2, axis=1)
        rate = np.concatenate([self.cluster.throughput.ravel(), self.together.ravel()])
        row = np.concatenate([np.arange(jobs).repeat(types), self.pairs.ravel().repeat(types)])
        column = np.concatenate([columns.ravel(), beside.ravel()])
        return csr_matrix((rate * factor[row], (row, column)), shape=(jobs, (jobs + pairs) * types))

    def limits(self) -> csr_matrix:
        """No job has more than all of its time, and no type more than its workers; rows over the fractions."""
        types, members = len(self.cluster.workers), self.members
        return vstack([kron(members, np.ones((1, types))), kron(self.scale[None, :], eye(types))]).tocsr()

    def most(self) -> Floats:
        """The most of each fraction: nothing where a job or a pair does not run."""
        runs = np.concatenate([self.cluster.throughput > 0, (self.together > 0).all(axis=1)])
        return runs.astype(float).ravel()


def least_attained(packed: PackedRound) -> Allocation:
    """Max-min fairness, as without pairs: the smallest of throughputs over their weighted equal share is largest.

    >>> jobs = GavelRound.of(np.array([[1.0], [1.0]]), np.array([1.0]))
    >>> found = least_attained(PackedRound(jobs, np.array([[0, 1]]), np.array([[[0.8], [0.8]]])))
    >>> round(found.value, 6), found.fractions.round(6).tolist()
    (0.8, [[0.0], [0.0], [1.0]])
    """
    cluster = packed.cluster
    return _raise_all(packed, cluster.scale / (cluster.weight * equal_share(cluster)))


def makespan(packed: PackedRound, steps_left: Floats) -> Allocation:
    """All jobs are done as early as can be: `value` is the largest part of what is left that all do in a second."""
    return _raise_all(packed, 1.0 / steps_left)


def finish_time_fairness(packed: PackedRound, spent_s: Floats, steps_left: Floats, alone_s: Floats) -> Allocation:
    """The largest rho is as small as can be, as without pairs."""

    def needed(rho: float) -> Floats:
        return part_needed(rho, spent_s, steps_left, alone_s)

    def reached(rho: float) -> ReachedLevel:
        found, price = _raise_smallest(packed, needed(rho))
        return ReachedLevel(found.value, packed.throughput(found.fractions), price)

    low = float(np.max(spent_s / alone_s))
    high = float(np.max((spent_s + steps_left / even(packed.cluster)) / alone_s))
    rho = smallest_rho(reached, low, high, alone_s / steps_left)
    return Allocation(rho, _raise_all(packed, needed(rho)).fractions)


def first_come(packed: PackedRound, order: NDArray[np.int64]) -> Allocation:
    """FIFO: throughput over that on the best GPU type weighs by a job's `order` (n_jobs,), from 0 for the oldest."""
    return _maximise(packed, (len(order) - order) / packed.cluster.throughput.max(axis=1))


def _raise_all(packed: PackedRound, factor: Floats) -> Allocation:
    """The same as `_raise_smallest`, and of these allocations one with the largest sum of `factor * throughput`.

    What is to spare is so given to somebody, and no two share GPUs for nothing.
    """
    found, _ = _raise_smallest(packed, factor)
    return Allocation(found.value, _maximise(packed, factor, factor, found.value * (1 - SLACK)).fractions)


def _raise_smallest(packed: PackedRound, factor: Floats) -> tuple[Allocation, Floats]:
    """The allocation whose smallest `factor * throughput` is largest, and each job's price in that."""
    jobs, types = packed.cluster.throughput.shape
    limits, rates = packed.limits(), packed.rates(factor)
    units = limits.shape[1]
    found = linprog(
        np.concatenate([np.zeros(units), [-1.0]]),
        A_ub=vstack(
            [hstack([limits, csr_matrix((jobs + types, 1))]), hstack([-rates, csr_matrix(np.ones((jobs, 1)))])]
        ),
        b_ub=np.concatenate([np.ones(jobs), packed.cluster.workers, np.zeros(jobs)]),
        bounds=np.column_stack([np.zeros(units + 1), np.concatenate([packed.most(), [np.inf]])]),
        method="highs",
    )
    fractions = np.maximum(found.x[:-1], 0.0).reshape(-1, types)
    return Allocation(float(found.x[-1]), fractions), -found.ineqlin.marginals[jobs + types :]


def _maximise(packed: PackedRound, worth: Floats, factor: Floats | None = None, level: float = 0.0) -> Allocation:
    """The largest sum of `worth * throughput`, where `factor * throughput` is nowhere below `level`."""
    jobs, types = packed.cluster.throughput.shape
    value, limits = np.asarray(packed.rates(worth).sum(axis=0)).ravel(), packed.limits()
    bound = np.concatenate([np.ones(jobs), packed.cluster.workers])
    if factor is not None:
        limits = vstack([limits, -packed.rates(factor)])
        bound = np.concatenate([bound, np.full(jobs, -level)])
    most = np.column_stack([np.zeros(len(value)), packed.most()])
    found = linprog(-value, A_ub=limits, b_ub=bound, bounds=most, method="highs")
    return Allocation(-float(found.fun), np.maximum(found.x, 0.0).reshape(-1, types))
