"""SenseTime's Helios: ``cluster_log.csv`` of one cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from perdure.traces.clocks import from_wall_clock
from perdure.traces.columns import INSTANT, NUMBER, TEXT, load
from perdure.traces.slurm_cells import slurm_endings
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Trace, gather, whole_counts

ZONE = "Asia/Shanghai"
_WANTED = {
    "job_id": TEXT, "user": TEXT, "vc": TEXT, "gpu_num": NUMBER, "node_num": NUMBER, "state": TEXT,
    "submit_time": INSTANT, "start_time": INSTANT, "end_time": INSTANT, "duration": NUMBER,
}  # fmt: skip


def sniff(head: bytes, _name: str) -> bool:
    header = head.split(b"\n", 1)[0].strip().split(b",")
    return {b"job_id", b"gpu_num", b"node_num", b"vc", b"queue"} <= set(header)


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the GPU jobs. CPU jobs, which are about half of them, and jobs that never started are left out."""
    columns, sieve = load(source, _WANTED, skip_bad, optional={"cpu_num": NUMBER})
    further: dict[str, Any] = {"cpus": whole_counts(columns["cpu_num"])} if "cpu_num" in columns else {}
    start_s = from_wall_clock(columns["start_time"], ZONE)
    sieve.leave_out(columns["gpu_num"] == 0, NO_GPUS)
    sieve.leave_out(np.isnan(start_s), NEVER_STARTED)
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["job_id"],
        submit_s=from_wall_clock(columns["submit_time"], ZONE),
        gpus=columns["gpu_num"],
        duration_s=columns["duration"],
        epoch_s=0.0,
        start_s=start_s,
        end_s=from_wall_clock(columns["end_time"], ZONE),
        user=columns["user"],
        vc=columns["vc"],
        nodes=whole_counts(columns["node_num"]),
        ending=slurm_endings(columns["state"]),
        **further,
    )


FORMAT = Format("helios", "SenseTime Helios (cluster_log.csv)", sniff, read)
