"""How well simulated starts agree with those of a real Slurm, and what differs (root, Debian's packages).

    python -m benchmarks.slurm_agreement [--site fifo,weights] [--traces 3] [--jobs 60] [--keep FOLDER]

Random jobs are submitted to a real slurmctld, seconds for minutes, and simulated with the settings of its slurm.conf.

Step by step: from each instant at which Slurm started jobs the simulation goes on from the recorded state (who runs,
where, and who waits) up to the next such instant. A job differs if it then starts more than a backfill interval from
its record. So the first difference does not count again in all that follows from it. What explains a difference is
found by changing one thing at a time: the first change under which the step agrees is the cause.

Free-running: the whole trace from its first submit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.slurm_recording import GPUS, NODES, SITES, Recording, drawn, record, scheduled
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.conf import read_conf, site_of
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import PrioritySettings, SchedulerSettings
from perdure.simulation.live import NEVER, LiveQueue, PlainLive
from tests.slurm.cluster import missing

COMPLETING_S = 1.0  # how long a node is taken to be completing after its job's end
TOGETHER_S = 0.3  # starts so near to each other are of one pass
CYCLE_S = 0.1
OTHER_NODES, FOLLOWS, UNKNOWN = "node choice", "follows from an earlier difference", "unknown"


@dataclass(frozen=True, slots=True)
class Model:
    """How a step is simulated."""

    settings: SchedulerSettings
    placement: Placement
    completing_s: float = 0.0
    recorded_priorities: bool = False
    recorded_cycles: bool = False  # whether backfill cycles begin when they did
    tolerance: float = 1.0  # backfill intervals


@dataclass(slots=True)
class Agreement:
    """Of one trace."""

    jobs: int
    differs: dict[int, str] = field(default_factory=dict)  # step by step: rows, and why
    early: set[int] = field(default_factory=set)  # those of them that the simulation starts too early
    elsewhere: set[int] = field(default_factory=set)  # rows that start alike on other nodes
    free: dict[int, str] = field(default_factory=dict)  # free-running: rows, and why
    apart_s: list[float] = field(default_factory=list)  # step by step: simulated less recorded start
    recorded_wait_s: list[float] = field(default_factory=list)
    simulated_wait_s: list[float] = field(default_factory=list)  # free-running
    submitted_late_s: list[float] = field(
        default_factory=list
    )  # than was meant: recorded submits are what is simulated


def settings_of(recording: Recording) -> SchedulerSettings:
    """Those of the recorded slurm.conf; partitions name their nodes, so that reservations know nodes."""
    lines = ((f"slurm.conf:{number}", line) for number, line in enumerate(recording.conf.splitlines(), 1))
    settings = site_of(read_conf(lines, lambda name, where: ())).settings
    every = tuple(range(NODES))
    return replace(settings, partitions=tuple(replace(each, nodes=every) for each in settings.partitions))


def agreement(recording: Recording, placement: str = "consolidate") -> Agreement:
    """Compare step by step, then free-running."""
    placed = placement_named(placement)
    assert placed is not None
    model = Model(settings_of(recording), placed)
    found = Agreement(len(recording.jobs))
    steps = list(_steps(recording))
    for at_s, until_s in steps:
        _compare_step(recording, model, at_s, until_s, found)
    _compare_whole(recording, model, found)
    return found


def _interval_s(settings: SchedulerSettings) -> float:
    """From the beginning of one cycle to that of the next: the interval counts from the end of the former."""
    found_s = settings.backfill.interval_s if settings.backfill.enabled else settings.main.sched_interval_s
    return found_s + CYCLE_S


def _steps(recording: Recording) -> Iterator[tuple[float, float]]:
    """The instants between which nobody started: the first submit, and each last start of a pass."""
    starts = np.sort([job.start_s for job in recording.jobs])
    ends = [at for at, after in zip(starts, [*starts[1:], np.inf], strict=True) if after - at > TOGETHER_S]
    last = min(job.submit_s for job in recording.jobs)
    for end in ends:
        yield last, float(end)
        last = float(end)


def _compare_step(recording: Recording, model: Model, at_s: float, until_s: float, found: Agreement) -> None:
    started, nodes = _step(recording, model, at_s, until_s)
    differing = _differing(recording, model, at_s, until_s, started)
    for row, late in differing.items():
        if row not in found.differs:
            found.differs[row] = _cause(recording, model, at_s, until_s, row)
            if not late:
                found.early.add(row)
    for row, job in enumerate(recording.jobs):
        if at_s < job.start_s <= until_s and row not in differing:
            found.apart_s.append(started[row] - job.start_s)
            if nodes[row] and nodes[row] != set(job.nodes):
                found.elsewhere.add(row)


def _differing(
    recording: Recording, model: Model, at_s: float, until_s: float, started: Sequence[float]
) -> dict[int, bool]:
    """Rows of the jobs that start in this step in one of both, but not within the tolerance; whether they are late."""
    slack_s = model.tolerance * _interval_s(model.settings)
    found = {}
    for row, job in enumerate(recording.jobs):
        if at_s < job.start_s <= until_s:
            if not started[row] <= job.start_s + slack_s:
                found[row] = True
            elif started[row] < job.start_s - slack_s:
                found[row] = False
        elif job.start_s > until_s and started[row] <= until_s and started[row] < job.start_s - slack_s:
            found[row] = False
    return found


def _step(recording: Recording, model: Model, at_s: float, until_s: float) -> tuple[list[float], list[set[int]]]:
    """When each job starts that is simulated from the recorded state at an instant, and where; NaN for never."""
    jobs = recording.jobs
    free_s = [_free_s(recording, row, model.completing_s) for row in range(len(jobs))]
    there = np.array([row for row, free in enumerate(free_s) if free > at_s])
    table = recording.table.take(there)
    runs = table.start_s <= at_s
    table = replace(
        table,
        start_s=np.where(runs, table.start_s, np.nan),
        duration_s=np.array(free_s)[there] - table.start_s,
        nice=_nice(recording, table, at_s) if model.recorded_priorities else table.nice,
    )
    held = {place: _shares(jobs[row].nodes, jobs[row].gpus) for place, row in enumerate(there.tolist()) if runs[place]}
    settings = model.settings
    if model.recorded_priorities:
        settings = replace(settings, priority=PrioritySettings())
    until_s += model.tolerance * _interval_s(settings) + 0.001
    queue = LiveQueue.at(
        table, at_s, Cluster.parse(f"{NODES}x{GPUS}"), Slurm(settings), engine="plain", placement=model.placement,
        held=held, began_s=recording.began_s,
    )  # fmt: skip
    _set_next_cycle(queue, recording, at_s, settings)
    if model.recorded_cycles:
        _advance_by_cycles(queue, recording, at_s, until_s)
    queue.advance(until_s)
    started, nodes = [np.nan] * len(jobs), [set[int]() for _ in jobs]
    for place, row in enumerate(there.tolist()):
        if not runs[place]:
            started[row] = queue.start_of(place, until_s)
            nodes[row] = queue.nodes_of(place)
    return started, nodes


def _set_next_cycle(queue: LiveQueue, recording: Recording, at_s: float, settings: SchedulerSettings) -> None:
    """When the last cycle was belongs to the recorded state: the next one comes an interval later."""
    assert isinstance(queue.simulation, PlainLive)
    last_s = max((cycle_s for cycle_s in recording.cycles_s if cycle_s <= at_s), default=None)
    if last_s is not None:
        next_s = last_s + settings.backfill.interval_s
        queue.simulation.ranking.next_cycle = round((next_s - queue.jobs.origin_s) * queue.jobs.ticks_per_s)


def _advance_by_cycles(queue: LiveQueue, recording: Recording, at_s: float, until_s: float) -> None:
    """Go on with a backfill cycle at each instant at which Slurm began one, and at no other."""
    assert isinstance(queue.simulation, PlainLive)
    ranking = queue.simulation.ranking
    ranking.next_cycle = NEVER
    for cycle_s in recording.cycles_s:
        if at_s < cycle_s <= until_s:
            queue.advance(cycle_s)
            ranking.next_cycle = round((cycle_s - queue.jobs.origin_s) * queue.jobs.ticks_per_s)
            ranking.changed = True
            queue.advance(cycle_s + 0.001)
            ranking.next_cycle = NEVER


def _free_s(recording: Recording, row: int, completing_s: float) -> float:
    """When the nodes of a job are free again: so long after its end, but before another job started on one of them."""
    job = recording.jobs[row]
    later = (other for other in recording.jobs if other.start_s >= job.end_s and {*other.nodes} & {*job.nodes})
    taken_s = (other.start_s for other in later)
    return min(job.end_s + completing_s, *taken_s, np.inf) if completing_s else job.end_s


def _shares(nodes: Sequence[int], gpus: int) -> Shares:
    return tuple((node, gpus // len(nodes)) for node in nodes)


def _nice(recording: Recording, table: JobTable, at_s: float) -> np.ndarray:
    """What gives each job the priority that Slurm's next backfill cycle saw; 1 where none saw it."""
    seen: dict[str, int] = {}
    for tested_s, name, priority in recording.priorities:
        if tested_s > at_s:
            seen.setdefault(name, priority)
        else:
            seen.pop(name, None)
    last = {name: priority for tested_s, name, priority in recording.priorities if tested_s <= at_s}
    return np.array([-seen.get(name, last.get(name, 1)) for name in table.job_id.tolist()], np.int64)


