"""Least attained service: jobs sink through queues as they are served (Tiresias).

Source: J. Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from perdure.scheduling.gittins import Steps, index_steps, public_steps
from perdure.scheduling.protocol import Ranking
from perdure.scheduling.view import View

QUEUE_LIMITS = (3250.0, 7200.0)
SAMPLES = 1000  # of a trace that is its own sample, evenly from the least to the greatest service
Rank = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class LeastAttained:
    """Queues by attained service; in each, jobs that run precede those that wait, who keep the order they came in.

    A job starts in the top queue and sinks one queue each time its service reaches the queue's limit. All GPUs are
    given again after each event, queue by queue; a job that does not fit is passed over.

    With a `promote_knob` of K a job that sank, and has waited K times as long as it had run since it was last in
    the top queue, returns there with its service forgotten; 0 never promotes.

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
        knob = f":{self.promote_knob:g}" if self.promote_knob else ""
        return ("las-2d" if self.counts_gpus else "las") + knob

    def ranking(self, view: View) -> Sinking:
        return Sinking(view, self)


@dataclass(frozen=True, slots=True)
class Gittins2D(LeastAttained):
    """As 2D-LAS, but in each queue the job with the greatest Gittins index comes first, then the earlier submit.

    The index is that at the last sample that the job's service passed.

    `samples` are services of past jobs, in GPU-seconds; without any, those of the trace at hand. With
    `late_demotion` indices are those of the public simulator's table, else exact.
    """

    samples: tuple[float, ...] = ()
    quantum: float = 3250.0  # GPU-seconds

    @property
    def name(self) -> str:
        return "gittins-2d"

    def ranking(self, view: View) -> Sinking:
        return Sinking(view, self, rank=self.steps(view).at)

    def steps(self, view: View) -> Steps:
        """The index as a function of attained service in GPU-ticks."""
        tick = view.ticks_per_s
        samples = np.array(self.samples)
        if not len(samples) and len(view.gpus):
            asked = np.multiply(view.gpus, view.work, dtype=np.float64) / tick
            samples = np.quantile(asked, (np.arange(SAMPLES) + 1) / SAMPLES, method="inverted_cdf")
        if self.late_demotion:
            return public_steps(samples, int(self.quantum), tick)
        return index_steps(samples, self.quantum, tick)


@dataclass(slots=True)
class Sinking(Ranking):
    """The queues at work."""

    view: View
    policy: LeastAttained
    rank: Rank | None = None
    queues: list[list[int]] = field(default_factory=list)
    level: dict[int, int] = field(default_factory=dict)  # of each job that is there, in the order in which they came
    served: dict[int, int] = field(default_factory=dict)  # ticks run since last in the top queue, also of absent jobs
    waited: dict[int, int] = field(default_factory=dict)  # ticks waited since then, counted once it has run
    settled: dict[int, int] = field(default_factory=dict)  # the tick up to which these two are counted

    def __post_init__(self) -> None:
        self.queues = [[] for _ in range(len(self.policy.queue_limits) + 1)]

    def arrive(self, row: int) -> None:
        if self.policy.resets_on_retry:
            self.served.pop(row, None)
        service = self._service(row)
        self.level[row] = sum(service >= self._limit(q) for q in range(len(self.policy.queue_limits)))
        self.queues[self.level[row]].append(row)
        self.waited[row], self.settled[row] = 0, self.view.now

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
        changes = [self._demotion(row) for row in self.view.running if self.level[row] < len(self.queues) - 1]
        if self.policy.promote_knob:
            changes += [t for row in self.view.waiting if (t := self._promotion(row)) is not None]
        return min(changes, default=None)

    def _settle(self) -> None:
        """Count the service and the waiting since the last event, and move jobs between queues."""
        for row, level in list(self.level.items()):
            self._count(row)
            if row in self.view.running:
                self._demote(row, level)
            elif self._is_due_up(row):
                self.served[row] = self.waited[row] = 0
                self._move(row, 0)
                self.view.promotions[row] += 1

    def _count(self, row: int) -> None:
        elapsed, self.settled[row] = self.view.now - self.settled[row], self.view.now
        if row in self.view.running:
            self.served[row] = self.served.get(row, 0) + elapsed
        elif self.served.get(row, 0):
            self.waited[row] += elapsed

    def _demote(self, row: int, level: int) -> None:
        bottom = len(self.queues) - 1
        while level < bottom and self._service(row) >= self._limit(level):
            level += 1
            self._move(row, level)
            if self.policy.late_demotion:  # the public simulator moves a job one queue an event
                return

    def _is_due_up(self, row: int) -> bool:
        served = self.served.get(row, 0)
        knob = self.policy.promote_knob
        return bool(knob and served and self.level[row]) and self.waited[row] >= int(served * knob)

    def _move(self, row: int, level: int) -> None:
        self.queues[self.level[row]].remove(row)
        self.queues[level].append(row)
        self.level[row] = level

    def _demotion(self, row: int) -> int:
        width = self.view.gpus[row] if self.policy.counts_gpus else 1
        limit, served = self._limit(self.level[row]), self.served.get(row, 0)
        if self.policy.late_demotion:
            return self.view.now + max(1, (limit - served) // width)
        return self.view.now - (width * served - limit) // width

    def _promotion(self, row: int) -> int | None:
        served = self.served.get(row, 0)
        left = int(served * self.policy.promote_knob) - self.waited[row]
        return self.view.now + left if served and self.level[row] and left > 0 else None

    def _precedence(self, row: int) -> tuple[float, int]:
        assert self.rank is not None
        then = self.view.submit[row] if self.policy.late_demotion else row  # rows are in the order of submit
        return -self.rank(self.view.gpus[row] * self.served.get(row, 0)), then

    def _service(self, row: int) -> int:
        return self.served.get(row, 0) * (self.view.gpus[row] if self.policy.counts_gpus else 1)

    def _limit(self, level: int) -> int:
        return round(self.policy.queue_limits[level] * self.view.ticks_per_s)
