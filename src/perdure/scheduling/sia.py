"""Sia's round: which configuration (nodes, GPUs, GPU type) each job gets, by an integer program.

Source: S. Jayaram Subramanya et al., "Sia: heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023,
section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_matrix, vstack

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
NOT_RUN = -1
GAP = 2e-4  # relative: as good as the best
TINY = 1e-6  # beyond the solver's tolerance
PLACES = 6  # decimals of the relaxation that are not noise
NEAR = 0.02  # above the relaxation's prices: what is looked at first
MOST_COUNTED = 300  # columns that are counted out, before branching is quicker
MOST_SETS = 2000  # of used GPUs, the same


@dataclass(frozen=True, slots=True)
class Configurations:
    """What a job may be given, as columns (n_configs,); `gpu_type` counts from 0."""

    nodes: Counts
    gpus: Counts
    gpu_type: Counts

    @classmethod
    def of_cluster(cls, nodes: Counts, gpus_per_node: Counts) -> Configurations:
        """For each GPU type: powers of two within a node, and whole nodes.

        `nodes` and `gpus_per_node` have (n_types,). A placement always exists for these: whatever is split by powers of
        two never leaves a hole, and the rest takes whole nodes.

        >>> found = Configurations.of_cluster(np.array([2, 1]), np.array([4, 2]))
        >>> list(zip(found.nodes.tolist(), found.gpus.tolist(), found.gpu_type.tolist(), strict=True))
        [(1, 1, 0), (1, 2, 0), (1, 4, 0), (2, 8, 0), (1, 1, 1), (1, 2, 1)]
        """
        rows: list[tuple[int, int, int]] = []
        for kind, (count, size) in enumerate(zip(nodes.tolist(), gpus_per_node.tolist(), strict=True)):
            rows += [(1, 2**k, kind) for k in range(size.bit_length()) if 2**k < size]
            rows += [(many, many * size, kind) for many in range(1, count + 1)]
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration for each job (n_jobs,), or `NOT_RUN`.

    `objective` is the paper's sum; `gap` how far, relatively, a better choice could be: 0 where it is proven best.
    """

    objective: float
    config: Counts
    gap: float


def restart_factor(age_s: Floats, restarts: Counts, restart_s: Floats) -> Floats:
    """How much of a job's time is progress if it is restarted once more: what another configuration is worth to it.

    1 for a job younger than one restart, so that the young move freely; never below 0.

    >>> round(float(restart_factor(np.array(3600.0), np.array(3), np.array(30.0))), 6)
    0.966942
    """
    factor = np.maximum((age_s - restarts * restart_s) / (age_s + restart_s), 0.0)
    return np.where(age_s < restart_s, 1.0, factor)


def normalised(goodput: Floats, fewest_gpus: Counts) -> Floats:
    """Goodput (n_jobs, n_configs) so that each job's lowest is the fewest GPUs it runs on; NaN stays impossible."""
    possible = np.where(goodput > 0, goodput, np.nan)
    lowest = np.nanmin(np.where(np.isnan(possible), np.inf, possible), axis=1, keepdims=True)
    return np.asarray(possible / lowest * fewest_gpus[:, None], float)


def choose(
    goodput: Floats,
    configs: Configurations,
    capacity: Counts,
    lambda_: float = 1.1,
    p: float = -0.5,
    limit_s: float = 10.0,
) -> Choice:
    """The choice that maximises `sum(goodput^p) - lambda * (jobs not run)`, or for p < 0 minimises it with plus.

    `goodput` (n_jobs, n_configs) is used as given; where it is NaN or not positive, the job cannot run so. `capacity`
    (n_types,) is in GPUs. Out of time, the best choice that was found, with its gap; if nothing was found, a greedy
    one.
    """
    sign = 1.0 if p < 0 else -1.0  # of a minimum
    value = np.where(goodput > 0, goodput, np.nan) ** p
    cost = sign * value - lambda_
    job, config = np.nonzero(_worth_a_look(cost, configs))
    program = _RoundProgram(
        cost[job, config], job, configs.gpus[config], configs.gpu_type[config], len(goodput), capacity
    )
    chosen, gap = _solve(program, limit_s)
    picked = np.full(len(goodput), NOT_RUN)
    picked[job[chosen]] = config[chosen]
    idle = int((picked == NOT_RUN).sum())
    taken = value[job[chosen], config[chosen]]
    return Choice(float(taken.sum() + sign * lambda_ * idle), picked, gap)


def _worth_a_look(cost: Floats, configs: Configurations) -> NDArray[np.bool_]:
    """Where a configuration is better than nothing, and than each with fewer GPUs of its type (n_jobs, n_configs)."""
    looked = cost < 0
    for kind in np.unique(configs.gpu_type):
        own = np.flatnonzero(configs.gpu_type == kind)
        own = own[np.argsort(configs.gpus[own], kind="stable")]
        least = np.fmin.accumulate(np.where(looked, cost, np.inf)[:, own], axis=1)
        looked[:, own[1:]] &= cost[:, own[1:]] < least[:, :-1]
    return looked


def _rows(row: Counts, entry: Floats, count: int) -> csr_matrix:
    """A sparse matrix with one entry in each column."""
    return csr_matrix((entry, (row, np.arange(len(row)))), shape=(count, len(row)))


