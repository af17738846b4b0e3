"""A queue of Slurm that is simulated from an instant on, can be forked, and takes one more job: what if it came now?

`LiveQueue.replaying` begins with an empty cluster, `LiveQueue.at` with a picture of a queue as it is: which jobs run,
and since when, which wait, and which are to come. Both are a `JobTable`, so that a rollout is the same table with other
running times and arrivals. A fork changes nothing in what it was made from.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import inf, isinf, nan
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import room_of
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.eligible import SlurmReason
from perdure.scheduling.slurm.policy import Slurm, SlurmRanking
from perdure.simulation.allocation import Passes
from perdure.simulation.plain import PlainLoop
from perdure.simulation.workload import Workload

if TYPE_CHECKING:
    from perdure.simulation.simulate import Engine  # loads all policies

NEVER = 2**62  # later than any tick
Ticks = NDArray[np.int64]


class LiveSimulation(Protocol):
    """A simulation under way; all times are ticks."""

    def go_on(self, until: int, watched: int) -> None:
        """Handle all events before a tick, or up to the instant at which the watched job starts; -1 watches no job."""

    def submit(self, row: int, tick: int) -> None:
        """Submit a job at a tick that is not over."""

    def resume(self, running: Ticks, since: Ticks, waiting: Ticks, came: Ticks, now: int) -> None:
        """Before the first event: make jobs run since their ticks and others wait since theirs, and go on at `now`.

        Together they are the first rows; both are given in the order of their ticks.
        """

    def start(self, row: int) -> int:
        """When a job first started; -1 before."""

    def fork(self, into: LiveSimulation | None = None) -> LiveSimulation:
        """The same once more; `into`, a fork of the same simulation that nobody needs any more, may be used for it."""


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """A simulated queue at an instant. Rows are those of the table, then those of the probes."""

    jobs: Workload
    simulation: LiveSimulation
    first_probe: int
    spare: list[LiveSimulation] = field(default_factory=list)  # a fork that served its purpose, if there is one

    @classmethod
    def replaying(
        cls,
        table: JobTable,
        cluster: Cluster,
        policy: Slurm,
        probes: JobTable | None = None,
        engine: Engine = "auto",
        placement: Placement | None = None,
        began_s: float = inf,
    ) -> LiveQueue:
        """Before the first job of a trace comes. `probes` are jobs that come when they are told to (`submit`).

        Priorities are calculated from `began_s` on in their period: from the first submit, where that is earlier.
        A queue on nodes, with a `placement`, is simulated by the plain loop; where partitions have nodes of their own
        it must be one. Raises `InputError` for a job that cannot be simulated.
        """
        jobs = _with_probes(table, probes, began_s)
        return cls(jobs, _simulation(jobs, cluster, policy, engine, placement, {}), len(table))

    @classmethod
    def at(
        cls,
        table: JobTable,
        now_s: float,
        cluster: Cluster,
        policy: Slurm,
        probes: JobTable | None = None,
        engine: Engine = "auto",
        placement: Placement | None = None,
        held: Mapping[int, Shares] | None = None,
        began_s: float = inf,
    ) -> LiveQueue:
        """A queue as it is at `now_s`: jobs with a `start_s` run, others wait, or come once their `submit_s` is there.

        `duration_s` is the whole running time of a job, what it has run included; a job that should be over by now
        ends next. With a `placement`, `held` says what running jobs have of which nodes; it places the others.
        `began_s` is that of `replaying`.
        Raises `InputError` for a job that started before it came or after now, and where more run than fits.
        """
        runs = np.isfinite(table.start_s)
        _check_picture(table, runs, now_s, cluster)
        jobs = _with_probes(_outlasting(table, runs, now_s), probes, min(now_s, began_s))
        found = cls(jobs, _simulation(jobs, cluster, policy, engine, placement, held or {}), len(table))
        now, there = found._tick(now_s), table.submit_s <= now_s
        running, waiting = np.flatnonzero(runs), np.flatnonzero(there & ~runs)
        since = np.rint((table.start_s[running] - jobs.origin_s) * jobs.ticks_per_s).astype(np.int64)
        order = np.argsort(since, kind="stable")
        came = jobs.submit[waiting]
        found.simulation.resume(running[order].astype(np.int64), since[order], waiting.astype(np.int64), came, now)
        return found

    def advance(self, until_s: float) -> None:
        """Handle all events before an instant."""
        self.simulation.go_on(self._tick(until_s), -1)

    def fork(self) -> LiveQueue:
        """The same queue once more: what happens in one of them changes nothing in the other."""
        return replace(self, simulation=self.simulation.fork(), spare=[])

    def submit(self, probe: int, at_s: float) -> int:
        """Submit a probe, not submitted before, at an instant up to which `advance` went; its row.

        Raises `InputError` for an instant before the first job of a trace.
        """
        row, tick = self.first_probe + probe, self._tick(at_s)
        if tick < 0:
            raise InputError(self.jobs.name(row), "it comes before the queue begins", "Let it come later")
        self.simulation.submit(row, tick)
        return row

    def start_of(self, row: int, until_s: float = inf) -> float:
        """Go on until a job starts: when it does, NaN for one that has not started before `until_s`, or never does."""
        if self.simulation.start(row) < 0:
            self.simulation.go_on(self._tick(until_s), row)
        start = self.simulation.start(row)
        return nan if start < 0 else self.jobs.seconds(start)

    def start_if_submitted(self, probe: int, at_s: float, until_s: float = inf) -> float:
        """When a probe would start that came now, `at_s`; nothing changes here.

        That takes as long as to simulate the probe's wait: `until_s` bounds it.
        """
        fork = replace(self, simulation=self.simulation.fork(self.spare.pop() if self.spare else None), spare=[])
        self.spare.append(fork.simulation)
        return fork.start_of(fork.submit(probe, at_s), until_s)

    def hold(self, row: int) -> SlurmReason | None:
        """What holds a waiting job, as the last pass found it; the engine must be "plain".

        None for one that does not wait; `SlurmReason.planned` is a tick: `jobs.seconds` tells the instant.
        """
        if not isinstance(self.simulation, PlainLive):
            raise TypeError('LiveQueue.hold needs engine="plain": the compiled loop keeps no reasons')
        return self.simulation.ranking.hold(row)

    def nodes_of(self, row: int) -> set[int]:
        """The nodes of a job that runs, if there is a placement; the engine must be "plain"."""
        if not isinstance(self.simulation, PlainLive):
            raise TypeError('LiveQueue.nodes_of needs engine="plain": the compiled loop only counts')
        return {node for node, _ in self.simulation.loop.world.room.held.get(row, ())}

    def _tick(self, instant_s: float) -> int:
        return NEVER if isinf(instant_s) else round((instant_s - self.jobs.origin_s) * self.jobs.ticks_per_s)


@dataclass(frozen=True, slots=True)
class PlainLive:
    """`LiveSimulation` by the plain loop."""

    loop: PlainLoop
    held: Mapping[int, Shares] = field(default_factory=dict)  # what jobs have that run already, as far as it is told

    @classmethod
    def of(
        cls, jobs: Workload, cluster: Cluster, policy: Slurm, placement: Placement | None, held: Mapping[int, Shares]
    ) -> PlainLive:
        return cls(PlainLoop.of(jobs, room_of(cluster, placement, jobs.ticks_per_s), policy, None), held)

    @property
    def ranking(self) -> SlurmRanking:
        giver = self.loop.giver
        assert isinstance(giver, Passes)
        assert isinstance(giver.ranking, SlurmRanking)
        return giver.ranking

    def go_on(self, until: int, watched: int) -> None:
        while (now := self.loop.next_instant()) is not None and now < min(until, NEVER):
            self.loop.happen(now)
            if watched >= 0 and self.start(watched) >= 0:
                return

    def submit(self, row: int, tick: int) -> None:
        self.loop.world.come_at(row, tick)

    def resume(self, running: Ticks, since: Ticks, waiting: Ticks, came: Ticks, now: int) -> None:
        world, ranking = self.loop.world, self.ranking
        for row, tick in zip(running.tolist(), since.tolist(), strict=True):
            world.view.now = tick
            world.come(row)
            world.start(row, self.held.get(row))
            ranking.resume(row)
        for row, tick in zip(waiting.tolist(), came.tolist(), strict=True):
            world.view.now = tick
            world.come(row)
        world.came = len(running) + len(waiting)
        world.view.now = now
        ranking.look_at(now)

    def start(self, row: int) -> int:
        return self.loop.world.trail.start[row]

    def fork(self, into: LiveSimulation | None = None) -> PlainLive:  # noqa: ARG002
        shared = self.loop.world.jobs, self.ranking.requests
        return PlainLive(copy.deepcopy(self.loop, {id(each): each for each in shared}))


def _simulation(
    jobs: Workload,
    cluster: Cluster,
    policy: Slurm,
    engine: Engine,
    placement: Placement | None,
    held: Mapping[int, Shares],
) -> LiveSimulation:
    if engine != "plain" and find_spec("numba") is not None:
        from perdure.simulation.compiled.live import CompiledLive

        compiled = CompiledLive.of(jobs, cluster, policy, placement, held)
        if compiled is not None:
            return compiled
    return PlainLive.of(jobs, cluster, policy, placement, held)


def _with_probes(table: JobTable, probes: JobTable | None, before_s: float = inf) -> Workload:
    """The table and the probes behind it, which do not come by themselves; tick 0 is not after `before_s`."""
    if probes is None or not len(probes):
        return Workload.of(table, before_s)
    n, last_s = len(table), table.submit_s[-1] if len(table) else min(before_s, 0.0)
    behind = replace(probes, submit_s=np.full(len(probes), last_s), start_s=np.empty(0), end_s=np.empty(0))
    jobs = Workload.of(table.followed_by(behind), before_s)
    jobs.submit[n:] = NEVER
    if jobs.asks.eligible is not None:
        since = np.rint((probes.eligible_s - jobs.origin_s) * jobs.ticks_per_s)  # may lie before the last of the table
        jobs.asks.eligible[n:] = np.where(np.isfinite(since), np.nan_to_num(since), -NEVER).astype(np.int64)
    return jobs


def _outlasting(table: JobTable, runs: NDArray[np.bool_], now_s: float) -> JobTable:
    """The table with running jobs that end after now."""
    ran_s = np.where(runs, np.floor(now_s - table.start_s) + 1, 0.0)
    return replace(table, duration_s=np.maximum(table.duration_s, ran_s), attempts=None)


def _check_picture(table: JobTable, runs: NDArray[np.bool_], now_s: float, cluster: Cluster) -> None:
    wrong = runs & ~((table.submit_s <= table.start_s) & (table.start_s <= now_s))
    if wrong.any():
        job = f"job {table.job_id[int(np.argmax(wrong))]}"
        raise InputError(job, "it started before it came, or after now", "Fix its times, or leave its start out")
    held = int(table.gpus[runs].sum())
    if held > cluster.total_gpus:
        what = f"running jobs hold {held} GPUs, and the cluster has {cluster.total_gpus}"
        raise InputError("the queue", what, "Take a larger cluster")
