"""Submit the successor when the link ends: no overlap ever, and the whole wait as an interruption."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.succession.planners.terms import until_the_end
from perdure.succession.protocol import Decision, View


@dataclass(frozen=True, slots=True)
class Reactive:
    name: str = "reactive"

    def decide(self, view: View) -> Decision:
        return until_the_end(view, "the link still runs")