@dataclass(frozen=True, slots=True)
class _RoundProgram:
    """Columns to choose from, each a job's configuration: what it costs, whose it is, how many GPUs of which type."""

    cost: Floats
    job: Counts
    gpus: Counts
    gpu_type: Counts
    jobs: int
    capacity: Counts

    def limits(self) -> LinearConstraint:
        """At most one of each job, and no more GPUs of a type than there are."""
        once = _rows(self.job, np.ones(len(self.job)), self.jobs)
        use = _rows(self.gpu_type, self.gpus.astype(float), len(self.capacity))
        return LinearConstraint(
            vstack([once, use]).tocsc(), -np.inf, np.concatenate([np.ones(self.jobs), self.capacity])
        )

    def greedy(self, order: Counts) -> Counts:
        """Columns in this order, as long as they gain and fit."""
        left, taken, chosen = self.capacity.tolist(), set[int](), []
        columns = zip(*(each[order].tolist() for each in (self.cost, self.job, self.gpus, self.gpu_type)), strict=True)
        for column, (cost, job, gpus, kind) in zip(order.tolist(), columns, strict=True):
            if cost < 0 and job not in taken and gpus <= left[kind]:
                chosen.append(column)
                taken.add(job)
                left[kind] -= gpus
        return np.array(chosen, np.int64)


def _solve(program: _RoundProgram, limit_s: float) -> tuple[Counts, float]:
    """The columns chosen, and the gap.

    The relaxation says how far a choice may be from the best, and by its prices how much the choice of each column
    costs at least: where the relaxation rounded is not good enough, few columns can be of a better one.
    """
    cost, limits = program.cost, program.limits()
    by_gain = np.argsort(cost / program.gpus, kind="stable")
    if not len(cost):
        return by_gain, 0.0
    options = {"time_limit": limit_s}
    relaxed = linprog(cost, A_ub=limits.A, b_ub=limits.ub, method="highs-ds", options=options)
    if not relaxed.success:
        chosen, gap = _branch(cost, limits, limit_s, by_gain)
        return (program.greedy(by_gain), gap) if chosen is None else (chosen, gap)
    rounded = program.greedy(np.lexsort([cost, -np.round(relaxed.x, PLACES)]))
    worth = float(cost[rounded].sum())
    above = np.maximum(cost - limits.A.T @ relaxed.ineqlin.marginals, 0.0)  # prices let no column cost less than 0
    gap = np.inf
    for most in (NEAR, np.inf):
        beyond = worth - relaxed.fun
        gap = min(gap, max(beyond, 0.0) / max(abs(worth), 1e-9))
        columns = np.union1d(rounded, np.flatnonzero(above <= min(most, beyond) + TINY))
        few = len(columns) <= MOST_COUNTED
        if beyond <= TINY or (gap <= GAP and not few):
            break
        chosen = _counted(program, columns, above, -relaxed.ineqlin.marginals, beyond) if few else None
        proven = 0.0
        if chosen is None:
            chosen, proven = _branch(cost, limits, limit_s, columns)
        found = np.inf if chosen is None else float(cost[chosen].sum())
        if most >= beyond and found <= worth + TINY:  # the same choice may add up to a rounding more
            gap = min(proven, gap)
        if chosen is not None and found <= worth:
            rounded, worth = chosen, found
        if most >= beyond:
            break
    return rounded, gap


def _counted(program: _RoundProgram, columns: Counts, above: Floats, prices: Floats, beyond: float) -> Counts | None:
    """The best of these columns, job by job; None if that takes too many sets of used GPUs.

    A choice costs more than the relaxation by what its columns are above their prices, by the price of each job that
    does not run, and by that of each GPU left: at most `beyond` together, as one is known that costs no more.
    """
    by_job: list[list[tuple[float, int, int, int]]] = [[(float(price), 0, 0, -1)] for price in prices[: program.jobs]]
    for column in columns.tolist():
        by_job[program.job[column]].append(
            (float(above[column]), int(program.gpus[column]), int(program.gpu_type[column]), column)
        )
    found: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {(0,) * len(program.capacity): (0.0, ())}
    for options in sorted(by_job, key=len):
        before, found = found, {}
        for used, (cost, chosen) in before.items():
            for more, gpus, kind, column in options:
                total = cost + more
                if total > beyond + TINY or used[kind] + gpus > program.capacity[kind]:
                    continue
                after = (*used[:kind], used[kind] + gpus, *used[kind + 1 :])
                if after not in found or total < found[after][0]:
                    found[after] = total, chosen if column < 0 else (*chosen, column)
        if len(found) > MOST_SETS:
            return None
    idle = prices[program.jobs :]

    def rank(used: tuple[int, ...]) -> tuple[float, int]:
        """The cost; of equals, the fewest GPUs."""
        return round(found[used][0] + float((program.capacity - used) @ idle), PLACES), sum(used)

    best = min(found, key=rank)
    return np.array(found[best][1], np.int64)


def _branch(cost: Floats, constraint: LinearConstraint, limit_s: float, columns: Counts) -> tuple[Counts | None, float]:
    """The best of these columns, by branch and bound, and the gap among them."""
    if not len(columns):
        return columns, 0.0
    options = {"time_limit": limit_s, "mip_rel_gap": GAP}
    among = LinearConstraint(constraint.A[:, columns], -np.inf, constraint.ub)
    whole = np.ones(len(columns))
    found = milp(cost[columns], constraints=among, integrality=whole, bounds=Bounds(0, 1), options=options)
    if found.x is None:
        return None, np.inf
    return columns[np.flatnonzero(found.x > 0.5)], float(found.mip_gap or 0.0)
