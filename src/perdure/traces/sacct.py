"""Slurm's accounting as text: ``sacct --parsable2``, of any columns that hold the ones that are needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import Attempts, TableEnding
from perdure.traces.sacct_columns import EXPORT, Records
from perdure.traces.slurm_cells import slurm_endings, were_preempted
from perdure.traces.source import TraceSource
from perdure.traces.texts import side_by_side
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Sieve, Trace, gather

STEPS = "steps of jobs"
UNFINISHED = "not ended yet"
_MOST_NAMED = 3
_WAITING = ("PENDING", "REQUEUE_HOLD")
_UNDER_WAY = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING")


def sniff(head: bytes, _name: str) -> bool:
    header = head.split(b"\n", 1)[0].replace(b"|#", b"|").strip().split(b"|")
    return b"JobID" in header and b"State" in header


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the GPU jobs that have ended. Several records of one job id (``--duplicates``) are its attempts.

    A record that ended because the job was preempted is no failure: it is counted, and what the job ran in it belongs
    to the attempt that follows, since nothing tells how much of it was kept.
    Steps, jobs without GPUs, jobs that never started, jobs that have not ended and jobs in a state that is not known
    are left out and counted. So are the earlier attempts of a job that was put back and waits or runs again: they would
    look like a job that failed for good. An account is a virtual cluster; without that column it is the partition.
    Times that tell no offset are read as UTC.
    """
    seen = Records.of(source)
    sieve = Sieve(len(seen), lambda row: source.at_line(int(seen.line[row])), skip_bad)
    sieve.leave_out(seen.is_step, STEPS)
    sieve.bad(seen.broken, "the record has not as many columns as the header", EXPORT)
    open_again = _has_open_record(seen)
    sieve.leave_out(np.isnan(seen.start_s) | np.isin(seen.state, _WAITING), NEVER_STARTED)
    sieve.leave_out(np.isin(seen.state, _UNDER_WAY) | open_again, UNFINISHED)
    sieve.leave_out(seen.gpus == 0, NO_GPUS)
    strange = slurm_endings(seen.state) == TableEnding.UNKNOWN
    names = ", ".join(sorted(set(seen.state[strange & sieve.kept].tolist()))[:_MOST_NAMED])
    sieve.leave_out(strange, f"their state is not an ending that Slurm knows ({names})")
    sieve.bad(np.isnan(seen.elapsed_s), "the elapsed time is missing or no time", EXPORT)
    sieve.bad(np.isnan(seen.submit_s), "the submit time is missing or no time", EXPORT)
    rows, job = _by_job(seen, sieve.kept)
    again = np.zeros(len(seen), bool)
    again[rows[1:]] = (job[1:] == job[:-1]) & (seen.start_s[rows[1:]] == seen.start_s[rows[:-1]])
    sieve.bad(again, "the record was there before", "Export it once", seen.job_id)
    return _jobs(source, seen, sieve, rows[sieve.kept[rows]], job[sieve.kept[rows]])


def _has_open_record(seen: Records) -> NDArray[np.bool_]:
    """Whether the job of each record waits or runs."""
    of = np.unique(seen.job_id[np.isin(seen.state, (*_WAITING, *_UNDER_WAY))])
    return np.isin(seen.job_id, of)


def _by_job(seen: Records, kept: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows kept, attempts of one job next to each other by their starts; and of each row a number of its job."""
    rows = np.flatnonzero(kept)
    by_id, first = side_by_side(seen.job_id[rows])
    if first.all():  # nothing to bring together
        return rows, rows
    new = np.flatnonzero(first)
    job = np.empty_like(rows)  # the first row of each job
    job[by_id] = np.repeat(by_id[new], np.diff(np.append(new, len(rows))))
    order = np.lexsort((seen.start_s[rows], job))
    return rows[order], job[order]


def _jobs(source: TraceSource, seen: Records, sieve: Sieve, rows: NDArray[np.intp], job: NDArray[np.intp]) -> Trace:
    """One row a job: what it asked for is in its last record, its submit in its first."""
    begins = np.flatnonzero(np.diff(job, prepend=-1))
    bounds = np.append(begins, len(rows))
    head, tail = rows[bounds[:-1]], rows[bounds[1:] - 1]
    elapsed = seen.elapsed_s[rows]
    ending = slurm_endings(seen.state[rows])
    yielded = were_preempted(seen.state[rows])
    yielded[bounds[1:] - 1] = False  # of one that did not come back it is the end
    tries = np.flatnonzero(~yielded)  # the last record of each attempt
    preempted = np.add.reduceat(yielded, begins, dtype=np.int64) if len(rows) else np.empty(0, np.int64)
    jobs = Sieve(len(head), lambda row: source.at_line(int(seen.line[head[row]])), sieve.skip_bad)
    jobs.left_out = sieve.left_out
    vc = seen.vc[tail]
    requeued = len(tries) - len(head)
    notes = ["times without an offset are read as UTC: a local clock's change shows as an hour"]
    if requeued:
        notes.append(f"{requeued} records are further attempts of jobs that were put back")
    if yielded.any():
        notes.append(f"{yielded.sum()} records end with a preemption: what ran in them counts as work, not as failed")
    return gather(
        source,
        FORMAT.name,
        jobs,
        job_id=seen.job_id[head],
        submit_s=seen.submit_s[head],
        gpus=seen.gpus[tail],
        duration_s=np.add.reduceat(elapsed, begins) if len(rows) else np.empty(0),
        epoch_s=0.0,
        attempts=Attempts(np.searchsorted(tries, bounds), _sums(elapsed, tries), ending[tries] == TableEnding.PASSED),
        notes=tuple(notes),
        start_s=seen.start_s[head],
        end_s=seen.start_s[tail] + seen.elapsed_s[tail],
        walltime_s=seen.limit_s[tail],
        user=seen.user[tail],
        vc=vc,
        partition=seen.partition[tail],
        account=vc if source.head.split(b"\n", 1)[0].count(b"Account") else np.empty(0, "U1"),
        qos=seen.qos[tail],
        cpus=seen.cpus[tail],
        mem_mib=seen.mem_mib[tail],
        eligible_s=seen.eligible_s[head],
        preempted=preempted if preempted.any() else np.empty(0, np.int64),
        nodes=seen.nodes[tail],
        gpu_type=seen.gpu_type[tail],
        ending=ending[bounds[1:] - 1],
    )


def _sums(elapsed: NDArray[np.float64], ends: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sums of stretches that end with these rows, each beginning behind the one before."""
    sums: NDArray[np.float64] = np.diff(np.cumsum(elapsed)[ends], prepend=0.0)
    return sums


FORMAT = Format("sacct", "Slurm accounting text (sacct --parsable2)", sniff, read)
