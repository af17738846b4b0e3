"""NREL's Eagle: the published job list of a Slurm cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from perdure.traces.columns import INSTANT, NUMBER, TEXT, load
from perdure.traces.slurm_cells import slurm_endings
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Trace, gather, whole_counts

_WANTED = {
    "job_id": TEXT, "user": TEXT, "account": TEXT, "wallclock_req": NUMBER, "nodes_req": NUMBER, "gpus_req": NUMBER,
    "submit_time": INSTANT, "start_time": INSTANT, "end_time": INSTANT, "run_time": NUMBER, "state": TEXT,
}  # fmt: skip

_FURTHER = {"partition": TEXT, "qos": TEXT, "processors_req": NUMBER}


def sniff(head: bytes, _name: str) -> bool:
    header = set(head.split(b"\n", 1)[0].strip().split(b","))
    return {b"wallclock_req", b"gpus_req", b"run_time"} <= header


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the GPU jobs, which are few: the others, and those that never started, are left out and counted."""
    columns, sieve = load(source, _WANTED, skip_bad, optional=_FURTHER)
    sieve.leave_out(np.nan_to_num(columns["gpus_req"]) == 0, NO_GPUS)
    sieve.leave_out(np.isnan(columns["start_time"]), NEVER_STARTED)
    further: dict[str, Any] = {name: columns[name] for name in ("partition", "qos") if name in columns}
    if "processors_req" in columns:
        further["cpus"] = whole_counts(columns["processors_req"])
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["job_id"],
        submit_s=columns["submit_time"],
        gpus=columns["gpus_req"],
        duration_s=columns["run_time"],
        epoch_s=0.0,
        start_s=columns["start_time"],
        end_s=columns["end_time"],
        walltime_s=columns["wallclock_req"],
        user=columns["user"],
        vc=columns["account"],
        nodes=whole_counts(columns["nodes_req"]),
        account=columns["account"],
        **further,
        ending=slurm_endings(columns["state"]),
        notes=("times are read as UTC: a local clock's change shows as an hour",),
    )


FORMAT = Format("eagle", "NREL Eagle's job list (wallclock_req,gpus_req,...)", sniff, read)
