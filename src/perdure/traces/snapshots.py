"""Looks at waiting jobs: the noon snapshots of the Digital Research Alliance of Canada, as published or coded.

Columns that were computed from how long jobs really ran are not read, nor is when a job became eligible: both can lie
after the look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.queue_looks import FAIR, MEASURES, SCOPES, QueueLooks
from perdure.slurm_words.tres import gpus_and_types
from perdure.traces.columns import INSTANT, NUMBER, TEXT, ColumnKind, load, look
from perdure.traces.texts import mapped
from perdure.traces.trace import Sieve

CODED_DAY_ZERO = date(2021, 5, 1)  # of the coded files, on the cluster's own clock
_DAY_S = 86_400.0
_MEASURES = dict(zip(MEASURES, ("jobs", "cores", "mem", "core_hours", "gpus", "gpu_hours"), strict=True))
_SCOPES = dict(zip(SCOPES, ("", "p_", "a_", "p_a_"), strict=True))
_FAIR = dict(
    zip(FAIR, ("raw_share", "norm_share", "raw_use", "effect_use", "level_fs", "norm_use"), strict=True),
)
_STATE: Mapping[str, str] = MappingProxyType(
    {
        **{
            f"{which}_{measure}{scope}": f"{letter}_{_SCOPES[scope]}{theirs}_above"
            for which, letter in (("pending", "q"), ("running", "r"))
            for measure, theirs in _MEASURES.items()
            for scope in SCOPES
        },
        **{name: f"{theirs}_poll" for name, theirs in _FAIR.items()},
    }
)  # ours -> theirs, the same in both forms


@dataclass(frozen=True, slots=True)
class _Form:
    """What the columns are called. Slurm's text of what was asked for stands for `gpus` and `nodes` where there is one.

    The published count of nodes is of those that the job was given once it started.
    """

    job: str
    submit: str
    start: str
    poll: str
    limit: str
    partition: str
    account: str
    cpus: str
    mem: str
    nodes: str
    gpus: str
    priority: str
    clock: ColumnKind
    resources: ColumnKind

    def wanted(self) -> dict[str, ColumnKind]:
        numbers = (self.limit, self.partition, self.account, self.cpus, self.mem, self.priority)
        return {
            self.job: TEXT,
            **dict.fromkeys((self.submit, self.start, self.poll), self.clock),
            **dict.fromkeys(numbers, NUMBER),
            **dict.fromkeys((self.nodes, self.gpus), self.resources),
        }


_CODED = _Form(
    "job", "submit_s", "start_s", "poll_s", "time_limit_s", "partition", "account", "cpus", "mem_mb", "nodes", "gpus",
    "priority_poll", NUMBER, NUMBER,
)  # fmt: skip
_PUBLISHED = _Form(
    "job_unique_id", "submit_time", "start_time", "poll_time", "time_limit_sec", "partition_id_x", "account_id",
    "req_cpus", "req_mem_total", "req_tres", "req_tres", "priority_y", INSTANT, TEXT,
)  # fmt: skip


def read_looks(path: Path | str, *, skip_bad: bool = False) -> QueueLooks:
    """Read the looks of a CSV or Parquet file, in its order. Raises `InputError`, and `MissingExtra` without DuckDB."""
    source = look(path)
    form = _PUBLISHED if _PUBLISHED.job in source.header else _CODED
    columns, sieve = load(source, form.wanted(), skip_bad, optional=dict.fromkeys(_STATE.values(), NUMBER))
    submit_s, start_s, poll_s = columns[form.submit], columns[form.start], columns[form.poll]
    _judge(sieve, columns[form.job], submit_s, start_s, poll_s)
    kept = np.flatnonzero(sieve.kept)
    if not len(kept):
        raise InputError(source.at_line(1), "no look at a waiting job is in it", "Name a file of DRAC's snapshots")
    day_zero, origin_s = CODED_DAY_ZERO, 0.0
    if form.clock is INSTANT:
        origin_s = float(poll_s[kept].min() // _DAY_S * _DAY_S)
        day_zero = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=origin_s)).date()

    def number(name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = np.asarray(columns[name], np.float64)[kept]
        return values

    def code(name: str) -> NDArray[np.int64]:
        return np.nan_to_num(number(name), nan=-1.0, posinf=-1.0, neginf=-1.0).astype(np.int64)

    nodes, gpus = columns[form.nodes], columns[form.gpus]
    if form.resources is TEXT:
        nodes, gpus = mapped(nodes, _nodes), mapped(gpus, lambda tres: gpus_and_types(tres)[0])
    start_s, poll_s = start_s - origin_s, poll_s - origin_s
    return QueueLooks(
        job=columns[form.job][kept],
        poll_s=poll_s[kept],
        submit_s=submit_s[kept] - origin_s,
        start_s=start_s[kept],
        seen_until_s=np.where(np.isfinite(start_s), start_s, poll_s)[kept],
        partition=code(form.partition),
        account=code(form.account),
        nodes=np.asarray(nodes, np.float64)[kept],
        cpus=number(form.cpus),
        gpus=np.asarray(gpus, np.float64)[kept],
        mem_mib=number(form.mem),
        limit_s=number(form.limit),
        priority=number(form.priority),
        day_zero=day_zero,
        state={ours: number(theirs) for ours, theirs in _STATE.items() if theirs in columns},
    )


def _nodes(tres: str) -> float:
    """The nodes that a list of resources asks for: ``cpu=4,mem=8192M,node=2``; NaN where it names none."""
    named = [part.removeprefix("node=") for part in tres.split(",") if part.startswith("node=")]
    return float(named[0]) if named and named[0].isdecimal() else float("nan")


def _judge(
    sieve: Sieve,
    job: NDArray[Any],
    submit_s: NDArray[np.float64],
    start_s: NDArray[np.float64],
    poll_s: NDArray[np.float64],
) -> None:
    with np.errstate(invalid="ignore"):
        before = start_s < poll_s
    sieve.bad(job == "", "the job has no id", "Give every job its id")
    sieve.bad(~np.isfinite(poll_s), "the time of the look is missing or not a time", "Give it")
    sieve.bad(~np.isfinite(submit_s), "the submit time is missing or not a time", "Give it")
    sieve.bad(before, "the job started before it was looked at", "Keep only looks at waiting jobs")
    with np.errstate(invalid="ignore"):
        sieve.bad(submit_s > poll_s, "the job was submitted after it was looked at", "Give the instant of the look")
