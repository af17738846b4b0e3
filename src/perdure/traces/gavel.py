"""Gavel's traces: jobs in training steps, so that seconds need a table of rates next to the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from perdure.errors import InputError
from perdure.model.profiles import AdaptiveJobs
from perdure.traces.columns import NUMBER, TEXT, load, look
from perdure.traces.source import TraceSource
from perdure.traces.trace import MAX_COUNT, MAX_GPUS, MAX_S, Format, Sieve, Trace, gather

_JOB_TYPE = 0
# Columns by how many there are: (steps, GPUs, arrival in seconds).
_PLACES: Mapping[int, tuple[int, int, int]] = {7: (4, 6, 5), 10: (5, 6, 9)}
_RATES = ".rates.csv"
_FIX = "Put a CSV of job,scale_factor,steps_per_s there: how fast each kind of job trains"


def sniff(head: bytes, _name: str) -> bool:
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    return bool(lines) and lines[0].count(b"\t") + 1 in _PLACES and b"(batch size" in lines[0].split(b"\t")[_JOB_TYPE]


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read a trace with the rates in ``<trace>.rates.csv``; of several rates of a job the best GPU's counts.

    ``# <name>`` lines begin a virtual cluster. Jobs have no ids, so a line that repeats another is a job of its own.
    """
    beside = Path(f"{source.path}{_RATES}")
    rates = _rates(beside, source.most_bytes)
    jobs = list(_jobs(source))
    line, fields, vc = zip(*jobs, strict=True) if jobs else ((), (), ())
    sieve = Sieve(len(jobs), lambda row: source.at_line(line[row]), skip_bad)
    told = [_numbers(row) for row in fields]
    steps, gpus, submit_s = np.array([numbers or (np.nan,) * 3 for numbers in told], np.float64).reshape(-1, 3).T
    per_s = np.array([rates.get((row[_JOB_TYPE], float(gpu)), np.nan) for row, gpu in zip(fields, gpus, strict=True)])
    broken = np.array([numbers is None for numbers in told], bool)
    sieve.bad(broken, "the line has neither 7 nor 10 columns, or a word that is not a number", "Fix the line")
    kinds = np.array([row[_JOB_TYPE] for row in fields])
    sieve.bad(np.isnan(per_s) & (gpus > 0), "the rates do not say how fast the job trains", "Add it", kinds)
    found = gather(
        source,
        FORMAT.name,
        sieve,
        job_id=None,
        submit_s=submit_s,
        gpus=gpus,
        duration_s=steps / np.where(gpus > 0, per_s, 1.0),
        vc=np.array(vc, np.str_),
        notes=("durations are steps over the rate of the best GPU",),
    )
    return replace(found, beside=(beside,))


def read_steps(path: Path) -> AdaptiveJobs:
    """The jobs of a trace with their steps, for rates that are read elsewhere. Raises `InputError`, naming the line."""
    source = look(path)
    jobs = list(_jobs(source))
    if not jobs:
        raise InputError(str(path), "it holds no jobs", "Give a trace in steps, as Gavel's are")
    line, fields, _ = zip(*jobs, strict=True)
    sieve = Sieve(len(line), lambda row: source.at_line(line[row]), None)
    told = [_numbers(row) for row in fields]
    broken = np.array([numbers is None for numbers in told], bool)
    sieve.bad(broken, "the line has neither 7 nor 10 columns, or a word that is not a number", "Fix the line")
    steps, gpus, submit_s = np.array([numbers or (np.nan,) * 3 for numbers in told], np.float64).T
    said = (steps > 0) & (gpus >= 1) & np.isfinite(steps + gpus + submit_s)
    sieve.bad(~said, "a job without steps, GPUs or arrival", "Write all three as numbers")
    sieve.bad(steps > MAX_COUNT, "the number of steps is absurd", f"Write at most {MAX_COUNT}", steps)
    sieve.bad(gpus != np.floor(gpus), "the number of GPUs is not a whole number", "Write a whole number", gpus)
    sieve.bad(gpus > MAX_GPUS, "the number of GPUs is absurd", f"Write at most {MAX_GPUS}", gpus)
    outside = (submit_s < 0) | (submit_s > MAX_S)
    sieve.bad(outside, "the arrival is negative or absurd", "Write seconds since the trace began", submit_s)
    order = np.argsort(submit_s, kind="stable")
    kinds = np.array([row[_JOB_TYPE] for row in fields])
    names = np.array([str(number) for number in range(len(line))])
    whole = gpus[order].astype(np.int64)
    return AdaptiveJobs(names, submit_s[order], kinds[order], whole, whole, steps=steps[order])


def is_gavel(path: Path) -> bool:
    """Whether this is a file, and such a trace."""
    return path.is_file() and sniff(look(path).head, path.name)


def _jobs(source: TraceSource) -> Iterator[tuple[int, list[str], str]]:
    """The number, the fields and the virtual cluster of each line that is a job."""
    vc = ""
    with source.text() as text:
        for number, line in enumerate(text, 1):
            if line.startswith("#"):
                vc = line.lstrip("#").strip()
            elif line.strip():
                yield number, line.rstrip("\r\n").split("\t"), vc


def _numbers(fields: list[str]) -> tuple[float, ...] | None:
    """Steps, GPUs and arrival; None where the line does not say them."""
    try:
        return tuple(float(fields[place]) for place in _PLACES[len(fields)])
    except (KeyError, ValueError):
        return None


def _rates(path: Path, most_bytes: int | None) -> Mapping[tuple[str, float], float]:
    """Steps a second by kind of job and GPUs."""
    if not path.exists():
        raise InputError(str(path), "a Gavel trace has steps, not seconds, and there are no rates for it", _FIX)
    columns, sieve = load(look(path, most_bytes), {"job": TEXT, "scale_factor": NUMBER, "steps_per_s": NUMBER}, None)
    per_s = columns["steps_per_s"]
    sieve.bad(~(np.isfinite(per_s) & (per_s >= 0)), "the rate is not a number of steps a second", _FIX, per_s)
    rates: dict[tuple[str, float], float] = {}
    for job, gpus, rate in zip(columns["job"].tolist(), columns["scale_factor"].tolist(), per_s.tolist(), strict=True):
        if rate > rates.get((job, gpus), 0.0):
            rates[job, gpus] = rate
    return rates


FORMAT = Format("gavel", "Gavel's traces (tabs; steps), with rates in <trace>.rates.csv", sniff, read)
