"""Least attained service: jobs sink through queues as they are served (Tiresias).

Source: J. Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import pairwise

import numpy as np

from perdure.scheduling.gittins import Steps, index_steps, public_steps
from perdure.scheduling.protocol import Ranking, Span
from perdure.scheduling.view import View

QUEUE_LIMITS = (3250.0, 7200.0)
SAMPLES = 1000  # of a trace that is its own sample, evenly from the least to the greatest service
Rank = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class LeastAttained:
    """Queues by attained service; in each, jobs that run precede those that wait, who keep the order they came in.

    A job starts in the top queue and sinks one queue each time its service reaches the queue's limit. All GPUs are
    given again after each event, queue by queue; a job that does not fit is passed over. Short jobs end in the top
    queue without anybody knowing that they are short; few queues, rather than the exact least service, keep jobs of
    about the same service from preempting each other in turns.

    With a `promote_knob` of K a job that sank, and has waited K times as long as it had run since it was last in
    the top queue, returns there with its service forgotten; 0 never promotes, and then jobs at the bottom can starve.

    A restart after a preemption is no service. So whoever is promoted gets to work before it sinks again; else jobs
    whose restarts take longer than a queue's limit could preempt each other for ever.

    `late_demotion` looks for demotions at the instants at which Tiresias' public simulator does: jobs of several
    GPUs then sink late, whenever another event fell in between.
    """

    counts_gpus: bool = True  # service is GPUs times time (2D-LAS), else time
    queue_limits: tuple[float, ...] = QUEUE_LIMITS  # in seconds, or GPU-seconds, of service
    promote_knob: float = 0.0
    late_demotion: bool = False
    resets_on_retry: bool = False  # else a job's next attempt goes on where its service stands
    blocks: bool = False
    preemptive: bool = True

    @property
    def name(self) -> str:
        """``las-2d``, or ``las`` where time alone counts; with the knob behind a colon."""
        knob = f":{self.promote_knob:g}" if self.promote_knob else ""
        return ("las-2d" if self.counts_gpus else "las") + knob

    def ranking(self, view: View) -> Sinking:
        return Sinking(view, self)


@dataclass(frozen=True, slots=True)
class Gittins2D(LeastAttained):
    """As 2D-LAS, but in each queue the job with the greatest Gittins index comes first, then the earlier submit.

    The index is that at the last sample that the job's service passed. Jobs are put in order when one comes, ends or
    sinks, as in Tiresias' simulator: an index that falls in between preempts nobody until then.

    `samples` are services of past jobs, in GPU-seconds; without any, those of the trace at hand: then it knows the law
    of the very jobs that it schedules, which flatters it. With `late_demotion` indices are those of the public
    simulator's table, else exact.
    """

    samples: tuple[float, ...] = ()
    quantum: float = 3250.0  # GPU-seconds

    @property
    def name(self) -> str:
        return "gittins-2d"

    def ranking(self, view: View) -> Sinking:
        return Sinking(view, self, rank=self.steps(view).at)

    def steps(self, view: View) -> Steps:
        """The index as a function of attained service in GPU-ticks.

        A trace that is its own sample is thinned to 1,000 quantiles, so that looking up a rank does not depend on its
        length.
        """
        tick = view.ticks_per_s
        samples = np.array(self.samples)
        if not len(samples) and len(view.gpus):
            asked = np.multiply(view.gpus, view.work, dtype=np.float64) / tick
            samples = np.quantile(asked, (np.arange(SAMPLES) + 1) / SAMPLES, method="inverted_cdf")
        if self.late_demotion:
            return public_steps(samples, int(self.quantum), tick)
        return index_steps(samples, self.quantum, tick)


def _ran_alone_last(one: Sequence[Span], other: Sequence[Span], since: int) -> int:
    """Of two jobs, which of them was the last to run while the other did not: 1, -1 for the other, 0 for neither."""
    ended, other_ended = (max(since, spans[-1][1]) if spans else since for spans in (one, other))
    if ended != other_ended or ended == since:
        return (ended > other_ended) - (ended < other_ended)
    edges = sorted({since, *(max(since, tick) for span in (*one, *other) for tick in span)}, reverse=True)
    for until, begin in pairwise(edges):
        runs, other_runs = (any(a <= begin and until <= b for a, b in spans) for spans in (one, other))
        if runs != other_runs:
            return 1 if runs else -1
    return 0


@dataclass(slots=True)
class Sinking(Ranking):
    """The queues at work.

    Times are in ticks. `served` and `waited` are exact up to the tick in `settled`, and counted on when asked for: an
    event costs ``O(active jobs)``. `queues` hold each job that is there once, in the queue of its `level`. A job
    between two attempts is in no queue; only its `served` stays.

    A preempted job keeps its level; a next attempt enters the queue of its service (`resets_on_retry`: the top one).
    """

    view: View
    policy: LeastAttained
    rank: Rank | None = None
    queues: list[list[int]] = field(default_factory=list)
    level: dict[int, int] = field(default_factory=dict)  # of each job that is there, in the order in which they came
    served: dict[int, int] = field(default_factory=dict)  # ticks run since last in the top queue, also of absent jobs
    waited: dict[int, int] = field(default_factory=dict)  # ticks waited since then, counted once it has run
    settled: dict[int, int] = field(default_factory=dict)  # the tick up to which these two are counted
    limits: list[int] = field(default_factory=list)  # of each queue but the last, in ticks or GPU-ticks

    def __post_init__(self) -> None:
        self.queues = [[] for _ in range(len(self.policy.queue_limits) + 1)]
        self.limits = [round(limit * self.view.ticks_per_s) for limit in self.policy.queue_limits]

    def arrive(self, row: int) -> None:
        if self.policy.resets_on_retry:
            self.served.pop(row, None)
        service = self._service(row)
        self.level[row] = sum(service >= self._limit(q) for q in range(len(self.policy.queue_limits)))
        self.queues[self.level[row]].append(row)
        self.waited[row], self.settled[row] = 0, self.view.now

    def resume(self, ran: Mapping[int, Sequence[Span]]) -> None:
        """As `ResumingRanking.resume`: each job is where it would be had its whole life been watched.

        A job changes queues by what itself ran and waited, so each is lived through alone. In a queue whoever runs goes
        to the front, and stays there once it waits: of two jobs the one that ran alone last is first.
        """
        entered: dict[int, tuple[int, bool, int]] = {}
        for row, spans in ran.items():
            tick = self._live_through(row, spans)
            entered[row] = tick, tick > self.view.submit[row], row  # at one instant jobs come before others move

        def precedence(one: int, other: int) -> int:
            ran_last = _ran_alone_last(ran[other], ran[one], max(entered[one], entered[other])[0])
            return ran_last or (-1 if entered[one] < entered[other] else 1)

        for row in sorted(entered, key=cmp_to_key(precedence)):
            self.queues[self.level[row]].append(row)

    def leave(self, row: int) -> None:
        self._count(row)
        self.queues[self.level.pop(row)].remove(row)

    def order(self) -> Iterable[int]:
        for queue in self.queues:
            queue.sort(key=lambda row: row not in self.view.running)
        self._settle()
        if self.rank is not None:
            for queue in self.queues:
                queue.sort(key=self._precedence)
        return [row for queue in self.queues for row in queue]

    def next_change(self) -> int | None:
        """The next tick at which a running job sinks or a waiting one rises, were all to stay as it is.

        All running jobs are looked at: the price of a definition that can be read. The compiled loop keeps them in a
        heap.
        """
        changes = [self._demotion(row) for row in self.view.running if self.level[row] < len(self.queues) - 1]
        if self.policy.promote_knob:
            changes += [t for row in self.view.waiting if (t := self._promotion(row)) is not None]
        return min(changes, default=None)

    def _settle(self) -> None:
        """Count the service and the waiting since the last event, and move jobs between queues."""
        running = self.view.running
        counted = self.level if self.policy.promote_knob else filter(running.__contains__, self.level)
        bottom = len(self.queues) - 1
        for row in list(counted):  # without promotion what a job waited moves none
            self._count(row)
            if row in running:
                if self.level[row] < bottom:
                    self._demote(row, self.level[row])
            elif self._is_due_up(row):
                self.served[row] = self.waited[row] = 0
                self._move(row, 0)
                self.view.promotions[row] += 1

    def _count(self, row: int) -> None:
        """Add the ticks since the last count to what the job was served, or, once it has run, to what it waited."""
        view = self.view
        counted, self.settled[row] = self.settled[row], view.now
        if row in view.running:
            from_ = view.works_from(row)
            worked = view.now - (counted if counted > from_ else from_)  # `max` would take longer than all else here
            if worked > 0:
                self.served[row] = self.served.get(row, 0) + worked
        elif self.served.get(row, 0):
            self.waited[row] += view.now - counted

    def _demote(self, row: int, level: int) -> None:
        """Sink to the queue of its service. From the instants of `next_change` that is one queue down, unless limits
        are equal.
        """
        bottom = len(self.queues) - 1
        while level < bottom and self._service(row) >= self._limit(level):
            level += 1
            self._move(row, level)
            if self.policy.late_demotion:  # the public simulator moves a job one queue an event
                return

    def _live_through(self, row: int, spans: Sequence[Span]) -> int:
        """Set a job's level, service and waiting; the tick at which it came into the queue that it is in."""
        entered = at = self.view.submit[row]
        self.level[row], self.served[row], self.waited[row] = 0, 0, 0
        for since, until in spans:
            entered = self._wait_through(row, at, since, entered)
            entered = self._run_through(row, since, until, entered)
            at = until
        if row not in self.view.running:
            entered = self._wait_through(row, at, self.view.now, entered)
        self.settled[row] = self.view.now
        return entered

    def _wait_through(self, row: int, since: int, until: int, entered: int) -> int:
        served, knob = self.served[row], self.policy.promote_knob
        if not served:
            return entered
        due = since + max(0, int(served * knob) - self.waited[row])
        if not knob or not self.level[row] or due > until:
            self.waited[row] += max(0, until - since)
            return entered
        self.level[row], self.served[row], self.waited[row] = 0, 0, 0
        self.view.promotions[row] += 1
        return due

    def _run_through(self, row: int, since: int, until: int, entered: int) -> int:
        width, before = self.view.gpus[row] if self.policy.counts_gpus else 1, self.served[row]
        self.served[row] += max(0, until - since)
        while self.level[row] < len(self.limits) and self._service(row) >= self.limits[self.level[row]]:
            entered = since - (width * before - self.limits[self.level[row]]) // width
            self.level[row] += 1
        return entered

    def _is_due_up(self, row: int) -> bool:
        """Whether it waited `promote_knob` times what it was served; never in the top queue, or before it has run."""
        served = self.served.get(row, 0)
        knob = self.policy.promote_knob
        return bool(knob and served and self.level[row]) and self.waited[row] >= int(served * knob)

    def _move(self, row: int, level: int) -> None:
        """To the tail of another queue."""
        self.queues[self.level[row]].remove(row)
        self.queues[level].append(row)
        self.level[row] = level

    def _demotion(self, row: int) -> int:
        """The tick at which a running job reaches its queue's limit: ``now + ceil((limit - width * served) / width)``.

        As Tiresias' simulator has it, the service counts as if it were not times the width: too late for wide jobs.
        """
        width = self.view.gpus[row] if self.policy.counts_gpus else 1
        limit, served = self._limit(self.level[row]), self.served.get(row, 0)
        if self.policy.late_demotion:
            return self.view.now + max(1, (limit - served) // width)
        return max(self.view.now, self.view.works_from(row)) - (width * served - limit) // width

    def _promotion(self, row: int) -> int | None:
        """The tick at which a waiting job rises, if it is to rise and goes on waiting."""
        served = self.served.get(row, 0)
        left = int(served * self.policy.promote_knob) - self.waited[row]
        return self.view.now + left if served and self.level[row] and left > 0 else None

    def _precedence(self, row: int) -> tuple[float, int]:
        """The greatest index first, then the earlier submit."""
        assert self.rank is not None
        then = self.view.submit[row] if self.policy.late_demotion else row  # rows are in the order of submit
        return -self.rank(self.view.gpus[row] * self.served.get(row, 0)), then

    def _service(self, row: int) -> int:
        """Attained service in ticks, or GPU-ticks where GPUs count."""
        return self.served.get(row, 0) * (self.view.gpus[row] if self.policy.counts_gpus else 1)

    def _limit(self, level: int) -> int:
        """A queue's limit in ticks, or GPU-ticks."""
        return self.limits[level]
