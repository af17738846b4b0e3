"""Room: the GPUs of a cluster in one run, and who has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from perdure.scheduling.placement.resources import Stock

Share = tuple[int, int]  # a node, -1 where GPUs are only counted, and how many of its GPUs
Shares = tuple[Share, ...]


class Room(Protocol):
    """The GPUs of a cluster in one run, and who has them.

    The loop alone changes it. A preemptive pass gives back the gangs that are to yield and takes gangs in the new
    order; one that yields retakes its very GPUs at its turn if nobody took them, as if nothing had happened.
    """

    @property
    def free_gpus(self) -> int: ...

    @property
    def held(self) -> Mapping[int, Shares]:
        """What each job has, in the order in which the nodes were chosen."""

    @property
    def avoided(self) -> Mapping[int, frozenset[int]]:
        """Nodes that a job is kept off, of jobs that are."""

    @property
    def n_nodes(self) -> int:
        """0 where GPUs are only counted."""

    @property
    def stock(self) -> Stock | None:
        """What is free besides GPUs; None where GPUs alone are counted."""

    def take(self, row: int, gpus: int, now: int) -> bool:
        """Give the job its gang, all of it or nothing; whether it got it. `now` is the tick, for what waits for
        locality.
        """

    def avoid(self, row: int, gpus: int, nodes: Iterable[int]) -> None:
        """Keep the job off these nodes too; nothing changes if it then had no place in an empty cluster."""

    def retake(self, row: int, shares: Shares) -> bool:
        """Give the job these very GPUs, if they are free; whether they were."""

    def give_back(self, row: int) -> Shares:
        """Take back what the job has, and say what it was."""

    def next_change(self, now: int) -> int | None:
        """The tick after `now` at which a refused job may be given what it was refused; None for no such tick."""


@dataclass(slots=True)
class Counted:
    """GPUs that are only counted: any free ones will do. Nodes cannot be avoided, for there are none."""

    free_gpus: int
    held: dict[int, Shares] = field(default_factory=dict)
    avoided: dict[int, frozenset[int]] = field(default_factory=dict)
    n_nodes: int = 0
    stock: Stock | None = None

    def take(self, row: int, gpus: int, now: int) -> bool:  # noqa: ARG002
        if gpus > self.free_gpus or not (self.stock is None or self.stock.take(row, gpus)):
            return False
        self.free_gpus -= gpus
        self.held[row] = ((-1, gpus),)
        return True

    def avoid(self, row: int, gpus: int, nodes: Iterable[int]) -> None:
        pass

    def retake(self, row: int, shares: Shares) -> bool:
        return self.take(row, sum(gpus for _, gpus in shares), 0)

    def give_back(self, row: int) -> Shares:
        shares = self.held.pop(row)
        self.free_gpus += shares[0][1]
        if self.stock is not None:
            self.stock.give_back(row, shares)
        return shares

    def next_change(self, now: int) -> int | None:  # noqa: ARG002
        return None
