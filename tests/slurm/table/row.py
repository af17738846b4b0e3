"""One row of the failure table: a situation on a real Slurm, and what must come of it.

A row is a generator over a `Stage`: up to its first ``yield`` it submits its jobs and returns at once; then it waits
and asserts. So the rows of a wave have their jobs in the queue at the same time. The first line of its docstring is the
situation as the page has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.slurm.table.stage import Stage

Play = Callable[["Stage"], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """`quick` rows run in every landing; those that are `alone` change the cluster and share it with no other row."""

    group: str
    play: Play
    quick: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        return f"{self.group}-{self.play.__name__}".replace("_", "-").replace(" ", "-")

    @property
    def situation(self) -> str:
        return (self.play.__doc__ or self.name).splitlines()[0].rstrip(".")


class Group:
    """Rows of one kind, in the order of the page."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[Row] = []

    def row(self, *, quick: bool = False, alone: bool = False) -> Callable[[Play], Play]:
        """Enter the decorated generator as a row."""

        def enter(play: Play) -> Play:
            self.rows.append(Row(self.title, play, quick, alone))
            return play

        return enter
