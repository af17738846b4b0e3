"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.keyed import Arrivals
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Fifo:
    """Start jobs in the order in which they came.

    With `blocks` a job that does not fit holds up all behind it; else it is passed over (first that fits).
    """

    blocks: bool = True
    preemptive: bool = False

    @property
    def name(self) -> str:
        return "fifo" if self.blocks else "fjf"

    def ranking(self, view: View) -> Arrivals:
        return Arrivals(view)
