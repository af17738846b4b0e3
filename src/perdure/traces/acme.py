"""Shanghai AI Laboratory's Acme: ``trace_seren.csv`` and ``trace_kalos.csv``.

Source: Q. Hu et al., "Characterization of large language model development in the datacenter", NSDI 2024; data:
InternLM/AcmeTrace.
"""

from __future__ import annotations

import numpy as np

from perdure.traces.columns import NUMBER, TEXT, load
from perdure.traces.slurm_cells import instants, slurm_endings
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Trace, gather, whole_counts

_WANTED = {
    "job_id": TEXT, "user": TEXT, "node_num": NUMBER, "gpu_num": NUMBER, "cpu_num": NUMBER, "type": TEXT, "state": TEXT,
    "submit_time": TEXT, "start_time": TEXT, "end_time": TEXT,
}  # fmt: skip


def sniff(head: bytes, _name: str) -> bool:
    header = set(head.split(b"\n", 1)[0].strip().split(b","))
    return {b"job_id", b"gpu_num", b"node_num", b"type", b"queue", b"gpu_time"} <= header


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the GPU jobs. CPU jobs, those that never started and those that still ran are left out.

    Times say their offset. Running times are from start to end: the column ``duration`` of Kalos counts the wait as
    well. The kind of work (``type``) stands where others have a virtual cluster.
    """
    columns, sieve = load(source, _WANTED, skip_bad)
    submit_s, start_s, end_s = (
        instants(np.char.encode(columns[name])) for name in ("submit_time", "start_time", "end_time")
    )
    sieve.leave_out(columns["gpu_num"] == 0, NO_GPUS)
    sieve.leave_out(np.isnan(start_s), NEVER_STARTED)
    sieve.leave_out(np.isnan(end_s), "not ended yet")
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["job_id"],
        submit_s=submit_s,
        gpus=columns["gpu_num"],
        duration_s=end_s - start_s,
        epoch_s=0.0,
        start_s=start_s,
        end_s=end_s,
        user=columns["user"],
        vc=columns["type"],
        nodes=whole_counts(columns["node_num"]),
        cpus=whole_counts(columns["cpu_num"]),
        ending=slurm_endings(columns["state"]),
    )


FORMAT = Format("acme", "Shanghai AI Laboratory's Acme (trace_seren.csv, trace_kalos.csv)", sniff, read)
