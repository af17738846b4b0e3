"""Gavel as a policy: fractions of time from a linear program, and rounds that give each job its fractions in turn.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
section 5; details after its public simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Protocol

import numpy as np

from perdure.scheduling.draws import PythonDraws
from perdure.scheduling.elastic import (
    ElasticJob,
    ElasticView,
    Plan,
    SelectivePolicy,
    Share,
    is_placed,
    leaves_no_hole,
    share_of,
)
from perdure.scheduling.gavel import Floats, GavelRound


@dataclass(frozen=True, slots=True)
class FractionRequest:
    """What fractions are asked for: jobs by their rows, and as linear programs see them."""

    view: ElasticView
    rows: Sequence[int]
    cluster: GavelRound

    @property
    def jobs(self) -> Sequence[ElasticJob]:
        return [self.view.jobs[row] for row in self.rows]

    @property
    def left(self) -> Floats:
        """The steps that are left of each job (n_jobs,)."""
        return np.array([job.work * max(job.left, 1e-12) for job in self.jobs])


Unit = tuple[int, ...]
"""A job by its row, or two that share GPUs, the smaller row first."""


class Objective(Protocol):
    """What the fractions of time are to make best. An object is of one run: it may remember."""

    def __call__(self, asked: FractionRequest, /) -> Floats | Mapping[Unit, Floats]:
        """Fractions (n_jobs, n_types), or where jobs share GPUs those of each unit (n_types,)."""


@dataclass(slots=True)
class _Account:
    """What a unit was to get and got since fractions were last computed, by GPU type (n_types,)."""

    received_s: Floats
    lacks_s: Floats  # over all of its time: what it should have received and did not
    fraction: Floats | None = None  # None: it came since


@dataclass(slots=True)
class Gavel:
    """Fractions are computed again when jobs come or go, at most every `reset_s`; until then newcomers hold a place.

    A job runs on the GPUs that it asks for, with its batch; in a round on GPUs of one type. Types are filled one after
    the other, the fastest first, with those jobs first that lack most: by fraction over time received, then what they
    lack, then fraction. GPUs to spare go to whoever can use them. With `blind` all types count as equal, and their
    order is drawn in each round. Two jobs that share GPUs have a fraction of their own, and wait for their turn like
    any job.
    """

    name: str
    objective: Objective
    blind: bool = False
    only_granted: bool = False  # no GPUs to spare for jobs without a fraction
    round_s: float = 360.0
    reset_s: float = 1920.0
    adaptive: bool = False
    pipelines: bool = True
    seed: int = 0
    _accounts: dict[Unit, _Account] = field(default_factory=dict)
    _last_s: float = 0.0
    _computed_s: float | None = None
    _changed: bool = True
    _turns: bool = True  # jobs may take them
    _draw: PythonDraws = field(init=False)

    def __post_init__(self) -> None:
        self._draw = PythonDraws(self.seed + 5)  # the public simulator's stream

    def check(self, view: ElasticView) -> None:
        if isinstance(self.objective, SelectivePolicy):
            self.objective.check(view)

    def plan(self, view: ElasticView) -> Plan:
        self._note(view)
        due = self._computed_s is None or view.now_s - self._computed_s >= self.reset_s
        if self._changed and due:
            self._compute(view)
        plan: dict[int, Share] = {}
        for place in self._order(view):
            if len(plan) == len(view.jobs):
                break
            kind, given, left, tiled = view.types[place], list[int](), view.types[place].gpus, True
            for unit in self._lacking(view, place):
                gpus = view.jobs[unit[0]].asked_gpus
                if gpus > left or any(row in plan for row in unit):
                    continue
                tiles = tiled and leaves_no_hole(gpus, kind.gpus_per_node)
                if tiles or is_placed([*given, gpus], kind):
                    given.append(gpus)
                    left, tiled = left - gpus, tiles
                    for row, other in zip(unit, unit[1:] + unit[:1], strict=True):
                        plan[row] = share_of(gpus, place, kind)._replace(shared_with=None if other == row else other)
        return {row: share for row, share in plan.items() if self._accounts[row,].fraction is not None}

    def settled_until_s(self, view: ElasticView) -> float:
        """As `SettlingPolicy`: jobs of one GPU that have all of their time on one type never take turns."""
        if self._turns or self._computed_s is None:
            return view.now_s
        return self._computed_s + self.reset_s if self._changed else inf

    def _note(self, view: ElasticView) -> None:
        """Who came and went, and what each received in the round that is over."""
        known = {row for unit in self._accounts for row in unit}
        gone, come = known - view.jobs.keys(), view.jobs.keys() - known
        self._changed |= bool(gone or come)
        for unit in [unit for unit in self._accounts if gone.intersection(unit)] if gone else []:
            del self._accounts[unit]
        for row, job in view.jobs.items():
            if row in come:
                self._accounts[row,] = self._new(len(view.types))
                self._turns |= job.asked_gpus > 1
            elif job.share is not None:
                unit = (row,) if job.share.shared_with is None else (row, job.share.shared_with)
                if unit in self._accounts:  # of a pair once; one whose partner is gone ran alone for the rest
                    self._accounts[unit].received_s[job.share.gpu_type] += view.now_s - self._last_s
        self._last_s = view.now_s

    def _new(self, types: int) -> _Account:
        return _Account(np.full(types, self.round_s / 2), np.zeros(types))

    def _compute(self, view: ElasticView) -> None:
        rows = list(view.jobs)
        passed_s = 0.0 if self._computed_s is None else view.now_s - self._computed_s
        for account in self._accounts.values():
            due_s = 0.0 if account.fraction is None else account.fraction * passed_s
            account.lacks_s += due_s - (account.received_s - self.round_s / 2)
            account.received_s[:] = self.round_s / 2
        found = self.objective(FractionRequest(view, rows, self._cluster(view, rows)))
        if not isinstance(found, Mapping):
            found = {(row,): fraction for row, fraction in zip(rows, found, strict=True)}
        self._accounts = {unit: account for unit, account in self._accounts.items() if len(unit) == 1}
        for unit, fraction in found.items():
            if unit not in self._accounts:
                self._accounts[unit] = self._new(len(view.types))
            self._accounts[unit].fraction = fraction
        self._computed_s, self._changed = view.now_s, False
        self._turns = self.blind or not self._is_whole(view)

    def _is_whole(self, view: ElasticView) -> bool:
        """Whether each job is of one GPU, and has all of its time on one type or none."""
        fraction = np.array([account.fraction for account in self._accounts.values()])
        alone = all(len(unit) == 1 and view.jobs[unit[0]].asked_gpus == 1 for unit in self._accounts)
        granted = fraction.sum(axis=0) <= [kind.gpus for kind in view.types]
        return alone and bool(((fraction == 0) | (fraction == 1)).all() and granted.all())

    def _cluster(self, view: ElasticView, rows: Sequence[int]) -> GavelRound:
        throughput = np.array([view.jobs[row].work / view.jobs[row].alone_s for row in rows])
        scale = np.array([float(view.jobs[row].asked_gpus) for row in rows])
        found = GavelRound.of(throughput, np.array([float(kind.gpus) for kind in view.types]), scale)
        return found.blind() if self.blind else found

    def _order(self, view: ElasticView) -> Sequence[int]:
        """The types in the order in which they are filled."""
        places = list(view.fastest_first)
        if self.blind:
            self._draw.shuffle(places)
        return places

    def _lacking(self, view: ElasticView, place: int) -> Sequence[Unit]:
        """Units that may run on this type, most lacking first."""
        ranked = []
        for unit, account in self._accounts.items():
            if not all(isfinite(view.jobs[row].alone_s[place]) for row in unit):
                continue
            fraction = 0.0 if account.fraction is None else float(account.fraction[place])
            if fraction > 0 or (len(unit) == 1 and not self.only_granted):
                ranked.append(
                    (fraction / float(account.received_s[place]), float(account.lacks_s[place]), fraction, unit)
                )
        ranked.sort(key=lambda entry: entry[:3], reverse=True)
        return [unit for *_, unit in ranked]
