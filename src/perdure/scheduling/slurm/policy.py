"""Slurm as a scheduling policy: multifactor priorities, the main pass, and backfill cycles.

At each event there is a main pass. Backfill cycles begin each `interval_s`; one is left out if nothing has changed
since the last one: no job came, became eligible, started or ended. What changes between two of them waits for the next.
Jobs are in the order of their partitions' tiers, then of their priorities, then of the instants at which they came.
Priorities are those of the last multiple of PriorityCalcPeriod, in ticks of the trace; a job that came since has no
age.

What slurmctld does besides, and this does not: preempt, advanced reservations, features and licences; it also begins a
cycle whenever priorities were calculated, though nothing else changed.

Source: slurm.conf(5), sched_config.html and the sources that the modules of this package name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from perdure.errors import ConfigError
from perdure.scheduling.placement.placed import Placed
from perdure.scheduling.protocol import Ranking
from perdure.scheduling.slurm.backfill import CycleTimes, backfill_cycle
from perdure.scheduling.slurm.eligible import Eligible, SlurmReason
from perdure.scheduling.slurm.main_pass import main_pass
from perdure.scheduling.slurm.node_space import OnNodes
from perdure.scheduling.slurm.pass_state import PassState
from perdure.scheduling.slurm.priorities import Priorities
from perdure.scheduling.slurm.requests import JobRequests, requests_of
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.scheduling.slurm.space import CountedSpace, Space
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Slurm:
    """Slurm with a site's settings.

    Use it to ask what a change of slurm.conf does to waits, or to forecast them. Starts are to the tick of the trace;
    slurmctld's own delays (sched_min_interval, the time that a cycle takes) are left out. GPUs alone are allocated:
    jobs that wait for memory or processors start too early here. Raises `ConfigError` from `ranking` for settings that
    are not modelled.
    """

    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    name: str = "slurm"
    blocks: bool = False
    preemptive: bool = False

    def ranking(self, view: View) -> SlurmRanking:
        return SlurmRanking(view, self.settings)


class SlurmRanking(Ranking):
    """Slurm at work in one run. What its passes share is in `state`; ticks say when the next passes may be."""

    def __init__(self, view: View, settings: SchedulerSettings) -> None:
        self.view, self.settings = view, settings
        room = view.room if isinstance(view.room, Placed) else None
        self.requests = requests_of(view, settings, room.nodes.size if room is not None else ())
        self.priorities = Priorities.of(view, self.requests, settings.priority)
        self.eligible = Eligible(view, "ACCRUE_ALWAYS" in settings.priority.flags)
        self.state = PassState(view, self.requests, self.priorities.usage, self.eligible)
        self.space = _space(view, room, settings, self.requests)
        self.times = CycleTimes.of(settings.backfill, view.ticks_per_s)
        self.between_cycles = max(1, round(settings.backfill.interval_s * view.ticks_per_s))
        self.between_passes = max(1, round(settings.main.sched_interval_s * view.ticks_per_s))
        self.next_cycle = self.next_whole_pass = 0  # the ticks from which on they may be
        self.changed = False  # since the last backfill cycle
        self.cut = False  # the last main pass did not see all jobs

    def arrive(self, row: int) -> None:
        if row in self.requests.refused:
            self.eligible.holds[row] = SlurmReason(self.requests.refused[row])
        elif self.eligible.arrive(row):
            self.changed = True

    def leave(self, row: int) -> None:
        self.state.leave(row)
        self.changed = True

    def order(self) -> Iterator[int]:
        """The main pass, then a backfill cycle if one is due.

        A pass that is due sees all jobs; between, a quick one sees `default_queue_depth`. `changed` is set by whatever
        may let a job start that could not before: without it a cycle would find what the last one found.
        """
        view, settings = self.view, self.settings
        self.changed |= self.eligible.go_on()
        depth = settings.main.default_queue_depth
        if view.now >= self.next_whole_pass:
            self.next_whole_pass, depth = view.now + self.between_passes, 0
        queue = self._queue()
        self.cut = yield from main_pass(queue, self.state, self.space, depth, settings.main.partition_job_depth)
        self.changed |= len(self.eligible.since) < len(queue)
        if self.changed and settings.backfill.enabled and self._is_cycle_due():
            self.next_cycle = view.now + self.between_cycles
            self.changed = False
            cycle = backfill_cycle(
                self._queue(), self.state, self.space, settings.backfill, self.times, self.priority, self.since
            )
            self.changed = yield from cycle

    def _is_cycle_due(self) -> bool:
        """Whether a cycle begins now; else `next_cycle` is when the next one does."""
        overdue = max(0, self.view.now - self.next_cycle)
        self.next_cycle += -(-overdue // self.between_cycles) * self.between_cycles
        return self.view.now == self.next_cycle

    def resume(self, row: int) -> None:
        """A job that came runs already, since now: no pass of this run has started it."""
        self.state.take_note(row)

    def look_at(self, now: int) -> None:
        """Make a whole pass and a backfill cycle at this tick, whatever has happened before; usage counts from here."""
        if self.state.usage is not None:
            self.state.usage.count_from(now)
        self.eligible.go_on()  # begin times that are over are no instants to come
        self.changed = self.cut = True
        self.next_cycle = self.next_whole_pass = now

    def next_change(self) -> int | None:
        """The next begin time, whole pass or backfill cycle; the latter two only where there is something to see."""
        begin = self.eligible.next_begin()
        ticks = [] if begin is None else [begin]
        if self.eligible.since:
            if self.cut:
                ticks.append(self.next_whole_pass)
            if self.changed and self.settings.backfill.enabled:
                ticks.append(self.next_cycle)
        return min(ticks, default=None)

    def priority(self, row: int) -> int:
        """Of an eligible job, as last calculated."""
        return self.priorities.of_job(row, self.eligible.since[row])

    def since(self, row: int) -> int:
        """The tick from which an eligible job accrues age."""
        return self.eligible.since[row]

    def hold(self, row: int) -> SlurmReason | None:
        """What holds a waiting job; None for one that does not wait."""
        return self.eligible.holds.get(row)

    def reason(self, row: int) -> str | None:
        hold = self.hold(row)
        return None if hold is None else hold.reason

    def _queue(self) -> list[int]:
        """The eligible jobs in their order."""
        self.priorities.calculate(self.view.now)
        came, tier = self.eligible.came, self.requests.tier
        return sorted(self.eligible.since, key=lambda row: (-tier(row), -self.priority(row), came[row], row))


def _space(view: View, room: Placed | None, settings: SchedulerSettings, requests: JobRequests) -> Space:
    """Where GPUs are only counted, one that takes a whole node stands for that node. Raises `ConfigError`."""
    if settings.on_nodes and room is not None:
        return OnNodes(view, room, requests.partitions, requests.partition.tolist())
    for each in settings.partitions:
        if each.nodes is not None:
            what = f"partition {each.name} has nodes of its own, and GPUs are only counted"
            raise ConfigError("policy slurm", what, "Choose a placement, such as first-fit")
    return CountedSpace(len(requests.partitions))
