"""One link and its successor: what a planner does with it, and what that costs.

A link runs from `t0` to its walltime's end. A successor submitted at s waits W(s): where it starts after the end, the
work is interrupted; where it starts before, both hold GPUs. Exactly one of the two is above 0. A successor that starts
early takes no work over before the end: it waits there for the last checkpoint. A link may die before its walltime is
over, which nobody foresees: its successor is submitted then at the latest, and everything counts from then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.succession.protocol import Planner
from perdure.succession.sightings import Sightings, Terms
from perdure.succession.wait_table import SuccessorWaits

Floats = NDArray[np.float64]
SEAMLESS_S = 60.0  # a shorter gap counts as no interruption


@dataclass(frozen=True, slots=True)
class Handover:
    """Episodes as columns of one length: when the successor was submitted, and what that led to; seconds."""

    began_s: Floats
    submitted_s: Floats
    interruption_s: Floats
    overlap_s: Floats

    def cost_s(self, overlap_cost: float) -> Floats:
        """Of each episode, in seconds of interruption."""
        return self.interruption_s + overlap_cost * self.overlap_s

    @property
    def seamless_share(self) -> float:
        return float((self.interruption_s < SEAMLESS_S).mean()) if len(self.began_s) else 1.0


@dataclass(frozen=True, slots=True)
class Links:
    """Episodes of one walltime on the grid of a wait table: the rows at which each begins and ends."""

    truth: SuccessorWaits
    column: int
    length: int  # steps of the grid that a walltime has
    first: NDArray[np.intp]
    last: NDArray[np.intp]

    @classmethod
    def of(cls, truth: SuccessorWaits, column: int, length_s: float, every_s: float) -> Links:
        """All episodes that fit on the grid, one `every_s`."""
        step_s = float(truth.instants_s[1] - truth.instants_s[0])
        length = round(length_s / step_s)
        first = np.arange(0, len(truth.instants_s) - length, max(1, round(every_s / step_s)))
        return cls(truth, column, length, first, first + length)

    @property
    def length_s(self) -> float:
        return float(self.length * (self.truth.instants_s[1] - self.truth.instants_s[0]))

    def within(self, begin_s: float, end_s: float) -> Links:
        """Those that begin and end in a stretch of time."""
        begins, ends = self.truth.instants_s[self.first], self.truth.instants_s[self.last]
        kept = (begins >= begin_s) & (ends <= end_s)
        return replace(self, first=self.first[kept], last=self.last[kept])

    def dying(self, rng: Generator) -> Links:
        """The same, each of which dies at a step of its walltime that is drawn evenly."""
        return replace(self, last=self.first + rng.integers(1, self.length, len(self.first)))

    def late_s(self, episode: int, row: int) -> float:
        """How long after the end of its link a successor starts that is submitted at a row; below 0 before the end."""
        ends_s = self.truth.instants_s[self.last[episode]]
        return float(self.truth.instants_s[row] + self.truth.wait_s[row, self.column] - ends_s)

    def submitting(self, rows: NDArray[np.intp]) -> Handover:
        """What it leads to when the successor of each link is submitted at a row of the grid."""
        at_s, ends_s = self.truth.instants_s[rows], self.truth.instants_s[self.last]
        late_s = at_s + self.truth.wait_s[rows, self.column] - ends_s
        return Handover(self.truth.instants_s[self.first], at_s, np.maximum(late_s, 0.0), np.maximum(-late_s, 0.0))

    def oracle(self, overlap_cost: float) -> Handover:
        """The best that can be done on the grid, knowing all waits; of equally good instants the latest."""
        rows = np.maximum(self.last[:, None] - np.arange(self.length + 1)[None], self.first[:, None])
        ends_s = self.truth.instants_s[self.last][:, None]
        late_s = self.truth.instants_s[rows] + self.truth.wait_s[rows, self.column] - ends_s
        cost = np.where(late_s >= 0, late_s, -overlap_cost * late_s)
        return self.submitting(np.take_along_axis(rows, cost.argmin(axis=1)[:, None], axis=1)[:, 0])

    def played_by(self, planner: Planner, seen: Sightings, terms: Terms) -> Handover:
        """What a planner does with each link. Raises `InputError` for one that breaks the protocol."""
        ends = zip(self.first.tolist(), self.last.tolist(), strict=True)
        rows = [self.submits_at(planner, seen, terms, first, last) for first, last in ends]
        return self.submitting(np.array(rows, np.intp))

    def submits_at(self, planner: Planner, seen: Sightings, terms: Terms, first: int, last: int) -> int:
        """The row at which a planner submits the successor of a link that runs from one row to another."""
        row = first
        began_s, ends_s = float(seen.instants_s[first]), float(seen.instants_s[first + self.length])
        while row < last:
            decision = planner.decide(seen.view(row, began_s, ends_s, terms))
            if decision.submit:
                return row
            if decision.again_at <= seen.instants_s[row]:
                raise InputError(f"planner {planner.name!r}", "it asks to be asked again at once", "Fix its again_at")
            row = min(last, max(row + 1, int(np.searchsorted(seen.instants_s, decision.again_at))))
        return last
