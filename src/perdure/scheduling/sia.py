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
GAP = 1e-4  # relative: as good as the best
LARGE = 5000  # columns, from which on prices pay
NEAR = 0.02  # above the lowest cost at the prices of the relaxation: what is looked at first


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
    job, config = np.nonzero(goodput > 0)
    value = goodput[job, config] ** p
    sign = 1.0 if p < 0 else -1.0  # of a minimum
    cost = sign * value - lambda_
    once = _rows(job, np.ones(len(job)), len(goodput))
    use = _rows(configs.gpu_type[config], configs.gpus[config].astype(float), len(capacity))
    bound = np.concatenate([np.ones(len(goodput)), capacity])
    chosen, gap = _solve(cost, LinearConstraint(vstack([once, use]).tocsc(), -np.inf, bound), limit_s)
    if chosen is None:
        chosen = _greedy(cost, job, configs.gpus[config], configs.gpu_type[config], capacity)
    picked = np.full(len(goodput), NOT_RUN)
    picked[job[chosen]] = config[chosen]
    idle = int((picked == NOT_RUN).sum())
    return Choice(float(value[chosen].sum() + sign * lambda_ * idle), picked, gap)


def _rows(row: Counts, entry: Floats, count: int) -> csr_matrix:
    """A sparse matrix with one entry in each column."""
    return csr_matrix((entry, (row, np.arange(len(row)))), shape=(count, len(row)))


def _solve(cost: Floats, constraint: LinearConstraint, limit_s: float) -> tuple[Counts | None, float]:
    """The columns chosen, and the gap; None without any solution in time."""
    if not len(cost):
        return np.array([], np.int64), 0.0
    if len(cost) < LARGE:
        return _branch(cost, constraint, limit_s, np.arange(len(cost)))
    return _solve_large(cost, constraint, limit_s)


def _solve_large(cost: Floats, constraint: LinearConstraint, limit_s: float) -> tuple[Counts | None, float]:
    """The same by prices: a column is worth a look only if its cost at the prices of the relaxation is low.

    Those that are lowest for some job give a solution, and the relaxation says how far that may be from the best. Where
    it is too far, all columns that a better solution could have are looked at.
    """
    relaxed = linprog(cost, A_ub=constraint.A, b_ub=constraint.ub, method="highs-ds", options={"time_limit": limit_s})
    if not relaxed.success:
        return _branch(cost, constraint, limit_s, np.arange(len(cost)))
    # At these prices no column costs less than 0, and none of the best much more.
    above = cost - constraint.A.T @ relaxed.ineqlin.marginals
    chosen, gap = _branch(cost, constraint, limit_s, np.flatnonzero(above <= NEAR))
    if chosen is None:
        return _branch(cost, constraint, limit_s, np.arange(len(cost)))
    worth = float(cost[chosen].sum())
    gap = abs(worth - relaxed.fun) / max(abs(worth), 1e-9)
    if gap <= GAP:
        return chosen, gap
    better, proven = _branch(cost, constraint, limit_s, np.flatnonzero(above <= worth - relaxed.fun + NEAR))
    if better is None or cost[better].sum() > worth:
        return chosen, gap
    return better, min(proven, gap)


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


def _greedy(cost: Floats, job: Counts, gpus: Counts, gpu_type: Counts, capacity: Counts) -> Counts:
    """Columns by what they gain for each GPU, as long as they fit."""
    left, taken, chosen = capacity.copy(), set[int](), []
    for column in np.argsort(cost / gpus, kind="stable").tolist():
        if cost[column] < 0 and job[column] not in taken and gpus[column] <= left[gpu_type[column]]:
            chosen.append(column)
            taken.add(int(job[column]))
            left[gpu_type[column]] -= gpus[column]
    return np.array(chosen, np.int64)