CHANGES: dict[str, Callable[[Model], Model]] = {
    "COMPLETING nodes": lambda model: replace(model, completing_s=COMPLETING_S),
    "order": lambda model: replace(model, recorded_priorities=True),
    OTHER_NODES: lambda model: replace(model, placement=_other(model.placement)),
    "timing of cycles": lambda model: replace(model, recorded_cycles=True),
    "timing of passes": lambda model: replace(model, tolerance=2.0),
    "several of these": lambda model: replace(
        model, completing_s=COMPLETING_S, recorded_priorities=True, recorded_cycles=True, tolerance=1.5
    ),
}


def _other(placement: Placement) -> Placement:
    other = placement_named("first-fit" if placement.name == "consolidate" else "consolidate")
    assert other is not None
    return other


def _cause(recording: Recording, model: Model, at_s: float, until_s: float, row: int) -> str:
    """The first change under which the job's start in this step agrees."""
    for name, change in CHANGES.items():
        changed = change(model)
        started, _ = _step(recording, changed, at_s, until_s)
        if row not in _differing(recording, changed, at_s, until_s, started):
            return name
    return UNKNOWN


def _compare_whole(recording: Recording, model: Model, found: Agreement) -> None:
    queue = LiveQueue.replaying(
        recording.table, Cluster.parse(f"{NODES}x{GPUS}"), Slurm(model.settings), engine="plain",
        placement=model.placement, began_s=recording.began_s,
    )  # fmt: skip
    slack_s = _interval_s(model.settings)
    for row, job in enumerate(recording.jobs):
        start_s = queue.start_of(row)
        found.recorded_wait_s.append(job.start_s - job.submit_s)
        found.simulated_wait_s.append(start_s - job.submit_s)
        found.submitted_late_s.append(job.submit_s - job.asked_s)
        if not abs(start_s - job.start_s) <= slack_s:
            found.free[row] = found.differs.get(row, FOLLOWS)


