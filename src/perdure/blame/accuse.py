"""Accusations: the suspects of a window of attempts, by name, that more than one source attests.

Three steps, all pure: build the window from attempts (`builders.attempts`), let a solver name suspects, and drop every
name that rests on the word of one user (`witnesses`). Whether people see a name is decided over several windows
(`standing`).
"""

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
    """A suspect of a window of attempts.

    The rates are of attempts that cross the component (partial: of those concerned) and fail by its fault, with a 95 %
    interval. `failed`, `passed` and `users` count the attempts on the first component, whatever they failed of: they
    are what an operator can check in the accounting. `strength` is in the unit of the solver (nats for `LIVE`).
    """

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
        """Of the first component: ``code``, ``user``, ``node``, ``gpu``, ``storage``, ``image``, or a switch tier."""
        return self.components[0][0]

    @property
    def name(self) -> str:
        """Of the first component, as its source writes it (``gpu03``; of a code, ``USER/JOB``)."""
        return self.components[0][1]


def accused(rows: Sequence[AttemptRow], solver: Solver = LIVE) -> tuple[Accusation, ...]:
    """The suspects of these attempts that are attested, the surest first; none without a failure.

    Of components that cross the same attempts, those that are not attested are left out one by one: a node on which one
    user alone ran is equivalent to that user, and only the user remains.

    >>> from perdure.blame.builders.attempts import AttemptRow
    >>> def row(k, node): return AttemptRow(float(k), f"user{k % 5}", "train", (node,), failed=node == "n1")
    >>> [(one.tier, one.name, one.failed, one.users) for one in accused([row(k, f"n{k % 4}") for k in range(80)])]
    [('node', 'n1', 20, 5)]
    """
    if not any(row.failed for row in rows):
        return ()
    rows = with_places(rows)
    found = attempt_window(rows)
    return tuple(_accusations(found, solver.solve(found.window), rows))


def accused_by(now: float, length_s: float, rows: Sequence[AttemptRow], solver: Solver = LIVE) -> list[Accusation]:
    """The accusations of the window that ends `now` and of its second half; of what both accuse, the stronger one.

    A component that began to fail ten minutes ago passed most attempts of an hour: its rate in the second half alone is
    twice that of the whole window. `now` and `length_s` are in seconds, on the clock of `AttemptRow.end_s`.
    """
    recently = [row for row in rows if row.end_s > now - RECENTLY * length_s]
    both = [*accused(rows, solver), *accused(recently, solver)]
    found: list[Accusation] = []
    for each in sorted(both, key=lambda one: -one.strength):
        if not any(set(each.components) & set(other.components) for other in found):
            found.append(each)
    return found


def _accusations(found: Named, suspects: Sequence[Suspect], rows: Sequence[AttemptRow]) -> Iterator[Accusation]:
    """Give suspects their names and counts, and keep the attested ones."""
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
