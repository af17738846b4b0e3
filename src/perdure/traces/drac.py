"""Jobs of the Digital Research Alliance of Canada that waited at noon: the tables of Mila's study of waits.

They hold only jobs that were still pending at noon, so long waits are over-represented: a load computed from them is
no load of that cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.slurm_words.tres import gpus_and_types
from perdure.traces.clocks import from_wall_clock
from perdure.traces.columns import INSTANT, NUMBER, TEXT, load
from perdure.traces.slurm_cells import slurm_endings
from perdure.traces.source import TraceSource
from perdure.traces.texts import mapped
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Sieve, Trace, gather, whole_counts

ZONE = "America/Toronto"
BIASED = "only jobs that were pending at noon are in it: waits are too long and the load too low"
LATER_POLL = "a job seen again at a later noon"
_ORIGINAL = {
    "job_unique_id": TEXT, "submit_time": INSTANT, "account_id": TEXT, "req_tres": TEXT, "alloc_nodes": NUMBER,
    "state": TEXT, "start_time": INSTANT, "end_time": INSTANT, "elapsed_time": NUMBER, "time_limit_sec": NUMBER,
}  # fmt: skip
_CODED = {
    "job": TEXT, "submit_s": NUMBER, "start_s": NUMBER, "end_s": NUMBER, "poll_s": NUMBER, "time_limit_s": NUMBER,
    "account": TEXT, "nodes": NUMBER, "gpus": NUMBER, "state": TEXT,
}  # fmt: skip

_FURTHER = {"partition": TEXT, "cpus": NUMBER, "eligible_s": NUMBER}


def sniff(head: bytes, _name: str) -> bool:
    return set(map(str.encode, ("job_unique_id", "req_tres", "elapsed_time"))) <= _named(head)


def sniff_coded(head: bytes, _name: str) -> bool:
    return {b"job", b"poll_s", b"time_limit_s"} <= _named(head)


def _named(head: bytes) -> set[bytes]:
    return set(head.split(b"\n", 1)[0].strip().split(b","))


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the published table (97 columns, the first of them unnamed): its clock is Toronto's.

    A job that waited on several days is read once. Columns besides the 16 of Slurm are features, made afterwards.
    """
    columns, sieve = load(source, _ORIGINAL, skip_bad)
    start_s = from_wall_clock(columns["start_time"], ZONE)
    gpus = mapped(columns["req_tres"], lambda tres: gpus_and_types(tres)[0])
    _leave_out(sieve, columns["job_unique_id"], gpus, start_s)
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["job_unique_id"],
        submit_s=from_wall_clock(columns["submit_time"], ZONE),
        gpus=gpus,
        duration_s=columns["elapsed_time"],
        epoch_s=0.0,
        start_s=start_s,
        end_s=from_wall_clock(columns["end_time"], ZONE),
        walltime_s=columns["time_limit_sec"],
        vc=columns["account_id"],
        nodes=whole_counts(columns["alloc_nodes"]),
        ending=slurm_endings(columns["state"]),
        notes=(BIASED,),
    )


def read_coded(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the table whose times are seconds since a day in 2021 and whose jobs and accounts are codes."""
    columns, sieve = load(source, _CODED, skip_bad, optional=_FURTHER)
    _leave_out(sieve, columns["job"], columns["gpus"], columns["start_s"])
    further: dict[str, Any] = {name: columns[name] for name in ("partition", "eligible_s") if name in columns}
    if "cpus" in columns:
        further["cpus"] = whole_counts(columns["cpus"])
    return gather(
        source,
        CODED.name,
        sieve,
        job_id=columns["job"],
        submit_s=columns["submit_s"],
        gpus=columns["gpus"],
        duration_s=columns["end_s"] - columns["start_s"],
        start_s=columns["start_s"],
        end_s=columns["end_s"],
        walltime_s=columns["time_limit_s"],
        vc=columns["account"],
        account=columns["account"],
        **further,
        nodes=whole_counts(columns["nodes"]),
        ending=slurm_endings(columns["state"]),
        notes=(BIASED,),
    )


def _leave_out(sieve: Sieve, job_id: NDArray[np.str_], gpus: NDArray[np.float64], start_s: NDArray[np.float64]) -> None:
    sieve.leave_out(gpus == 0, NO_GPUS)
    sieve.leave_out(np.isnan(start_s), NEVER_STARTED)
    again = np.ones(len(job_id), bool)
    again[np.unique(job_id, return_index=True)[1]] = False
    sieve.leave_out(again, LATER_POLL)


FORMAT = Format("drac", "DRAC's jobs pending at noon, as published (job_unique_id,...,req_tres)", sniff, read)
CODED = Format("drac-coded", "DRAC's jobs pending at noon, coded (job,submit_s,...,poll_s)", sniff_coded, read_coded)
