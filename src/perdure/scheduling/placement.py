"""Placements: on which nodes a gang gets its GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

Share = tuple[int, int]  # a node, and how many of its GPUs


class Room(Protocol):
    """The GPUs of a cluster in one run, and who has them."""

    @property
    def free_gpus(self) -> int: ...

    def take(self, row: int, gpus: int, now: int) -> bool:
        """Give the job its gang, all of it or nothing."""

    def retake(self, row: int, shares: tuple[Share, ...]) -> bool:
        """Give the job these very GPUs, if they are free."""

    def give_back(self, row: int) -> tuple[Share, ...]:
        """Take back what the job has, and say what it was."""

    def first_node(self, row: int) -> int:
        """The first node of a job that has GPUs; -1 where GPUs are only counted."""

    def next_change(self) -> int | None:
        """The tick at which a job that was refused may be given what it was refused; None for no such tick."""


@dataclass(slots=True)
class Counted:
    """GPUs that are only counted: any free ones will do."""

    free_gpus: int
    held: dict[int, int] = field(default_factory=dict)

    def take(self, row: int, gpus: int, now: int) -> bool:  # noqa: ARG002
        if gpus > self.free_gpus:
            return False
        self.free_gpus -= gpus
        self.held[row] = gpus
        return True

    def retake(self, row: int, shares: tuple[Share, ...]) -> bool:
        return self.take(row, sum(gpus for _, gpus in shares), 0)

    def give_back(self, row: int) -> tuple[Share, ...]:
        gpus = self.held.pop(row)
        self.free_gpus += gpus
        return ((-1, gpus),)

    def first_node(self, row: int) -> int:  # noqa: ARG002
        return -1

    def next_change(self) -> int | None:
        return None
