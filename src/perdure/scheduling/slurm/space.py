"""The room that passes give out: what is free now, and, for a backfill cycle, what will be free when.

`Counted` counts GPUs, wherever they are; all partitions share them.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from perdure.scheduling.backfill import Forecast
from perdure.scheduling.slurm.ledger import Ledger


class Plan(Protocol):
    """Slurm's node_space: what is free beside running jobs and reservations, during one backfill cycle."""

    def earliest(self, row: int, partition: int, length: int) -> int | None:
        """The first tick from which a job fits for so long; None where nothing that is known makes room for it."""

    def offer(self, row: int) -> bool:
        """Let the job be given what was found for it, if it is named next; False where that is not free."""

    def run(self, row: int, end: int) -> None:
        """The job runs, until then as far as is known."""

    def reserve(self, row: int, start: int, end: int) -> None:
        """Take what was found for the job, for that time."""


class Space(Protocol):
    """What is free now."""

    def offer(self, row: int, partition: int, closed: Set[int]) -> bool:
        """Let a job be given what its partition has beside that of the closed ones; False where that is not enough."""

    def sharing(self, partition: int) -> Set[int]:
        """The partition and those that have nodes of it."""

    def plan(self, ledger: Ledger) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Counted:
    """One pool of GPUs for all partitions."""

    partitions: int

    def offer(self, row: int, partition: int, closed: Set[int]) -> bool:  # noqa: ARG002
        return True  # the loop counts

    def sharing(self, partition: int) -> Set[int]:  # noqa: ARG002
        return set(range(self.partitions))

    def plan(self, ledger: Ledger) -> Plan:
        return CountedPlan(ledger)


class CountedPlan:
    """GPUs that will be free, tick by tick."""

    def __init__(self, ledger: Ledger) -> None:
        view = self.view = ledger.view
        self.forecast = Forecast(view.now, view.free_gpus)
        for row in view.running:
            self.forecast.add(ledger.expected_end(row), view.gpus[row])

    def earliest(self, row: int, partition: int, length: int) -> int:  # noqa: ARG002
        return self.forecast.earliest(self.view.gpus[row], length)

    def offer(self, row: int) -> bool:  # noqa: ARG002
        return True

    def run(self, row: int, end: int) -> None:
        self.reserve(row, self.view.now, end)

    def reserve(self, row: int, start: int, end: int) -> None:
        self.forecast.reserve(start, end - start, self.view.gpus[row])
