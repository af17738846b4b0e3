"""Submit as early as like jobs waited recently on average."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.succession.planners.terms import by_wait, until_the_end
from perdure.succession.protocol import Decision, View


@dataclass(frozen=True, slots=True)
class Average:
    """The price of overlap changes nothing here."""

    name: str = "average"

    def decide(self, view: View) -> Decision:
        if not view.recent:
            return until_the_end(view, "no wait of a like job is known")
        return by_wait(view, sum(view.recent) / len(view.recent), f"the mean of the last {len(view.recent)} waits")
