"""The protocol of scheduling policies: a policy ranks jobs whenever something happens, or plans a round ahead.

A policy is a frozen value: its parameters, nothing else. What it must remember while it schedules lives in the object
that it makes for one run, so one policy can serve many runs at once and two runs of it are the same.

A new policy is one file with one class, and a line in `policies.POLICIES`: `StatelessPolicy` where the view tells all,
`keyed.KeyedPolicy` for preemption by a key, `RankingPolicy` with a `Ranking` of its own where something must be
remembered. The laws in `perdure.simulation.checks` can be run against it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perdure.scheduling.view import View


class Ranking(Protocol):
    """A ranking policy at work in one run, over the `View` that it was made with.

    What derives from it has to define `order` alone: the other bodies are those of a ranking that keeps no record of
    jobs and whose order no passing of time changes.

    At one instant the caller reports all ends, then all arrivals, and asks for the order once. A job that is preempted
    or started is not reported: the view shows it.
    """

    def arrive(self, row: int) -> None:  # noqa: ARG002
        """A job has come, or come back with its next attempt; it waits."""
        return

    def leave(self, row: int) -> None:  # noqa: ARG002
        """The job's attempt is over. If the job has a next attempt, it arrives again, perhaps much later."""
        return

    @abstractmethod
    def order(self) -> Iterable[int]:
        """The jobs in the order in which they are to be given GPUs; asked for once after each event.

        A policy that does not preempt names waiting jobs only. A preemptive one names running jobs too: the GPUs of all
        are given again in this order, and a running job that gets none is preempted. A running job that is not named
        keeps its GPUs. No job is named twice.

        May be a generator: when it goes on, the view tells whether the job that it named last was started.
        """

    def next_change(self) -> int | None:
        """The tick at which the order changes of itself, if no event comes before; None for never.

        Asked for after each pass. A tick in the past or at `view.now` would make the loop stand still: return a later
        one.
        """
        return None


@runtime_checkable
class ExplainingRanking(Protocol):
    """A ranking that knows why jobs wait.

    Where a ranking is one, `reason` names what holds a job that a replay never starts.
    """

    def reason(self, row: int) -> str | None:
        """Why a job waits, in a word or two; None for one of which nothing is known."""


Span = tuple[int, int]  # ticks: since when a job ran, and until when


@runtime_checkable
class ResumingRanking(Protocol):
    """A ranking that can take up jobs in the middle of their lives, as after a restart of whoever runs it.

    Others are told that the jobs arrive, in the order in which they came.
    """

    def resume(self, ran: Mapping[int, Sequence[Span]]) -> None:
        """Take up jobs, each with the spans in which it ran, the earliest first; the last span of one that runs ends
        now. In place of their arrivals, before anything else is asked.
        """


class RankingPolicy(Protocol):
    """Gives the waiting jobs, or all jobs, an order of precedence; the loop gives GPUs in that order."""

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
    """A ranking policy in one class: its `name`, and the `order` of the jobs by nothing but what the view shows now.

    >>> class LargestFirst(StatelessPolicy):
    ...     name = "largest-first"
    ...     def order(self, view):
    ...         return sorted(view.waiting, key=lambda row: -view.gpus[row])
    >>> view = View([1, 4], [0, 0], [9, 9], [0, 0], [0, 0], [0, 0], ("",), ("",), total_gpus=4, ticks_per_s=1)
    >>> view.waiting = {0: None, 1: None}
    >>> LargestFirst().ranking(view).order()
    [1, 0]
    """

    blocks: bool = False
    preemptive: bool = False

    @abstractmethod
    def order(self, view: View) -> Iterable[int]:
        """As `Ranking.order`; may sort each time, for it is asked once an event."""

    def ranking(self, view: View) -> Ranking:
        return _Stateless(self, view)


@dataclass(slots=True)
class _Stateless(Ranking):
    policy: StatelessPolicy
    view: View

    def order(self) -> Iterable[int]:
        return self.policy.order(self.view)


class Planner(Protocol):
    """A planning policy at work in one run; arrivals and ends are reported as to a `Ranking`."""

    def arrive(self, row: int) -> None: ...

    def leave(self, row: int) -> None: ...

    def plan(self) -> Sequence[int]:
        """The jobs that run during the round that begins; together they must fit. Running jobs that are not named are
        preempted.
        """


@runtime_checkable
class SettlingPlanner(Protocol):
    """A planner that can tell when rounds need no plan; others plan each round."""

    def is_settled(self) -> bool:
        """Whether the next plan will name the same jobs again if no job comes or ends before it."""


@runtime_checkable
class PlanningPolicy(Protocol):
    """Decides at the beginning of each round of `round_s` seconds who runs until the next.

    Between rounds nothing starts: a job that comes waits for the next round, and GPUs of one that ends stay idle. Use
    it where an allocation is costly to find; rankings react at once.
    """

    @property
    def name(self) -> str: ...

    @property
    def round_s(self) -> float: ...

    def planner(self, view: View) -> Planner: ...


Policy = RankingPolicy | PlanningPolicy
