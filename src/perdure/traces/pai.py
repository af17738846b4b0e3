"""Alibaba's PAI (2020): ``pai_job_table.csv``, with ``pai_task_table.csv`` next to it; both without a header line.

Source: Q. Weng et al., "MLaaS in the wild: workload analysis and scheduling in large-scale heterogeneous GPU clusters",
NSDI 2022; data: alibaba/clusterdata, cluster-trace-gpu-v2020.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import TableEnding
from perdure.traces.columns import NUMBER, TEXT, load, look
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Sieve, Trace, gather, whole_counts

_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASKS = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
          "gpu_type")  # fmt: skip
_JOB_KINDS = {"job_name": TEXT, "user": TEXT, "status": TEXT, "start_time": NUMBER}
_TASK_KINDS = {"job_name": TEXT, "inst_num": NUMBER, "start_time": NUMBER, "end_time": NUMBER, "plan_cpu": NUMBER,
               "plan_mem": NUMBER, "plan_gpu": NUMBER, "gpu_type": TEXT}  # fmt: skip
_ENDINGS = {"Terminated": TableEnding.PASSED, "Failed": TableEnding.FAILED}
_STATUSES = (b"Terminated", b"Failed", b"Running", b"Waiting")
_PERCENT = 100


def sniff(head: bytes, _name: str) -> bool:
    fields = head.split(b"\n", 1)[0].strip().split(b",")
    return len(fields) == len(_JOBS) and (fields[3] in _STATUSES or fields == [name.encode() for name in _JOBS])


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the jobs with GPUs that are over. A job waits until its first task starts, and runs until its last ends.

    An instance that shares a GPU holds a whole one here. Times are shifted by the publisher, but keep the day of the
    week and the hour in Shanghai's clock. Raises `InputError` too where the table of tasks is missing.
    """
    columns, sieve = load(_named(source, _JOBS), _JOB_KINDS, skip_bad)
    names = columns["job_name"]
    tasks, shared = _tasks(source, names, sieve)
    status = columns["status"]
    sieve.leave_out((status == "Waiting") | np.isnan(tasks["start_s"]), NEVER_STARTED)
    sieve.leave_out(tasks["gpus"] == 0, NO_GPUS)
    sieve.leave_out((status == "Running") | np.isnan(tasks["end_s"]), "not ended yet")
    sharing = int((shared & sieve.kept).sum())
    found = gather(
        source,
        FORMAT.name,
        sieve,
        job_id=names,
        submit_s=columns["start_time"],
        gpus=tasks["gpus"],
        duration_s=tasks["end_s"] - tasks["start_s"],
        epoch_s=0.0,
        start_s=tasks["start_s"],
        end_s=tasks["end_s"],
        user=columns["user"],
        gpu_type=tasks["gpu_type"],
        cpus=whole_counts(np.ceil(tasks["cpus"])),
        mem_mib=whole_counts(np.ceil(tasks["mem_gib"] * 1024)),
        ending=np.select([status == word for word in _ENDINGS], list(_ENDINGS.values()), TableEnding.UNKNOWN).astype(
            np.int8
        ),
        notes=(f"{sharing} jobs share GPUs; each instance counts as one whole GPU",) if sharing else (),
    )
    return replace(found, beside=(_path_of_tasks(source),))


def _tasks(source: TraceSource, jobs: NDArray[np.str_], sieve: Sieve) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Of each job its GPUs, CPUs, memory, kind of GPU, first start and last end; and whether it shares GPUs."""
    path = _path_of_tasks(source)
    if path == source.path or not path.exists():
        what = "the GPUs of PAI's jobs are in pai_task_table.csv, and it is not here"
        raise InputError(str(path), what, "Put it next to pai_job_table.csv, under its own name")
    found = _named(look(path, source.most_bytes), _TASKS)
    told, tasks = load(found, _TASK_KINDS, sieve.skip_bad)
    for reason, count in tasks.left_out.items():
        sieve.leave_out(np.zeros(len(jobs), bool), f"{reason} (of a task)", count)
    known = np.isin(told["job_name"], jobs)
    told = {name: values[known] for name, values in told.items()}
    order = np.argsort(jobs, kind="stable")
    of_job = order[np.searchsorted(jobs, told["job_name"], sorter=order)]
    instances, percent = np.nan_to_num(told["inst_num"]), np.nan_to_num(told["plan_gpu"])
    start_s, end_s = np.full(len(jobs), np.inf), np.full(len(jobs), -np.inf)
    np.fmin.at(start_s, of_job, told["start_time"])
    np.fmax.at(end_s, of_job, told["end_time"])
    kinds = np.full(len(jobs), "", told["gpu_type"].dtype)
    with_gpus = percent > 0
    kinds[of_job[with_gpus]] = told["gpu_type"][with_gpus]
    columns = {
        "gpus": np.bincount(of_job, instances * np.ceil(percent / _PERCENT), len(jobs)),
        "cpus": np.bincount(of_job, instances * np.nan_to_num(told["plan_cpu"]) / _PERCENT, len(jobs)),
        "mem_gib": np.bincount(of_job, instances * np.nan_to_num(told["plan_mem"]), len(jobs)),
        "start_s": np.where(np.isfinite(start_s), start_s, np.nan),
        "end_s": np.where(np.isfinite(end_s), end_s, np.nan),
        "gpu_type": kinds,
    }
    return columns, np.bincount(of_job, percent % _PERCENT, len(jobs)) > 0


def _path_of_tasks(source: TraceSource) -> Path:
    return source.path.with_name(source.path.name.replace("job", "task"))


def _named(source: TraceSource, names: tuple[str, ...]) -> TraceSource:
    """The table with its names, where nobody has put them above it."""
    return source if source.header[:1] == [names[0]] else replace(source, names=names)


FORMAT = Format("pai", "Alibaba PAI 2020 (pai_job_table.csv, with pai_task_table.csv next to it)", sniff, read)
