"""The room that passes give out: what is free now, and, for a backfill cycle, how much will be free at each tick.

`CountedSpace` counts GPUs, wherever they are; all partitions share them. `node_space` knows nodes.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from perdure.scheduling.backfill import Forecast
from perdure.scheduling.slurm.pass_state import PassState


class BackfillPlan(Protocol):
    """Slurm's node_space: what is free besides running jobs and reservations, during one backfill cycle."""

    def earliest(self, row: int, partition: int, length: int) -> int | None:
        """The first tick from which a job fits for `length` ticks; None if nothing that is known makes room for it."""

    def offer(self, row: int) -> bool:
        """Offer the job what was found for it, in case it is named next; False where that is not free."""

    def run(self, row: int, end: int) -> None:
        """The job runs, until then as far as is known."""

    def reserve(self, row: int, start: int, end: int) -> None:
        """Take what was found for the job, for that time, rounded to the resolution."""


class Space(Protocol):
    """What is free now."""

    def offer(self, row: int, partition: int, closed: Set[int]) -> bool:
        """Give the job access to what its partition has besides the closed ones; False where that is not enough."""

    def settle(self, row: int) -> None:
        """A job that was offered room has been started, or not."""

    def closed_by(self, partition: int) -> Set[int]:
        """The partitions in which nobody is started any more in a pass in which a job of this one found no room."""

    def plan(self, state: PassState, resolution: int, end_window: int) -> BackfillPlan:
        """Reservations are rounded to the resolution; where nodes are known, ends in a window are taken together."""


@dataclass(frozen=True, slots=True)
class CountedSpace:
    """One pool of GPUs for all partitions: one that finds no room closes all, for there is no room elsewhere."""

    partitions: int

    def offer(self, row: int, partition: int, closed: Set[int]) -> bool:  # noqa: ARG002
        return True  # the loop counts

    def settle(self, row: int) -> None:
        pass

    def closed_by(self, partition: int) -> Set[int]:  # noqa: ARG002
        return set(range(self.partitions))

    def plan(self, state: PassState, resolution: int, end_window: int) -> BackfillPlan:  # noqa: ARG002
        return CountedPlan(state, resolution)


class CountedPlan:
    """GPUs that will be free, tick by tick.

    Slurm rounds both ends of a reservation down. Here the end is: to round the beginning would take GPUs twice, from
    the running job that still holds them and for the reservation that waits for them, where Slurm takes the same nodes.
    """

    def __init__(self, state: PassState, resolution: int) -> None:
        view, self.resolution = state.view, resolution
        self.view = view
        self.forecast = Forecast(view.now, view.free_gpus)
        for row in view.running:
            self.forecast.add(state.expected_end(row), view.gpus[row])

    def earliest(self, row: int, partition: int, length: int) -> int:  # noqa: ARG002
        return self.forecast.earliest(self.view.gpus[row], length)

    def offer(self, row: int) -> bool:  # noqa: ARG002
        return True

    def run(self, row: int, end: int) -> None:
        self.forecast.reserve(self.view.now, end - self.view.now, self.view.gpus[row])

    def reserve(self, row: int, start: int, end: int) -> None:
        rounded = end - end % self.resolution
        length = (rounded if rounded > start else end) - start
        self.forecast.reserve(start, length, self.view.gpus[row])
