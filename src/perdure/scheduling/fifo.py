"""First in, first out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.scheduling.protocol import StatelessPolicy
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Fifo(StatelessPolicy):
    """Start jobs in the order in which they came.

    With `blocks` a job that does not fit holds up all behind it (``fifo``): no job starves, GPUs stay idle in front of
    wide jobs. Else it is passed over (``fjf``, first that fits): GPUs are used, and wide jobs can starve. `backfill` is
    the middle way, where time limits are known.
    """

    blocks: bool = True

    @property
    def name(self) -> str:
        return "fifo" if self.blocks else "fjf"

    def order(self, view: View) -> Iterable[int]:
        return tuple(view.waiting)
