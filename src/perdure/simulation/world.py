"""The cluster, its jobs and the events to come, as a simulation goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from perdure.scheduling.placement.room import Room, Shares
from perdure.scheduling.view import View
from perdure.simulation.faults import MOST_MET, BadNodes, NodeFault, NodeFaults
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.simulation.workload import Workload


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
    bad: BadNodes
    on_arrival: Callable[[int], None] = lambda _: None
    on_end: Callable[[int], None] = lambda _: None
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # tick, row, launch that it belongs to
    returns: list[tuple[int, int]] = field(default_factory=list)  # tick, row: jobs on their way to a next attempt
    came: int = 0  # jobs that have come for the first time
    tried: list[int] = field(default_factory=list)  # attempts that are over
    record: list[int] = field(default_factory=list)  # the recorded attempt that the job makes; a row of ``jobs.work``
    since: list[int] = field(default_factory=list)  # when the present attempt came to wait
    began: list[int] = field(default_factory=list)  # when the present attempt first ran; -1 before
    lost: list[int] = field(default_factory=list)  # of the present attempt's work what preemptions have added
    launch: list[int] = field(default_factory=list)  # counts a job's starts: an end of an earlier one is void
    doomed: dict[int, NodeFault] = field(default_factory=dict)  # running jobs that a fault will end

    def __post_init__(self) -> None:
        n = len(self.jobs)
        self.tried, self.since, self.began, self.launch = [0] * n, [0] * n, [-1] * n, [0] * n
        self.lost = [0] * n
        self.record = self.jobs.first[:-1].tolist()

    def next_event(self) -> int | None:
        """The tick of the next end or arrival."""
        ends, returns, launch = self.ends, self.returns, self.launch
        while ends and ends[0][2] != launch[ends[0][1]]:
            heappop(ends)
        tick = ends[0][0] if ends else None
        if returns and (tick is None or returns[0][0] < tick):
            tick = returns[0][0]
        if self.came < len(launch) and (tick is None or self.view.submit[self.came] < tick):
            tick = self.view.submit[self.came]
        return tick

    def end_attempts(self) -> None:
        """End attempts that have run their time, and ask what to do with jobs whose attempt failed."""
        while self.ends and self.ends[0][0] <= self.view.now:
            _, row, launch = heappop(self.ends)
            if launch == self.launch[row]:
                self._end(row)

    def admit(self) -> None:
        """Submit the jobs that are due."""
        now, jobs = self.view.now, len(self.launch)
        while self.came < jobs and self.view.submit[self.came] <= now:
            self.come(self.came)
            self.came += 1
        while self.returns and self.returns[0][0] <= now:
            _, row = heappop(self.returns)
            self.come(row)

    def come_at(self, row: int, tick: int) -> None:
        """Submit a job at a tick, in addition to the trace's own arrivals."""
        heappush(self.returns, (tick, row))

    def come(self, row: int) -> None:
        """Submit a job now; it waits."""
        self.trail.events += 1
        self.view.waiting[row] = None
        self.since[row] = self.view.now
        self.on_arrival(row)

    def start(self, row: int, held: Shares | None = None) -> bool:
        """Start a waiting job, if there is room; on these very GPUs where they are told."""
        view, room = self.view, self.room
        if not (room.take(row, view.gpus[row], view.now) if held is None else room.retake(row, held)):
            return False
        del view.waiting[row]
        view.running[row] = view.now
        view.free_gpus = self.room.free_gpus
        if self.began[row] < 0:
            self.began[row] = view.now
            if self.trail.start[row] < 0:
                self.trail.start[row] = view.now
        self.launch[row] += 1
        heappush(self.ends, (view.now + self._lasts(row), row, self.launch[row]))
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
        """Make a job wait that was preempted on these GPUs.

        It keeps its work, and restarts first when it runs again. A restart that was cut short begins again: only what
        was done of it is lost.
        """
        ran = self._stop(row, shares)
        self.launch[row] += 1
        self.doomed.pop(row, None)
        self.view.waiting[row] = None
        self.trail.preempted[row] += 1
        unfinished = max(0, self.view.restart[row] - ran)
        self.view.restart[row] = int(self.jobs.restart[row])
        self.lost[row] += self.view.restart[row] - unfinished
        self.view.work[row] += self.view.restart[row] - unfinished

    def _lasts(self, row: int) -> int:
        """Ticks that a job runs that has just been started, if it is let."""
        remaining = self.view.remaining(row)
        if row not in self.bad.of:
            return remaining
        fault = self.bad.met_on(row, _nodes(self.room.held[row]), self.view.now)
        if fault is None or fault.after >= remaining:
            return remaining
        self.doomed[row] = fault
        return fault.after

    def _stop(self, row: int, shares: Shares) -> int:
        """Count what a job ran that runs no longer; returned in ticks."""
        view = self.view
        since = view.running.pop(row)
        ran = view.now - since
        view.before[row] += ran
        self.trail.spans.append((row, self.tried[row] + 1, since, view.now, shares))
        self.trail.busy += ran * view.gpus[row]
        return ran

    def _end(self, row: int) -> None:
        view, trail = self.view, self.trail
        trail.events += 1
        self.on_end(row)
        shares = self.lift(row)
        self._stop(row, shares)
        self.tried[row] += 1
        trail.end[row] = view.now
        met = self.doomed.pop(row, None)
        record = self.record[row] if met is None else met.record
        times = self.since[row], self.began[row], view.now
        trail.log.append((row, self.tried[row], *times, view.before[row], shares[0][0], record, self.lost[row]))
        if met is None:
            self._ended_as_recorded(row, record, shares)
        else:
            met.met += 1
            if met.met < MOST_MET:
                self._ask(row, record, shares, met)
            else:
                self._note_over(row, passed=False)

    def _note_over(self, row: int, passed: bool) -> None:
        """A job is over for good; told where jobs depend on each other."""
        if self.view.asks.needs is not None:
            self.view.over[row] = passed

    def _ended_as_recorded(self, row: int, record: int, shares: Shares) -> None:
        jobs = self.jobs
        if jobs.passed[record] or record + 1 == jobs.first[row + 1]:
            self._note_over(row, bool(jobs.passed[record]))
            return
        fault = self.bad.left_by(row, record, self.view.before[row], _nodes(shares), self.view.now)
        self.record[row] = self.bad.following(record)
        self._ask(row, record, shares, fault)

    def _ask(self, row: int, record: int, shares: Shares, fault: NodeFault | None) -> None:
        """Ask what to do with a job whose attempt failed, and do it."""
        answer: Again | None = Again()
        if self.retry is not None:
            answer = self.retry(self._failed(row, record, shares, fault))
        if answer is None:
            self._note_over(row, passed=False)
            return
        if answer.avoid:
            self.room.avoid(row, self.view.gpus[row], answer.avoid)
        view = self.view
        view.earlier[row] += view.before[row]
        view.before[row], view.restart[row], self.began[row], self.lost[row] = 0, 0, -1, 0
        view.work[row] = int(self.jobs.work[self.record[row]])
        self.come_at(row, view.now + round(answer.delay_s * view.ticks_per_s))

    def _failed(self, row: int, record: int, shares: Shares, fault: NodeFault | None) -> FailedRun:
        nodes = tuple(_nodes(shares)) if self.room.n_nodes else ()
        bad = -1 if fault is None else fault.node
        now_s, ran_s = self.jobs.seconds(self.view.now), self.view.before[row] / self.view.ticks_per_s
        avoided = self.room.avoided.get(row, frozenset())
        return FailedRun(row, self.tried[row], record, now_s, ran_s, nodes, bad, avoided, self.room.n_nodes)


def _nodes(shares: Shares) -> list[int]:
    return [node for node, _ in shares]


def view_of(jobs: Workload, total_gpus: int, room: Room | None = None) -> View:
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
        asks=jobs.asks,
        room=room,
    )


def world_of(jobs: Workload, room: Room, retry: Retry | None, faults: NodeFaults | None) -> World:
    """The world before the first event."""
    n, view = len(jobs), view_of(jobs, room.free_gpus, room)
    trail = Trail([-1] * n, [-1] * n, [0] * n, view.promotions)
    return World(jobs, room, retry, view, trail, BadNodes(faults, jobs.ticks_per_s))
