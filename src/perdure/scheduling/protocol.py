"""What a scheduling policy is: it either ranks jobs whenever something happens, or plans a round ahead.

A policy is a frozen value. What it must remember while it schedules lives in the object that it makes for one run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perdure.scheduling.view import View


class Ranking(Protocol):
    """A ranking policy at work in one run, over the `View` that it was made with.

    What derives from it has to define `order` alone: the other bodies are those of a ranking that keeps no record of
    jobs and whose order no passing of time changes.
    """

    def arrive(self, row: int) -> None:  # noqa: ARG002
        """A job has come, or come back with its next attempt; it waits."""
        return

    def leave(self, row: int) -> None:  # noqa: ARG002
        """The job's attempt is over."""
        return

    @abstractmethod
    def order(self) -> Iterable[int]:
        """The jobs in the order in which they are to be given GPUs; asked for once after each event.

        A preemptive policy names running jobs too: a running job that gets no GPUs is preempted. May be a
        generator: when it goes on, the view tells whether the job that it named last was started.
        """

    def next_change(self) -> int | None:
        """The tick at which the order changes of itself, if no event comes before; None for never."""
        return None


@runtime_checkable
class ExplainingRanking(Protocol):
    """A ranking that knows why jobs wait."""

    def reason(self, row: int) -> str | None:
        """Why a job waits, in a word or two; None for one of which nothing is known."""


class RankingPolicy(Protocol):
    """Gives the waiting jobs, or all jobs, an order of precedence."""

    @property
    def name(self) -> str: ...

    @property
    def preemptive(self) -> bool:
        """Whether GPUs are given again after each event; else a job that runs goes on to its end."""

    @property
    def blocks(self) -> bool:
        """Whether a job that does not fit ends the pass; else it is passed over."""

    def ranking(self, view: View) -> Ranking: ...


class StatelessPolicy(ABC):
    """A ranking policy in one class: its `name`, and the `order` of the jobs by nothing but what the view shows now."""

    blocks: bool = False
    preemptive: bool = False

    @abstractmethod
    def order(self, view: View) -> Iterable[int]:
        """As `Ranking.order`."""

    def ranking(self, view: View) -> Ranking:
        return _Stateless(self, view)


@dataclass(slots=True)
class _Stateless(Ranking):
    policy: StatelessPolicy
    view: View

    def order(self) -> Iterable[int]:
        return self.policy.order(self.view)


class Planner(Protocol):
    """A planning policy at work in one run."""

    def arrive(self, row: int) -> None: ...

    def leave(self, row: int) -> None: ...

    def plan(self) -> Sequence[int]:
        """The jobs that run during the round that begins; together they must fit."""


@runtime_checkable
class PlanningPolicy(Protocol):
    """Decides at the beginning of each round who runs until the next."""

    @property
    def name(self) -> str: ...

    @property
    def round_s(self) -> float: ...

    def planner(self, view: View) -> Planner: ...


Policy = RankingPolicy | PlanningPolicy
