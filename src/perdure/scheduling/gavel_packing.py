"""Objectives of Gavel's fractions where jobs may share GPUs, and Gandiva as Gavel models it: one object each.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
section 4; Gandiva's pairs after its public simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from perdure.scheduling import gavel_packed
from perdure.scheduling.draws import PythonDraws
from perdure.scheduling.elastic import ElasticView
from perdure.scheduling.gavel import Allocation, Floats
from perdure.scheduling.gavel_objectives import AloneTime
from perdure.scheduling.gavel_packed import PackedRound
from perdure.scheduling.gavel_policy import FractionRequest, Unit


def packed_round(asked: FractionRequest) -> PackedRound:
    """The jobs of a request, and their measured pairs that gain from sharing GPUs."""
    pairs = [
        (one, other)
        for one, other in combinations(range(len(asked.rows)), 2)
        if asked.cluster.scale[one] == asked.cluster.scale[other]
    ]
    together = [_together(asked, one, other) for one, other in pairs]
    types = len(asked.view.types)
    return PackedRound(
        asked.cluster, np.array(pairs, np.int64).reshape(-1, 2), np.array(together, float).reshape(-1, 2, types)
    ).worthwhile()


def _together(asked: FractionRequest, one: int, other: int) -> Floats:
    """Throughputs of two jobs beside each other (2, n_types), 0 where that was not measured or does not fit."""
    alone = asked.cluster.throughput[[one, other]]
    return alone * _kept(asked.view, asked.rows[one], asked.rows[other])


def _kept(view: ElasticView, row: int, other: int) -> Floats:
    """What two jobs keep of their speed alone (2, n_types)."""
    kept = np.zeros((2, len(view.types)))
    one, two = view.jobs[row], view.jobs[other]
    for place, kind in enumerate(view.types):
        where = kind.name, one.asked_gpus, -(-one.asked_gpus // kind.gpus_per_node)
        if view.pairs.is_measured(*where, one.application, two.application):
            kept[:, place] = (
                view.pairs.kept(*where, one.application, two.application),
                view.pairs.kept(*where, two.application, one.application),
            )
    return kept


def by_unit(asked: FractionRequest, packed: PackedRound, found: Allocation) -> Mapping[Unit, Floats]:
    """Fractions of each job alone, and of each pair that has some."""
    jobs = len(asked.rows)
    alone: dict[Unit, Floats] = {(row,): found.fractions[place] for place, row in enumerate(asked.rows)}
    pairs = {
        (min(unit), max(unit)): fraction
        for (one, other), fraction in zip(packed.pairs.tolist(), found.fractions[jobs:], strict=True)
        if fraction.max() > 1e-9 and (unit := (asked.rows[one], asked.rows[other]))
    }
    return alone | pairs


@dataclass(frozen=True, slots=True)
class PackedSnapshot:
    """An objective that asks for nothing but the jobs that are there, and their pairs."""

    solve: Callable[[PackedRound], Allocation]

    def __call__(self, asked: FractionRequest) -> Mapping[Unit, Floats]:
        packed = packed_round(asked)
        return by_unit(asked, packed, self.solve(packed))


def makespan(asked: FractionRequest) -> Mapping[Unit, Floats]:
    """All are done as early as can be."""
    packed = packed_round(asked)
    return by_unit(asked, packed, gavel_packed.makespan(packed, asked.left))


def first_come(asked: FractionRequest) -> Mapping[Unit, Floats]:
    """Throughput counts the more, the earlier a job came."""
    packed, submit_s = packed_round(asked), np.array([job.submit_s for job in asked.jobs])
    order = np.argsort(np.argsort(submit_s, kind="stable"))
    return by_unit(asked, packed, gavel_packed.first_come(packed, order))


@dataclass(slots=True)
class PackedFinishTimeFairness:
    """The largest rho is as small as can be, by the same time alone as without pairs."""

    _alone: AloneTime = field(default_factory=AloneTime)

    def __call__(self, asked: FractionRequest) -> Mapping[Unit, Floats]:
        packed, spent_s = packed_round(asked), np.array([asked.view.now_s - job.submit_s for job in asked.jobs])
        found = gavel_packed.finish_time_fairness(packed, spent_s, asked.left, self._alone(asked))
        return by_unit(asked, packed, found)


@dataclass(slots=True)
class RandomPairs:
    """Gandiva as Gavel's simulator has it: where jobs ask for more GPUs than there are, two of a size share by chance.

    All units have the same part of all GPU types. A pair parts once what its two keep, over all types, adds up to less
    than 1, or where it does not fit on one of them.
    """

    seed: int = 0
    _pairs: dict[int, int] = field(default_factory=dict)  # each names the other
    _draw: PythonDraws = field(init=False)

    def __post_init__(self) -> None:
        self._draw = PythonDraws(self.seed)  # the public simulator's stream

    def __call__(self, asked: FractionRequest) -> Mapping[Unit, Floats]:
        view, rows = asked.view, set(asked.rows)
        self._pairs = {
            row: other
            for row, other in self._pairs.items()
            if row in rows and other in rows and _is_worth(_kept(view, min(row, other), max(row, other)))
        }
        crowded = asked.cluster.scale.sum() > asked.cluster.workers.sum()
        if crowded:
            self._pair(view, [row for row in asked.rows if row not in self._pairs])
        units = {self._unit(row) if crowded else (row,) for row in asked.rows}
        return self._even(asked, units)

    def _pair(self, view: ElasticView, left: list[int]) -> None:
        for _ in range(len(left)):
            if len(left) < 2:
                return
            one, other = self._draw.two_of(left)
            if view.jobs[one].asked_gpus == view.jobs[other].asked_gpus:
                left.remove(one)
                left.remove(other)
                self._pairs[one], self._pairs[other] = other, one

    def _unit(self, row: int) -> Unit:
        other = self._pairs.get(row)
        return (row,) if other is None else (min(row, other), max(row, other))

    def _even(self, asked: FractionRequest, units: Iterable[Unit]) -> Mapping[Unit, Floats]:
        """The same part of the cluster for each unit, and no time for jobs alone that share."""
        found: dict[Unit, Floats] = {(row,): np.zeros(len(asked.view.types)) for row in asked.rows}
        chosen = sorted(units)
        for unit in chosen:
            share = asked.cluster.workers / len(chosen) / asked.view.jobs[unit[0]].asked_gpus
            share = share / max(1.0, float(share.sum()))
            runs = np.ones(len(share)) if len(unit) == 1 else (_kept(asked.view, *unit) > 0).all(axis=0)
            found[unit] = np.where(runs, share, 0.0)
        return found


def _is_worth(kept: Floats) -> bool:
    return bool((kept > 0).all() and kept.sum() >= 1.0)
