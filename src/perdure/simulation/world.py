"""The cluster, its jobs and the events to come, as a simulation goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from perdure.scheduling.placement.room import Room, Shares
from perdure.scheduling.view import View
from perdure.simulation.workload import Workload

Retry = Callable[[int, int, float], bool | float]
"""``retry(row, number, now)``: whether a job goes on after its attempt `number` (from 1) failed at `now` seconds.

True comes back at once, a number of seconds after so long, False never. A job without a further recorded attempt
is over whatever it says.
"""


@dataclass(slots=True)
class Trail:
    """What happened to each job, as it builds up; times are ticks."""

    start: list[int]
    end: list[int]
    preempted: list[int]
    promoted: list[int]
    log: list[tuple[int, ...]] = field(default_factory=list)  # columns of Outcome
    spans: list[tuple[int, int, int, int, Shares]] = field(default_factory=list)  # likewise
    busy: int = 0  # GPU-ticks
    events: int = 0  # ends, arrivals and instants at which an order changed of itself


@dataclass(slots=True)
class World:
    """The cluster, its jobs and the events to come."""

    jobs: Workload
    room: Room
    retry: Retry | None
    view: View
    trail: Trail
    on_arrival: Callable[[int], None] = lambda _: None
    on_end: Callable[[int], None] = lambda _: None
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # tick, row, launch that it belongs to
    returns: list[tuple[int, int]] = field(default_factory=list)  # tick, row: jobs on their way to a next attempt
    came: int = 0  # jobs that have come for the first time
    number: list[int] = field(default_factory=list)  # of the present attempt, from 0
    since: list[int] = field(default_factory=list)  # when the present attempt came to wait
    began: list[int] = field(default_factory=list)  # when the present attempt first ran; -1 before
    launch: list[int] = field(default_factory=list)  # counts a job's starts: an end of an earlier one is void

    def __post_init__(self) -> None:
        n = len(self.jobs)
        self.number, self.since, self.began, self.launch = [0] * n, [0] * n, [-1] * n, [0] * n

    def next_event(self) -> int | None:
        """The tick of the next end or arrival."""
        while self.ends and self.ends[0][2] != self.launch[self.ends[0][1]]:
            heappop(self.ends)
        ticks = [heap[0][0] for heap in (self.ends, self.returns) if heap]
        if self.came < len(self.jobs):
            ticks.append(self.view.submit[self.came])
        return min(ticks, default=None)

    def end_attempts(self) -> None:
        """Let attempts that have run their time end, and ask what becomes of jobs whose attempt failed."""
        while self.ends and self.ends[0][0] <= self.view.now:
            _, row, launch = heappop(self.ends)
            if launch == self.launch[row]:
                self._end(row)

    def admit(self) -> None:
        """Let jobs come that are due."""
        now, jobs = self.view.now, self.jobs
        while self.came < len(jobs) and self.view.submit[self.came] <= now:
            self._wait(self.came)
            self.came += 1
        while self.returns and self.returns[0][0] <= now:
            _, row = heappop(self.returns)
            self._wait(row)

    def start(self, row: int) -> bool:
        """Start a waiting job, if there is room."""
        view = self.view
        if not self.room.take(row, view.gpus[row], view.now):
            return False
        del view.waiting[row]
        view.running[row] = view.now
        view.free_gpus = self.room.free_gpus
        if self.began[row] < 0:
            self.began[row] = view.now
            if self.trail.start[row] < 0:
                self.trail.start[row] = view.now
        self.launch[row] += 1
        heappush(self.ends, (view.now + view.remaining(row), row, self.launch[row]))
        return True

    def lift(self, row: int) -> Shares:
        """Take a running job's GPUs for the time of a pass."""
        shares = self.room.give_back(row)
        self.view.free_gpus = self.room.free_gpus
        return shares

    def put_back(self, row: int, shares: Shares) -> bool:
        """Return a lifted job's GPUs, as if nothing had happened, if they are still free."""
        back = self.room.retake(row, shares)
        self.view.free_gpus = self.room.free_gpus
        return back

    def preempt(self, row: int, shares: Shares) -> None:
        """Let a job wait that was lifted from these GPUs."""
        self._stop(row, shares)
        self.launch[row] += 1
        self.view.waiting[row] = None
        self.trail.preempted[row] += 1

    def _wait(self, row: int) -> None:
        self.trail.events += 1
        self.view.waiting[row] = None
        self.since[row] = self.view.now
        self.on_arrival(row)

    def _stop(self, row: int, shares: Shares) -> None:
        view = self.view
        since = view.running.pop(row)
        ran = view.now - since
        view.before[row] += ran
        self.trail.spans.append((row, self.number[row] + 1, since, view.now, shares))
        self.trail.busy += ran * view.gpus[row]

    def _end(self, row: int) -> None:
        view, trail, jobs = self.view, self.trail, self.jobs
        trail.events += 1
        attempt = int(jobs.first[row]) + self.number[row]
        self.on_end(row)
        shares = self.lift(row)
        self._stop(row, shares)
        self.number[row] += 1
        ran = view.before[row]
        times = self.since[row], self.began[row], view.now
        trail.log.append((row, self.number[row], *times, ran, shares[0][0]))
        trail.end[row] = view.now
        if not jobs.passed[attempt] and attempt + 1 < jobs.first[row + 1]:
            delay = True if self.retry is None else self.retry(row, self.number[row], jobs.seconds(view.now))
            if delay is not False:
                self._again(row, 0 if delay is True else round(delay * view.ticks_per_s))

    def _again(self, row: int, delay: int) -> None:
        view = self.view
        view.earlier[row] += view.before[row]
        view.before[row], self.began[row] = 0, -1
        view.work[row] = int(self.jobs.work[self.jobs.first[row] + self.number[row]])
        heappush(self.returns, (view.now + delay, row))


def view_of(jobs: Workload, total_gpus: int) -> View:
    """What a policy sees before the first event."""
    return View(
        gpus=jobs.gpus.tolist(),
        submit=jobs.submit.tolist(),
        work=jobs.work[jobs.first[:-1]].tolist() if len(jobs) else [],
        walltime=jobs.walltime.tolist(),
        group=jobs.group.tolist(),
        user=jobs.user.tolist(),
        groups=jobs.groups,
        users=jobs.users,
        total_gpus=total_gpus,
        ticks_per_s=jobs.ticks_per_s,
    )


def world_of(jobs: Workload, room: Room, retry: Retry | None) -> World:
    """The world before the first event."""
    n, view = len(jobs), view_of(jobs, room.free_gpus)
    return World(jobs, room, retry, view, Trail([-1] * n, [-1] * n, [0] * n, view.promotions))
