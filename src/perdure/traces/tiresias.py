"""The job lists of Tiresias, and those of Muri and Chronus, which grew out of them with other units."""

from __future__ import annotations

import numpy as np

from perdure.traces.columns import NUMBER, TEXT, load
from perdure.traces.source import TraceSource
from perdure.traces.trace import NO_GPUS, Format, Trace, gather

_WANTED = {"job_id": TEXT, "num_gpu": NUMBER, "submit_time": NUMBER, "duration": NUMBER}
_BASE = (b"job_id", b"num_gpu", b"submit_time", b"duration", b"model_name")


def _named(head: bytes) -> set[bytes]:
    return {name.strip() for name in head.split(b"\n", 1)[0].split(b",")}


def sniff(head: bytes, _name: str) -> bool:
    named = _named(head)
    return named.issuperset(_BASE) and not named & {b"iteration_time", b"expect_time_list"}


def sniff_muri(head: bytes, _name: str) -> bool:
    return _named(head).issuperset((*_BASE, b"iteration_time"))


def sniff_chronus(head: bytes, _name: str) -> bool:
    return _named(head).issuperset((*_BASE, b"expect_time_list"))


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read a job list in seconds; ``iterations`` and ``interval`` repeat what duration and submit say."""
    return _read(source, skip_bad, "tiresias", 1.0)


def read_muri(source: TraceSource, skip_bad: bool) -> Trace:
    """Read a job list in milliseconds."""
    return _read(source, skip_bad, "muri", 0.001)


def read_chronus(source: TraceSource, skip_bad: bool) -> Trace:
    """Read a job list in minutes. Its ``user`` is a virtual cluster; rows with 0 GPUs are left out and counted."""
    return _read(source, skip_bad, "chronus", 60.0)


def _read(source: TraceSource, skip_bad: bool, form: str, unit_s: float) -> Trace:
    columns, sieve = load(source, _WANTED, skip_bad, optional={"user": TEXT})
    gpus = columns["num_gpu"]
    if form == "chronus":
        sieve.leave_out(gpus == 0, NO_GPUS)
    return gather(
        source,
        form,
        sieve,
        job_id=columns["job_id"],
        submit_s=columns["submit_time"] * unit_s,
        gpus=gpus,
        duration_s=columns["duration"] * unit_s,
        origin_s=0.0,
        vc=columns.get("user", np.empty(0, "U1")),
    )


FORMAT = Format("tiresias", "Tiresias' simulator (job_id,num_gpu,submit_time,...; seconds)", sniff, read)
MURI = Format("muri", "Muri's simulator (like Tiresias', milliseconds)", sniff_muri, read_muri)
CHRONUS = Format("chronus", "Chronus' simulator (like Tiresias', minutes)", sniff_chronus, read_chronus)
