"""Which waiting jobs may start as far as time and other jobs go, since when they accrue age, and what holds them.

A job with a begin time or an unmet dependency waits, and is in no pass. It accrues age from the tick on at which it is
eligible; with ACCRUE_ALWAYS from the tick at which it came.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush

from perdure.scheduling.asks import After
from perdure.scheduling.view import View
from perdure.slurm_words.reasons import BEGIN_TIME, DEPENDENCY, NEVER_SATISFIED, PRIORITY


@dataclass(frozen=True, slots=True)
class SlurmReason:
    """What holds a waiting job, in Slurm's own words (squeue's NODELIST(REASON))."""

    reason: str
    planned: int | None = None  # the tick at which the last backfill cycle planned to start it
    ahead: int = 0  # jobs before it in the order of the last pass


@dataclass(slots=True)
class Eligible:
    """The waiting jobs of a view; `since` has those that are eligible, each with the tick from which it accrues age.

    A waiting job is in one of three: `since`; `begins`, a heap, with its begin time ahead; `unmet`, waiting for others.
    A dependency that was met once stays met. One that can no longer be met holds the job for ever.
    """

    view: View
    accrue_always: bool
    holds: dict[int, SlurmReason] = field(default_factory=dict)  # what holds each waiting job, as far as it is known
    since: dict[int, int] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)  # the tick at which each of them came
    begins: list[tuple[int, int]] = field(default_factory=list)  # tick and row, a heap
    unmet: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # on which jobs, and for what
    needs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs = self.view.asks.needs
        if needs is not None:
            found = defaultdict(list)
            for of, on, kind in zip(needs.of.tolist(), needs.on.tolist(), needs.kind.tolist(), strict=True):
                found[of].append((on, kind))
            self.needs = dict(found)

    def arrive(self, row: int) -> bool:
        """A job comes; whether it is eligible at once."""
        self.came[row] = self.view.now
        if row in self.needs:
            self.unmet[row] = self.needs[row]
            self.holds[row] = SlurmReason(DEPENDENCY)
            return self._meet(row)
        return self._begin(row, self.view.now)

    def start(self, row: int) -> None:
        """A job waits no longer; one that ran already may be refused, or depend on another, by now."""
        for kept in (self.since, self.came, self.holds, self.unmet):
            kept.pop(row, None)

    def go_on(self) -> bool:
        """Make the jobs eligible that are due; whether any was. Looks at each job with an unmet dependency."""
        found = [self._meet(row) for row in list(self.unmet)]
        while self.begins and self.begins[0][0] <= self.view.now:
            begin, row = heappop(self.begins)
            if row in self.came:  # else it ran already, whatever its begin time
                found.append(self._begin(row, begin))
        return any(found)

    def next_begin(self) -> int | None:
        """The tick of the next begin time; dependencies need none, for they change at ends and starts only."""
        return self.begins[0][0] if self.begins else None

    def _meet(self, row: int) -> bool:
        """Look which jobs a job still waits for; whether it is eligible now."""
        view, left = self.view, []
        for on, kind in self.unmet[row]:
            ended = view.over.get(on)
            if kind == After.START:
                if on not in view.running and ended is None:
                    left.append((on, kind))
            elif ended is None or (ended != (kind == After.OK) and kind in (After.OK, After.NOTOK)):
                left.append((on, kind))
                if ended is not None:
                    self.holds[row] = SlurmReason(NEVER_SATISFIED)
        self.unmet[row] = left
        if left:
            return False
        del self.unmet[row]
        return self._begin(row, view.now)

    def _begin(self, row: int, met: int) -> bool:
        """Wait for the begin time, unless it is over; `met` is the tick from which on nothing else holds the job."""
        eligible = self.view.asks.eligible
        begin = met if eligible is None else max(met, int(eligible[row]))
        if begin > self.view.now:
            heappush(self.begins, (begin, row))
            self.holds[row] = SlurmReason(BEGIN_TIME)
            return False
        self.since[row] = self.came[row] if self.accrue_always else begin
        self.holds[row] = SlurmReason(PRIORITY)  # until a pass has seen it
        return True
