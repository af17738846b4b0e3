"""What Gavel's fractions of time can be made best for: one object each.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
section 4; AlloX is T. N. Le et al., "AlloX: compute allocation in hybrid clusters", EuroSys 2020; details after Gavel's
public simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from scipy.optimize import linear_sum_assignment

from perdure.errors import InputError
from perdure.scheduling import gavel
from perdure.scheduling.draws import PythonDraws
from perdure.scheduling.elastic import ElasticView
from perdure.scheduling.gavel import Allocation, Floats, GavelRound
from perdure.scheduling.gavel_policy import FractionRequest

# Dollars an hour on demand, Google Cloud, 2020; of these types Gavel's paper speaks.
PRICES: Mapping[str, float] = MappingProxyType({"k80": 0.45, "p100": 1.46, "v100": 2.48})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An objective that asks for nothing but the jobs that are there."""

    solve: Callable[[GavelRound], Allocation]

    def __call__(self, asked: FractionRequest) -> Floats:
        return self.solve(asked.cluster).fractions


def makespan(asked: FractionRequest) -> Floats:
    """All are done as early as can be."""
    return gavel.early_enough(asked.cluster, asked.left).fractions


def first_come(asked: FractionRequest) -> Floats:
    """Throughput counts the more, the earlier a job came."""
    submit_s = np.array([job.submit_s for job in asked.jobs])
    return gavel.first_come(asked.cluster, np.argsort(np.argsort(submit_s, kind="stable"))).fractions


def cheapest(asked: FractionRequest) -> Floats:
    """Throughput for the money; a type without a price costs 1 an hour."""
    price = np.array([PRICES.get(kind.name, 1.0) for kind in asked.view.types])
    return gavel.total_throughput(asked.cluster, price).fractions


@dataclass(slots=True)
class AloneTime:
    """The time that each job would take with its equal share from the start; it adds up as shares change."""

    _so_far_s: dict[int, float] = field(default_factory=dict)
    _before: dict[int, tuple[float, float]] = field(
        default_factory=dict
    )  # steps left, and throughput of an equal share

    def __call__(self, asked: FractionRequest) -> Floats:
        """Seconds (n_jobs,), what is left included."""
        left, share = asked.left, gavel.equal_share(asked.cluster)
        for row, now_left in zip(asked.rows, left.tolist(), strict=True):
            was_left, was_share = self._before.get(row, (now_left, 1.0))
            self._so_far_s[row] = self._so_far_s.get(row, 0.0) + max(was_left - now_left, 0.0) / was_share
        self._before = dict(zip(asked.rows, zip(left.tolist(), share.tolist(), strict=True), strict=True))
        return np.array([self._so_far_s[row] for row in asked.rows]) + left / share


@dataclass(slots=True)
class FinishTimeFairness:
    """The largest rho is as small as can be."""

    _alone: AloneTime = field(default_factory=AloneTime)

    def __call__(self, asked: FractionRequest) -> Floats:
        spent_s = np.array([asked.view.now_s - job.submit_s for job in asked.jobs])
        return gavel.finish_time_fairness(asked.cluster, spent_s, asked.left, self._alone(asked)).fractions


@dataclass(slots=True)
class KeptTypes:
    """First come, first served: a job keeps the type that it first got, the first in the cluster's order with room.

    Where one job ends, the next that waits takes its place. When a type is full, another may leave the list by chance
    in its stead, as in the public simulator.
    """

    seed: int = 0
    _kept: dict[int, int] = field(default_factory=dict)
    _draw: PythonDraws = field(init=False)

    def __post_init__(self) -> None:
        self._draw = PythonDraws(self.seed)  # the public simulator's stream

    def __call__(self, asked: FractionRequest) -> Floats:
        free, needs = asked.cluster.workers.copy(), dict(zip(asked.rows, asked.cluster.scale.tolist(), strict=True))
        queue = [row for row in asked.rows if row not in self._kept]
        for row, place in sorted(self._kept.items()):
            if row in needs:
                free[place] -= needs[row]
                continue
            del self._kept[row]
            if queue and needs[queue[0]] <= free[place]:
                self._keep(queue.pop(0), place, needs, free)
        places = [place for place in reversed(range(len(free))) if free[place] > 0]
        while queue and any(free[place] >= needs[queue[0]] for place in places):
            room = [at for at, place in enumerate(places) if free[place] >= needs[queue[0]]]
            leaves, place = room[self._draw.below(len(room))], places[-1]
            self._keep(queue.pop(0), place, needs, free)
            if free[place] == 0:
                del places[leaves]
        return _all_of(asked, self._kept)

    def _keep(self, row: int, place: int, needs: Mapping[int, float], free: Floats) -> None:
        self._kept[row] = place
        free[place] -= needs[row]


@dataclass(slots=True)
class AlloX:
    """The matching of jobs to (GPU, place from its end) with the least sum of times; who runs stays to its end.

    Of the waiting only the oldest `alpha` are looked at, or as many as there are free GPUs: so long jobs do not starve.
    """

    alpha: float = 0.3
    _kept: dict[int, int] = field(default_factory=dict)

    def check(self, view: ElasticView) -> None:
        """Raises `InputError` for a job of several GPUs."""
        wide = next((job for job in view.jobs.values() if job.asked_gpus > 1), None)
        if wide is not None:
            what = f"it asks for {wide.asked_gpus} GPUs, and AlloX knows jobs of one"
            raise InputError(f"job {wide.name}", what, "Choose another policy, or leave such jobs out")

    def __call__(self, asked: FractionRequest) -> Floats:
        view, rows = asked.view, asked.rows
        self._kept = {row: place for row, place in self._kept.items() if row in view.jobs}
        self._match(view, [row for row in rows if row not in self._kept], asked.cluster)
        return _all_of(asked, self._kept)

    def _match(self, view: ElasticView, waiting: list[int], cluster: GavelRound) -> None:
        """Give the waiting jobs that a free GPU would run first a place."""
        count = cluster.workers.astype(int) - np.bincount(list(self._kept.values()), minlength=len(cluster.workers))
        place = np.repeat(np.arange(len(count)), np.maximum(count, 0))
        waiting = waiting[: max(len(place), int(self.alpha * len(waiting)))]
        if not len(place) or not waiting:
            return
        takes_s = np.array([view.jobs[row].left * view.jobs[row].alone_s for row in waiting])[:, place]
        waited_s = np.array([[view.now_s - view.jobs[row].submit_s] for row in waiting])
        depth = len(waiting)
        cost = np.concatenate([turn * takes_s + waited_s for turn in range(1, depth + 1)], axis=1)
        jobs, columns = linear_sum_assignment(np.nan_to_num(cost, posinf=1e300))
        first: dict[int, tuple[int, int]] = {}  # of each GPU, the job that is last counted from its end
        for job, column in zip(jobs.tolist(), columns.tolist(), strict=True):
            turn, gpu = divmod(column, len(place))
            if gpu not in first or turn > first[gpu][0]:
                first[gpu] = turn, waiting[job]
        for gpu, (_, row) in first.items():
            self._kept[row] = int(place[gpu])


def _all_of(asked: FractionRequest, kept: Mapping[int, int]) -> Floats:
    """All of the time on one type for each job that has one."""
    fractions = np.zeros_like(asked.cluster.throughput)
    for at, row in enumerate(asked.rows):
        if row in kept:
            fractions[at, kept[row]] = 1.0
    return fractions
