"""MIT SuperCloud's ``slurm-log.csv``: raw rows of Slurm's database, in the codes that it keeps there."""

from __future__ import annotations

import numpy as np
import re2
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.traces.columns import NUMBER, TEXT, load
from perdure.traces.source import TraceSource
from perdure.traces.texts import mapped
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Trace, gather, whole_counts

_WANTED = {
    "id_user": TEXT, "nodes_alloc": NUMBER, "partition": TEXT, "state": NUMBER, "timelimit": NUMBER,
    "time_submit": NUMBER, "time_start": NUMBER, "time_end": NUMBER, "tres_alloc": TEXT, "tres_req": TEXT,
}  # fmt: skip
_UNLIMITED = 4294967295
_MINUTE_S = 60
_CODES = {3: TableEnding.PASSED, 4: TableEnding.KILLED, 6: TableEnding.KILLED}
_FAILURES = (5, 7, 11)  # FAILED, NODE_FAIL, OUT_OF_MEMORY
_GPUS = re2.compile(r"(?:^|,)100[12]=(\d{1,6})")  # the two kinds of gres/gpu, in the numbers of this database


def sniff(head: bytes, _name: str) -> bool:
    header = set(head.split(b"\n", 1)[0].strip().split(b","))
    return {b"id_job", b"time_submit", b"tres_alloc", b"state"} <= header


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the GPU jobs. Their ids were published as rounded numbers that several share, so rows number the jobs.

    The columns that end in ``_norm`` are made of what is to be foretold, and are not read.
    """
    columns, sieve = load(source, _WANTED, skip_bad)
    start_s, end_s = columns["time_start"], columns["time_end"]
    gpus = _gpus(np.where(columns["tres_alloc"] == "", columns["tres_req"], columns["tres_alloc"]))
    sieve.leave_out(gpus == 0, NO_GPUS)
    sieve.leave_out(~(start_s > 0), NEVER_STARTED)
    sieve.leave_out(~(end_s > 0), "not ended yet")
    limits = columns["timelimit"]
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=None,
        submit_s=columns["time_submit"],
        gpus=gpus,
        duration_s=end_s - start_s,
        epoch_s=0.0,
        start_s=start_s,
        end_s=end_s,
        walltime_s=np.where(limits == _UNLIMITED, np.nan, limits * _MINUTE_S),
        user=columns["id_user"],
        vc=columns["partition"],
        nodes=whole_counts(columns["nodes_alloc"]),
        ending=_endings(columns["state"]),
        notes=("jobs are numbered by their rows: the published ids are rounded, and several jobs share one",),
    )


def _gpus(tres: NDArray[np.str_]) -> NDArray[np.float64]:
    return mapped(tres, lambda text: sum(map(int, _GPUS.findall(text))))


def _endings(codes: NDArray[np.float64]) -> NDArray[np.int8]:
    endings = np.full(len(codes), TableEnding.UNKNOWN, np.int8)
    for code, ending in {**_CODES, **dict.fromkeys(_FAILURES, TableEnding.FAILED)}.items():
        endings[codes == code] = ending
    return endings


FORMAT = Format("supercloud", "MIT SuperCloud's slurm-log.csv (id_job,time_submit,tres_alloc,...)", sniff, read)
