"""Whom a window of attempts accuses, by name, after everybody's word was weighed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.blame.builders.attempts import AttemptRow, attempt_window, path_of, with_places
from perdure.blame.builders.named import Component, Named
from perdure.blame.greedy import Greedy
from perdure.blame.protocol import Solver
from perdure.blame.verdict import Kind, Suspect
from perdure.blame.witnesses import attested

LIVE = Greedy(surcharge=8.0)
"""Asked every few minutes for months, it must err more rarely than when asked once."""
RECENTLY = 0.5
"""Of the window: its end is looked at alone too, for what has just begun to fail did well until then."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """A suspect of a window of attempts."""

    components: tuple[Component, ...]  # that nothing tells apart; the first stands for all
    kind: Kind
    rate: float
    rate_low: float
    rate_high: float
    failed: int  # attempts on it
    passed: int
    users: int  # whose attempts failed
    strength: float

    @property
    def tier(self) -> str:
        return self.components[0][0]

    @property
    def name(self) -> str:
        return self.components[0][1]


def accused(rows: Sequence[AttemptRow], solver: Solver = LIVE) -> tuple[Accusation, ...]:
    """Whom these attempts accuse, the surest first."""
    if not any(row.failed for row in rows):
        return ()
    rows = with_places(rows)
    found = attempt_window(rows)
    return tuple(_accusations(found, solver.solve(found.window), rows))


def accused_by(now: float, length_s: float, rows: Sequence[AttemptRow], solver: Solver = LIVE) -> list[Accusation]:
    """Whom the window that ends `now` accuses, or its second half; of what both accuse, the stronger accusation."""
    recently = [row for row in rows if row.end_s > now - RECENTLY * length_s]
    both = [*accused(rows, solver), *accused(recently, solver)]
    found: list[Accusation] = []
    for each in sorted(both, key=lambda one: -one.strength):
        if not any(set(each.components) & set(other.components) for other in found):
            found.append(each)
    return found


def _accusations(found: Named, suspects: Sequence[Suspect], rows: Sequence[AttemptRow]) -> Iterator[Accusation]:
    for suspect in suspects:
        alike = [found.components[one] for one in (suspect.component, *suspect.equivalent)]
        components = tuple(one for one in alike if attested(one, rows))
        if components:
            here = [row for row in rows if components[0] in path_of(row)]
            failed = [row for row in here if row.failed]
            yield Accusation(
                components, suspect.kind, suspect.rate, suspect.rate_low, suspect.rate_high,
                len(failed), len(here) - len(failed), len({row.user for row in failed}), suspect.strength,
            )  # fmt: skip
