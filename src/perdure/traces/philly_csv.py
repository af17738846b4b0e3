"""The Philly job list of the Pollux and Sia artifacts: a CSV of submit, duration, GPUs and virtual cluster."""

from __future__ import annotations

import numpy as np

from perdure.traces.clocks import from_wall_clock
from perdure.traces.columns import INSTANT, NUMBER, TEXT, load
from perdure.traces.source import TraceSource
from perdure.traces.trace import Format, Trace, gather

ZONE = "America/Los_Angeles"
_WANTED = {"timestamp": INSTANT, "duration": NUMBER, "num_gpus": NUMBER, "cluster": TEXT}


def sniff(head: bytes, _name: str) -> bool:
    return head.startswith(b"timestamp,duration,num_gpus,")


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the job list. Its clock is that of the US west coast, daylight saving included; it names no jobs.

    Rows that are equal in all columns are kept: two equal jobs of one second cannot be told from a copy.
    """
    columns, sieve = load(source, _WANTED, skip_bad)
    submit_s, duration_s, gpus = columns["timestamp"], columns["duration"], columns["num_gpus"]
    trace = gather(
        source,
        FORMAT.name,
        sieve,
        job_id=None,
        submit_s=from_wall_clock(submit_s, ZONE),
        gpus=gpus,
        duration_s=duration_s,
        epoch_s=0.0,
        vc=columns["cluster"],
    )
    repeated = _repeated(trace)
    note = f"{repeated} rows repeat another row in all columns; they are kept, for the form has no job ids"
    return Trace(trace.table, trace.format, trace.left_out, (note,)) if repeated else trace


def _repeated(trace: Trace) -> int:
    """How many rows equal an earlier one. Only rows of one second are compared, so sorting them is little work."""
    jobs = trace.table
    same = np.flatnonzero(np.diff(jobs.submit_s) == 0)
    rows = np.unique(np.concatenate([same, same + 1]))
    keys = (jobs.vc[rows], jobs.gpus[rows], jobs.duration_s[rows], jobs.submit_s[rows])
    order = np.lexsort(keys)
    equal = [key[order][1:] == key[order][:-1] for key in keys]
    return int(np.logical_and.reduce(equal).sum()) if len(rows) else 0


FORMAT = Format("philly-csv", "Philly job list of Pollux and Sia (timestamp,duration,num_gpus,...)", sniff, read)
