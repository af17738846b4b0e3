"""The cluster's own past as a trace: what a simulation replays, and on which nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select

from perdure.errors import InputError
from perdure.model.jobs import AttemptState, JobState
from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.service.store import codec
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import attempts, jobs, nodes
from perdure.traces.sacct import UNFINISHED
from perdure.traces.slurm_cells import slurm_ending
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Trace

FORMAT = "history"
MAX_JOBS = 500_000  # the latest
_OVER = tuple(state.value for state in JobState if state.is_over)
_WIDEST = 128  # characters of a name that are kept: a column is as wide as its longest


@dataclass(frozen=True, slots=True)
class Extent:
    """How much history there is."""

    jobs: int
    since_s: float | None  # the first submit; None where there are no jobs


def extent(reader: Reader) -> Extent:
    """Jobs with GPUs that are over."""
    j = jobs.c
    row = reader.first(
        select(func.count().label("number"), func.min(j.submit_s).label("first")).where(
            reader.owns(jobs), j.state.in_(_OVER), j.gpus > 0
        )
    )
    return Extent(row.number, row.first)


def cluster_spec(reader: Reader) -> str:
    """The nodes with GPUs as the simulator writes them, "4x8" or "8x4+2x8"; "" where there are none."""
    rows = reader.all(select(as_text(nodes.c.payload).label("payload")).where(nodes.c.cluster == reader.cluster))
    counts = Counter(codec.NODE.decode(row.payload).gpus for row in rows)
    return "+".join(f"{count}x{gpus}" for gpus, count in sorted(counts.items()) if gpus > 0)


def history(reader: Reader, most_jobs: int = MAX_JOBS) -> Trace:
    """The latest jobs with GPUs that ran and are over, with every attempt and how it ended.

    Partitions are virtual clusters. What is left out is counted. Raises `InputError` where no job is left.
    """
    tried = _attempts(reader)
    kept: list[tuple[Any, list[Any]]] = []
    left_out: Counter[str] = Counter()
    for job in _jobs(reader, most_jobs):
        runs = tried.get(job.job_id, [])
        if why := _why_not(job, runs):
            left_out[why] += 1
        else:
            kept.append((job, runs))
    if not kept:
        raise InputError("history", "no job with GPUs has ended yet", "Wait until some have, or upload a trace")
    return Trace(_table(kept), FORMAT, dict(left_out), ("partitions count as virtual clusters",))


def _jobs(reader: Reader, most: int) -> Sequence[Any]:
    j = jobs.c
    limit = j.payload["walltime_s"].as_float().label("walltime_s")
    query = select(j.job_id, j.user, j.partition, j.state, j.gpus, j.node_count, j.submit_s, limit)
    return reader.all(query.where(reader.owns(jobs)).order_by(j.seq.desc()).limit(most))


def _attempts(reader: Reader) -> dict[str, list[Any]]:
    """Attempts that are over, by job, the first one first."""
    a = attempts.c
    query = select(a.job_id, a.state, a.start_s, a.end_s).where(a.cluster == reader.cluster, a.end_s.is_not(None))
    found: dict[str, list[Any]] = {}
    for row in reader.all(query.order_by(a.job_id, a.incarnation)):
        found.setdefault(row.job_id, []).append(row)
    return found


def _why_not(job: Any, runs: Sequence[Any]) -> str:
    """Why a job cannot be replayed; "" where it can."""
    if job.state not in _OVER:
        return UNFINISHED
    if job.gpus <= 0:
        return NO_GPUS
    return "" if runs else NEVER_STARTED


def _table(kept: Sequence[tuple[Any, list[Any]]]) -> JobTable:
    every = [run for _, runs in kept for run in runs]
    first = np.concatenate([[0], np.cumsum([len(runs) for _, runs in kept])]).astype(np.int64)
    took_s = np.array([max(0.0, run.end_s - run.start_s) for run in every])
    passed = np.array([run.state == AttemptState.COMPLETED for run in every])
    began_s = min(job.submit_s for job, _ in kept)
    found = [job for job, _ in kept]
    limits = [job.walltime_s for job in found]
    return JobTable(
        job_id=_names(job.job_id for job in found),
        submit_s=np.array([job.submit_s for job in found]) - began_s,
        gpus=np.array([job.gpus for job in found], np.int64),
        duration_s=np.add.reduceat(took_s, first[:-1]),
        user=_names(job.user for job in found),
        vc=(partition := _names(job.partition for job in found)),
        partition=partition,
        ending=np.array([_ENDINGS[runs[-1].state] for _, runs in kept], np.int8),
        start_s=np.array([runs[0].start_s for _, runs in kept]) - began_s,
        end_s=np.array([runs[-1].end_s for _, runs in kept]) - began_s,
        walltime_s=np.array([np.nan if limit is None else limit for limit in limits], np.float64),
        nodes=np.array([job.node_count for job in found], np.int64),
        attempts=Attempts(first, took_s, passed),
        began_s=began_s,
    ).by_submit()


def _names(texts: Iterable[str]) -> NDArray[np.str_]:
    return np.array([text[:_WIDEST] for text in texts], np.str_)


def _ending(state: AttemptState) -> TableEnding:
    """What the service counts as a failure failed, so that the same attempts fail here as on its page."""
    if state.is_failure:
        return TableEnding.FAILED
    known = slurm_ending(state.value.upper())
    return TableEnding.KILLED if known is TableEnding.UNKNOWN and state.is_over else known


_ENDINGS = {state.value: _ending(state) for state in AttemptState}
