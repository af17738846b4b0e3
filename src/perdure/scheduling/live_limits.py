"""A preemptive policy within the limits that it has above a real resource manager: what a what-if may promise of it.

Above a manager it decides at looks, on jobs that have run for a while, and no job is put back for ever. Between two
decisions the manager gives out what becomes free by itself, in the order of the last one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perdure.scheduling.protocol import Ranking, RankingPolicy
from perdure.scheduling.view import View

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """When a running job may make room. Times are seconds."""

    every_s: float = 10.0  # between two decisions
    least_run_s: float = 1800.0  # that a job runs before
    per_job: int = 3  # times that it does, at most
    per_hour: int = 20  # jobs that do in an hour, at most
    away_s: float = 120.0  # that the manager keeps it out of the queue then


@dataclass(frozen=True, slots=True)
class UnderLimits:
    """A preemptive policy that puts nobody back but within the limits."""

    policy: RankingPolicy
    limits: LiveLimits
    blocks: bool = False
    preemptive: bool = True

    @property
    def name(self) -> str:
        return self.policy.name

    def ranking(self, view: View) -> Ranking:
        return _Limited(view, self.limits, self.policy.ranking(view))


@dataclass(slots=True)
class _Limited(Ranking):
    """Names who may not make room now before all others, so that they keep what they have."""

    view: View
    limits: LiveLimits
    inner: Ranking
    times: Counter[int] = field(default_factory=Counter)  # that each job was put back
    recent: deque[int] = field(default_factory=deque)  # ticks at which jobs were
    back: dict[int, int] = field(default_factory=dict)  # the tick from which one that was put back may start
    rank: dict[int, int] = field(default_factory=dict)  # by the last decision
    due: int = 0  # the tick of the next one
    asked: Sequence[int] = ()  # to make room, by the pass under way; some may find that they need not

    def arrive(self, row: int) -> None:
        self.inner.arrive(row)

    def leave(self, row: int) -> None:
        self.inner.leave(row)
        self.rank.pop(row, None)

    def order(self) -> Iterable[int]:
        view, order = self.view, list(self.inner.order())
        self.asked = ()
        order = [row for row in order if row in view.running or self.back.get(row, 0) <= view.now]
        if view.now < self.due:
            waiting = [row for row in order if row in view.waiting]
            return [*view.running, *sorted(waiting, key=lambda row: self.rank.get(row, len(self.rank)))]
        self.due = view.now + self._ticks(self.limits.every_s)
        self.rank = {row: place for place, row in enumerate(order)}
        return self._within_limits(order)

    def next_change(self) -> int | None:
        view = self.view
        self._note_put_back()
        if not view.waiting:
            return self.inner.next_change()
        back = [tick for row, tick in self.back.items() if tick > view.now and row in view.waiting]
        return min([max(self.due, view.now + 1), *back])

    def _within_limits(self, order: Sequence[int]) -> list[int]:
        """The order with those in front that are to keep their GPUs."""
        view, kept = self.view, {row for row in self.view.running if not self._may_yield(row)}
        while self.recent and self.recent[0] <= view.now - self._ticks(HOUR_S):
            self.recent.popleft()
        left = self.limits.per_hour - len(self.recent)
        while len(yields := self._yields(found := _in_front(kept, order))) > left:
            kept.update(yields[: len(yields) - left])  # those that the policy would rather have run
        self.asked = yields
        return found

    def _note_put_back(self) -> None:
        for row in self.asked:
            if row in self.view.waiting:
                self.times[row] += 1
                self.recent.append(self.view.now)
                self.back[row] = self.view.now + self._ticks(self.limits.away_s)
        self.asked = ()

    def _may_yield(self, row: int) -> bool:
        ran = self.view.now - self.view.running[row]
        return ran >= self._ticks(self.limits.least_run_s) and self.times[row] < self.limits.per_job

    def _yields(self, order: Sequence[int]) -> list[int]:
        """Who runs and is not chosen, by counting."""
        free, found = self.view.total_gpus, []
        for row in order:
            if self.view.gpus[row] <= free:
                free -= self.view.gpus[row]
            elif row in self.view.running:
                found.append(row)
        return found

    def _ticks(self, seconds: float) -> int:
        return max(0, round(seconds * self.view.ticks_per_s))


def _in_front(kept: set[int], order: Sequence[int]) -> list[int]:
    return [*(row for row in order if row in kept), *(row for row in order if row not in kept)]
