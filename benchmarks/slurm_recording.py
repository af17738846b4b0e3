"""Random jobs on a real Slurm, and what its controller did with them, to the millisecond of its own log.

`record` submits them to a cluster of `tests.slurm.cluster` and waits until all are over. Jobs last seconds; limits are
whole minutes, as Slurm keeps no others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
import re2

from perdure.model.table import JobTable
from perdure.slurm_words.hostlist import expand
from tests.slurm.cluster import SlurmCluster, await_

NODES, GPUS = 4, 4  # nodes, and GPUs of each
SIZES = (1, 1, 1, 2, 2, 3, 4, 4, 8, 16)
_LATE_S = 600.0
_UNWANTED = ("EpilogSlurmctld=", "JobComp", "Licenses=", "Preempt", "PriorityType=", "SchedulerParameters=", "Prolog=")
_LOGS = "SlurmctldDebug=debug2\nDebugFlags=Backfill\n"
SITES = {  # what the controllers of the comparison are told, beside their nodes and partitions
    "fifo": "SchedulerParameters=bf_interval=3,bf_resolution=1,sched_interval=6,batch_sched_delay=1\n"
    "PriorityType=priority/multifactor\n",
    "weights": "SchedulerParameters=bf_interval=3,bf_resolution=1,sched_interval=6,batch_sched_delay=1\n"
    "PriorityType=priority/multifactor\nPriorityCalcPeriod=1\nPriorityMaxAge=5\n"
    "PriorityWeightAge=1000\nPriorityWeightJobSize=500\n",
    "builtin": "SchedulerParameters=sched_interval=6,batch_sched_delay=1\nSchedulerType=sched/builtin\n"
    "PriorityType=priority/multifactor\n",
}


@dataclass(slots=True)
class RecordedJob:
    """A job as it was asked for, and as Slurm ran it; instants are seconds since the epoch."""

    name: str
    gpus: int
    asked_s: float  # when it was meant to come
    run_s: int
    limit_min: int
    nice: int
    partition: str
    submit_s: float = np.nan
    start_s: float = np.nan
    end_s: float = np.nan
    nodes: tuple[int, ...] = ()
    by_backfill: bool = False


@dataclass(slots=True)
class Recording:
    """Jobs in the order of their ids, and when the controller looked at them."""

    site: str
    conf: str
    version: str
    jobs: list[RecordedJob]
    began_s: float  # when the controller began: it calculates priorities from then on
    passes_s: list[float] = field(default_factory=list)
    cycles_s: list[float] = field(default_factory=list)
    priorities: list[tuple[float, str, int]] = field(default_factory=list)  # as cycles printed them

    @property
    def table(self) -> JobTable:
        """As a trace: jobs that hold their GPUs from their starts to the ends of their tasks."""
        start_s, end_s = (np.array([getattr(job, name) for job in self.jobs]) for name in ("start_s", "end_s"))
        gpus = np.array([job.gpus for job in self.jobs], np.int64)
        nodes = np.maximum(1, gpus // GPUS)
        return JobTable(
            np.array([job.name for job in self.jobs]),
            np.array([job.submit_s for job in self.jobs]),
            gpus,
            end_s - start_s,
            start_s=start_s,
            end_s=end_s,
            walltime_s=60.0 * np.array([job.limit_min for job in self.jobs]),
            nodes=nodes,
            cpus=nodes,
            nice=np.array([job.nice for job in self.jobs], np.int64),
            partition=np.array([job.partition for job in self.jobs]),
        )


class ScheduledCluster(SlurmCluster):
    """A real Slurm that schedules as a site of `SITES` does, without the hooks of other tests."""

    def __init__(self, directory: Path, site: str) -> None:
        super().__init__(directory, NODES, GPUS, _LOGS + SITES[site])
        self.site = site

    def _slurm_conf(self) -> str:
        more = (_LOGS + SITES[self.site]).splitlines()
        lines = super()._slurm_conf().splitlines()
        replaced = {line.partition("=")[0] + "=" for line in more}
        kept = [line for line in lines if line in more or not line.startswith((*_UNWANTED, *replaced))]
        return "\n".join(kept) + "\n"


@contextmanager
def scheduled(directory: Path, site: str) -> Iterator[ScheduledCluster]:
    """A cluster of a site of `SITES`, while the block runs."""
    cluster = ScheduledCluster(directory, site)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def drawn(rng: np.random.Generator, n: int, site: str, load: float = 1.4) -> list[RecordedJob]:
    """Jobs that ask for `load` of the GPUs; their instants count from the first."""
    gpus = rng.choice(SIZES, n)
    run_s = rng.integers(3, 25, n)
    gap_s = rng.exponential(float(np.mean(SIZES)) * 13.5 / (load * NODES * GPUS), n)
    asked_s = np.cumsum(gap_s) - gap_s[0]
    limit_min = rng.choice([1, 1, 2, 3], n)
    weighted = site == "weights"
    nice = rng.integers(0, 300, n) if weighted else np.zeros(n, np.int64)
    urgent = (rng.random(n) < 0.15) & weighted
    rows = zip(gpus.tolist(), asked_s.tolist(), run_s.tolist(), limit_min.tolist(), nice.tolist(), urgent, strict=True)
    return [
        RecordedJob(f"j{row}", count, at_s, seconds, minutes, low, "urgent" if first else "main")
        for row, (count, at_s, seconds, minutes, low, first) in enumerate(rows)
    ]


def record(cluster: ScheduledCluster, jobs: list[RecordedJob]) -> Recording:
    """Submit each job in its turn; return once all are over."""
    log = cluster.directory / "log" / "slurmctld.log"
    skipped, first_s, ids = len(log.read_text(errors="replace")), time.time() + 1, dict[str, RecordedJob]()
    for job in jobs:
        job.asked_s += first_s
        time.sleep(max(0.0, job.asked_s - time.time()))
        ids[_submit(cluster, job)] = job
    await_("all jobs over", lambda: not cluster.run("squeue", "--noheader").strip(), _LATE_S)
    time.sleep(1)
    conf = (cluster.directory / "etc" / "slurm.conf").read_text()
    text = log.read_text(errors="replace")
    began_s = next(at_s for at_s, line in map(_said, text.splitlines()) if line.startswith("Running as primary"))
    found = Recording(cluster.site, conf, cluster.run("sinfo", "--version").strip(), jobs, began_s)
    for line in text[skipped:].splitlines():
        _take(found, ids, line)
    return found


def _submit(cluster: ScheduledCluster, job: RecordedJob) -> str:
    whole = job.gpus > GPUS
    room = (f"-N{job.gpus // GPUS if whole else 1}", f"--gres=gpu:{GPUS if whole else job.gpus}", "--ntasks-per-node=1")
    how = (f"-t{job.limit_min}", f"--nice={job.nice}", f"-p{job.partition}", f"-J{job.name}", "--mem=10")
    # not `cluster.submit`: a shell less for each job
    argv = ("sbatch", "--parsable", "-o", "/dev/null", *room, *how)
    return cluster.run(*argv, stdin=f"#!/bin/sh\nexec sleep {job.run_s}\n").strip().partition(";")[0]


_LINE = re2.compile(r"\[([\d:T.-]+)\] (.*)")
_SUBMITTED = re2.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) .*")
_BY_PASS = re2.compile(r"sched: Allocate JobId=(\d+) NodeList=(\S+) .*")
_BY_CYCLE = re2.compile(r"sched/backfill: _start_job: Started JobId=(\d+) in \S+ on (\S+)")
_ENDED = re2.compile(r"_job_complete: JobId=(\d+) done")
_TESTED = re2.compile(r".*BACKFILL: test for JobId=(\d+) Prio=(\d+) .*")


def _said(line: str) -> tuple[float, str]:
    """When a line was written, and what it says."""
    whole = _LINE.fullmatch(line)
    return (np.nan, "") if whole is None else (datetime.fromisoformat(whole[1]).timestamp(), whole[2])


def _take(found: Recording, ids: dict[str, RecordedJob], line: str) -> None:
    """Read a line of slurmctld's log."""
    at_s, text = _said(line)
    if text.startswith("debug:  sched: Running job scheduler"):
        found.passes_s.append(at_s)
    elif text == "sched/backfill: _attempt_backfill: beginning":
        found.cycles_s.append(at_s)
    elif match := _SUBMITTED.fullmatch(text):
        ids[match[1]].submit_s = at_s
    elif match := _BY_PASS.fullmatch(text) or _BY_CYCLE.fullmatch(text):
        job = ids[match[1]]
        job.start_s, job.by_backfill = at_s, text.startswith("sched/backfill")
        job.nodes = tuple(int(node.removeprefix("node")) - 1 for node in expand(match[2]))
    elif match := _ENDED.fullmatch(text):
        ids[match[1]].end_s = at_s
    elif match := _TESTED.fullmatch(text):
        found.priorities.append((at_s, ids[match[1]].name, int(match[2])))
