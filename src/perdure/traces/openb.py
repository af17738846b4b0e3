"""Alibaba's openb (2023): pods that ask for GPUs or for parts of one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.traces.columns import NUMBER, TEXT, load
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Trace, gather, whole_counts

_WANTED = {
    "name": TEXT, "num_gpu": NUMBER, "gpu_milli": NUMBER, "gpu_spec": TEXT, "qos": TEXT, "pod_phase": TEXT,
    "cpu_milli": NUMBER, "memory_mib": NUMBER, "creation_time": NUMBER, "deletion_time": NUMBER,
    "scheduled_time": NUMBER,
}  # fmt: skip
_ENDINGS = {"Succeeded": TableEnding.PASSED, "Failed": TableEnding.FAILED, "Running": TableEnding.KILLED}
_WHOLE_GPU = _WHOLE_CPU = 1000
_CROWDED = 0.99  # of the jobs; the rest came long before them
_DAY_S = 86400


def sniff(head: bytes, _name: str) -> bool:
    return head.startswith(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli")


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the pods with GPUs that ran. A pod that shares a GPU holds a whole one here.

    Every pod has a time of deletion: ``Running`` is a pod that was deleted while it ran, so it was killed. Pods that
    were never scheduled are those whose phase is ``Pending``.
    """
    columns, sieve = load(source, _WANTED, skip_bad)
    created_s, start_s, end_s = (columns[f"{name}_time"] for name in ("creation", "scheduled", "deletion"))
    gpus, phase = columns["num_gpu"], columns["pod_phase"]
    sieve.leave_out(gpus == 0, NO_GPUS)
    sieve.leave_out(np.isnan(start_s), NEVER_STARTED)
    shared = int(((columns["gpu_milli"] < _WHOLE_GPU) & sieve.kept).sum())
    notes = [f"{shared} pods share a GPU; each counts as one whole GPU"] if shared else []
    notes += _crowding(created_s[sieve.kept])
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["name"],
        submit_s=created_s,
        gpus=gpus,
        duration_s=end_s - start_s,
        start_s=start_s,
        end_s=end_s,
        vc=columns["qos"],
        gpu_type=columns["gpu_spec"],
        cpus=whole_counts(np.ceil(columns["cpu_milli"] / _WHOLE_CPU)),
        mem_mib=whole_counts(columns["memory_mib"]),
        ending=np.select([phase == word for word in _ENDINGS], list(_ENDINGS.values()), TableEnding.UNKNOWN).astype(
            np.int8
        ),
        notes=tuple(notes),
    )


def _crowding(created_s: NDArray[np.float64]) -> list[str]:
    """The note that a few old pods stretch the trace, where they do."""
    if not len(created_s):
        return []
    span_s = float(np.ptp(created_s))
    late_s = float(created_s.max() - np.quantile(created_s, 1 - _CROWDED))
    if late_s > span_s / 2:
        return []
    told = f"99% of the pods were created in the last {late_s / _DAY_S:.0f} of {span_s / _DAY_S:.0f} days"
    return [f"{told}: take the old ones out before computing a rate of arrival"]


FORMAT = Format("openb", "Alibaba openb 2023 pods (name,cpu_milli,memory_mib,num_gpu,...)", sniff, read)