def report(found: Sequence[Agreement]) -> list[str]:
    """Lines: shares of all jobs."""
    jobs = sum(each.jobs for each in found)
    apart_s = np.abs(np.concatenate([each.apart_s for each in found]))
    late_s = np.concatenate([each.submitted_late_s for each in found])
    lines = [
        f"{len(found)} traces, {jobs} jobs; agreeing starts are apart by {np.median(apart_s):.2f} s in the median, "
        f"submits were late by {np.median(late_s):.2f} s"
    ]
    for title, groups in (
        ("step by step", [each.differs for each in found]),
        ("free-running", [each.free for each in found]),
    ):
        causes = Counter(why for group in groups for why in group.values())
        lines.append(f"{title:36} {_share(causes.total(), jobs)}")
        lines += [f"  {why:34} {_share(count, jobs)}" for why, count in causes.most_common()]
    lines.append(f"{'alike, on other nodes':36} {_share(sum(len(each.elsewhere) for each in found), jobs)}")
    for each in found:
        recorded, simulated = np.array(each.recorded_wait_s), np.array(each.simulated_wait_s)
        lines.append(
            f"mean wait {recorded.mean():.1f} s, simulated free-running {simulated.mean():.1f} s, "
            f"median difference {np.median(np.abs(simulated - recorded)):.1f} s"
        )
    return lines


def _share(count: int, of: int) -> str:
    return f"{count:4d}  {count / of:6.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", default="fifo,weights", help=f"some of {', '.join(SITES)}")
    parser.add_argument("--traces", type=int, default=3, help="traces of each site")
    parser.add_argument("--jobs", type=int, default=60, help="jobs of each trace")
    parser.add_argument("--placement", default="consolidate")
    parser.add_argument("--keep", type=Path, help="write recordings into this folder, and use those that are there")
    asked = parser.parse_args()
    if why := missing():
        parser.error(why)
    with tempfile.TemporaryDirectory(prefix="perdure-agreement-", dir="/tmp") as scratch:
        keep = asked.keep or Path(scratch)
        for site in asked.site.split(","):
            found = [agreement(each, asked.placement) for each in _recordings(site, asked, keep, Path(scratch))]
            print(f"{site}:", *report(found), sep="\n", flush=True)
    return 0


def _recordings(site: str, asked: argparse.Namespace, keep: Path, scratch: Path) -> list[Recording]:
    files = [keep / f"{site}-{seed}.json" for seed in range(asked.traces)]
    if not all(file.exists() for file in files):
        with scheduled(scratch / site, site) as cluster:
            for seed, file in enumerate(files):
                if not file.exists():
                    found = record(cluster, drawn(np.random.default_rng(seed), asked.jobs, site))
                    file.write_bytes(msgspec.json.encode(found))
    return [msgspec.json.decode(file.read_bytes(), type=Recording) for file in files]


if __name__ == "__main__":
    sys.exit(main())
