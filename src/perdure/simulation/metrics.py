"""Figures of one simulation: completion times, waits, use and waste of GPUs, fairness; and intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.table import JobTable, TableEnding
from perdure.simulation.fairness import jain, rho
from perdure.simulation.groups import Grouping, groupings
from perdure.simulation.result import Result
from perdure.simulation.steady import SteadyWindow, window_of

HOUR_S = 3600.0
_LEAST_RUN_S = 10.0
Floats = NDArray[np.float64]
Causes = Sequence[str]  # of each attempt in the table, a job without any having one; "" where it passed


@dataclass(frozen=True, slots=True)
class MetricSpread:
    """Mean and quantiles of many values, in their unit; all 0 where there is no value.

    The quantile p of n values is the one in place ``ceil(p * n)`` of the sorted ones: always a value that occurs.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> MetricSpread:
        if not len(values):
            return cls(*(0.0,) * 5)
        ordered = np.sort(values)
        places = (-(-len(ordered) * percent // 100) - 1 for percent in (50, 90, 95, 99))  # whole numbers: no rounding
        return cls(float(ordered.mean()), *(float(ordered[place]) for place in places))

    def to_json(self) -> dict[str, float]:
        return asdict(self)


_NOTHING = MetricSpread.of(np.empty(0))


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """What the jobs of one virtual cluster, user or size got."""

    jobs: int
    jct_s: MetricSpread
    wait_s: MetricSpread
    slowdown: MetricSpread
    gpu_h: float  # allocated
    goodput: float
    wasted_gpu_h: float
    success_rate: float
    rho: MetricSpread

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one simulation. GPU time is counted while it is allocated.

    Of the allocated GPU time, the share `goodput` went to attempts that passed. `wasted_gpu_h` went to attempts that
    failed; what ran until its owner killed it is neither, nor are restarts after preemptions. The slow-down of a job is
    its JCT over the time that it ran, less restarts.
    """

    jobs: int
    finished: int  # jobs whose last attempt is over
    jct_s: MetricSpread  # last end minus submit
    wait_s: MetricSpread  # first start minus submit
    makespan_s: float
    utilisation: float
    goodput: float
    wasted_gpu_h: float
    success_rate: float  # share of all jobs whose last attempt passed
    events: int
    killed_gpu_h: float = 0.0
    wasted_gpu_h_by_cause: Mapping[str, float] = field(default_factory=dict)  # the dearest first
    rho: MetricSpread = _NOTHING  # of the jobs that ran
    slowdown: MetricSpread = _NOTHING
    preemptions: int = 0  # times that a job lost its GPUs to another
    most_preempted: int = 0  # of one job
    restart_gpu_h: float = 0.0  # that restarts after preemptions took
    window: SteadyWindow | None = None
    used_in_window: float = 0.0  # share of the GPU time of the window that was allocated; of the makespan without one
    groups: Mapping[str, GroupMetrics] = field(default_factory=dict)  # by virtual cluster
    users: Mapping[str, GroupMetrics] = field(default_factory=dict)
    sizes: Mapping[str, GroupMetrics] = field(default_factory=dict)  # by GPUs
    jain_groups: float = 1.0  # Jain's index of the inverse of the mean rho of each virtual cluster
    jain_users: float = 1.0  # and of each user

    def to_json(self) -> dict[str, Any]:
        """The figures that every run reports."""
        return {
            "jobs": self.jobs,
            "finished": self.finished,
            "jct_s": self.jct_s.to_json(),
            "wait_s": self.wait_s.to_json(),
            "makespan_s": self.makespan_s,
            "utilisation": self.utilisation,
            "goodput": self.goodput,
            "wasted_gpu_h": self.wasted_gpu_h,
            "success_rate": self.success_rate,
            "events": self.events,
        }

    def details(self) -> dict[str, Any]:
        """The figures that go further: waste by cause, slow-down, preemptions, fairness, groups of jobs."""
        kinds = {"groups": self.groups, "users": self.users, "gpus": self.sizes}
        return {
            "killed_gpu_h": self.killed_gpu_h,
            "wasted_gpu_h_by_cause": dict(self.wasted_gpu_h_by_cause),
            "rho": self.rho.to_json(),
            "slowdown": self.slowdown.to_json(),
            "preemptions": self.preemptions,
            "most_preempted": self.most_preempted,
            "restart_gpu_h": self.restart_gpu_h,
            "window": None if self.window is None else {**self.window.to_json(), "used": self.used_in_window},
            "jain_groups": self.jain_groups,
            "jain_users": self.jain_users,
            **{kind: {name: one.to_json() for name, one in found.items()} for kind, found in kinds.items()},
        }


def summary(
    table: JobTable, result: Result, causes: Causes | None = None, parted: Sequence[Grouping] | None = None
) -> Metrics:
    """The figures of `result`, which `table` gave; `parted`, where it is known, is `groupings` of the table.

    `causes` names why each recorded attempt of the table failed; without, all waste has the cause "failed". The last
    attempt of a job that the table says was killed is not charged as a failure.
    """
    log = result.attempts
    gpus = table.gpus[log.job]
    gpu_h, lost_gpu_h = log.ran_s * gpus / HOUR_S, log.lost_s * gpus / HOUR_S
    killed = ~log.passed & _killed(table, result)
    wasted = ~log.passed & ~killed
    jct_s, wait_s, fairness = result.end_s - table.submit_s, result.start_s - table.submit_s, rho(table, result)
    slow = slowdown(table, result)
    of_jobs = jct_s, wait_s, slow, fairness
    window = window_of(table, result.total_gpus)
    clusters, users, sizes = (
        _groups(each, result, of_jobs, gpu_h, lost_gpu_h, wasted) for each in parted or groupings(table)
    )
    return Metrics(
        jobs=len(table),
        finished=int((result.end_s >= table.submit_s).sum()),
        jct_s=MetricSpread.of(jct_s),
        wait_s=MetricSpread.of(wait_s),
        makespan_s=result.makespan_s,
        utilisation=result.utilisation,
        goodput=_goodput(gpu_h, lost_gpu_h, log.passed),
        wasted_gpu_h=float(gpu_h[wasted].sum()),
        success_rate=_share(result.passed),
        events=result.events,
        killed_gpu_h=float(gpu_h[killed].sum()),
        wasted_gpu_h_by_cause=_by_cause(table, result, gpu_h, wasted, causes),
        rho=MetricSpread.of(fairness[~np.isnan(fairness)]),
        slowdown=MetricSpread.of(slow),
        preemptions=int(result.preempted.sum()),
        most_preempted=int(result.preempted.max(initial=0)),
        restart_gpu_h=float(lost_gpu_h.sum()),
        window=window,
        used_in_window=result.utilisation if window is None else window.used(table, result),
        groups=clusters,
        users=users,
        sizes=sizes,
        jain_groups=_alike(clusters),
        jain_users=_alike(users),
    )


def slowdown(table: JobTable, result: Result) -> Floats:
    """Each job's JCT over the time that it ran, shape (n_jobs,); at least 1.

    A job that ran for less than 10 s counts as if it had run so long. Source: D. Feitelson, "Metrics for parallel job
    scheduling and their convergence", JSSPP 2001 (bounded slowdown).
    """
    worked_s = result.attempts.ran_s - result.attempts.lost_s
    ran_s = np.bincount(result.attempts.job, worked_s, len(table))
    slow: Floats = np.maximum(1.0, (result.end_s - table.submit_s) / np.maximum(ran_s, _LEAST_RUN_S))
    return slow


def interval(values: Sequence[float], rng: Generator, level: float = 0.95, draws: int = 2000) -> tuple[float, float]:
    """Bootstrap interval of the mean, from one value a seed: low and high end; both the value where there is one.

    Raises `ValueError` without any value.
    """
    seen = np.asarray(values, np.float64)
    if not len(seen):
        raise ValueError("interval: no values")
    means = seen[rng.integers(len(seen), size=(draws, len(seen)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _killed(table: JobTable, result: Result) -> NDArray[np.bool_]:
    """Of each attempt that ran, whether it is the recorded last one of a job that was killed."""
    log = result.attempts
    recorded = np.ones(len(table), np.int64)
    if table.attempts is not None:
        recorded = np.maximum(np.diff(table.attempts.first), 1)
    ends = np.cumsum(recorded)
    last: NDArray[np.bool_] = (log.record == ends[log.job] - 1) & (table.ending[log.job] == TableEnding.KILLED)
    return last


def _by_cause(
    table: JobTable, result: Result, gpu_h: NDArray[np.float64], wasted: NDArray[np.bool_], causes: Causes | None
) -> dict[str, float]:
    if not wasted.any():
        return {}
    if causes is None or table.attempts is None:
        return {"failed": float(gpu_h[wasted].sum())}
    names, cause = np.unique(np.asarray(causes)[result.attempts.record[wasted]], return_inverse=True)
    sums = np.bincount(cause, gpu_h[wasted])
    dearest = np.argsort(-sums, kind="stable").tolist()
    return {str(names[place]): float(sums[place]) for place in dearest}


def _groups(
    grouping: Grouping,
    result: Result,
    of_jobs: tuple[Floats, Floats, Floats, Floats],
    gpu_h: Floats,
    lost_gpu_h: Floats,
    wasted: NDArray[np.bool_],
) -> dict[str, GroupMetrics]:
    """`of_jobs`: the JCT, wait, slow-down and rho of each."""
    log, names, group = result.attempts, grouping.names, grouping.of
    jct_s, wait_s, slow, fairness = of_jobs
    found = {}
    each_s_jobs, each_s_attempts = _members(group, len(names)), _members(group[log.job], len(names))
    for name, rows, tries in zip(names, each_s_jobs, each_s_attempts, strict=True):
        there = fairness[rows]
        found[name] = GroupMetrics(
            len(rows),
            MetricSpread.of(jct_s[rows]),
            MetricSpread.of(wait_s[rows]),
            MetricSpread.of(slow[rows]),
            float(gpu_h[tries].sum()),
            _goodput(gpu_h[tries], lost_gpu_h[tries], log.passed[tries]),
            float(gpu_h[tries][wasted[tries]].sum()),
            _share(result.passed[rows]),
            MetricSpread.of(there[~np.isnan(there)]),
        )
    return found


def _alike(groups: Mapping[str, GroupMetrics]) -> float:
    """Jain's index over the groups that ran."""
    return jain(np.array([1.0 / group.rho.mean for group in groups.values() if group.rho.mean > 0]))


def _members(group: NDArray[np.intp], groups: int) -> list[NDArray[np.intp]]:
    """The rows of each group."""
    ends = np.cumsum(np.bincount(group, minlength=groups))
    order = np.argsort(group, kind="stable")
    return [order[start:end] for start, end in pairwise([0, *ends.tolist()])]


def _goodput(gpu_h: Floats, lost_gpu_h: Floats, passed: NDArray[np.bool_]) -> float:
    whole = float(gpu_h.sum())
    return float((gpu_h - lost_gpu_h)[passed].sum()) / whole if whole else 0.0


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if len(which) else 0.0
