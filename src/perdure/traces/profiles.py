"""Profiles of applications, and traces of jobs that name one, in the form of Sia's public artifact as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.profiles import (
    SEARCHES,
    AdaptiveJobs,
    AppJobs,
    EpochProfile,
    PairProfile,
    PipelineProfile,
    RateProfile,
    StepProfile,
)
from perdure.traces.columns import NUMBER, TEXT, load, look
from perdure.traces.trace import MAX_COUNT, MAX_GPUS, MAX_S, Sieve

RATES, SOURCE = "isolated", "simulation"  # of rates from several sources, these
PAIRS = "throughputs"
PIPELINES = "pipelines"
PLACEMENTS, SCALABILITY, EPOCHS = "placements", "scalability", "validation_stat_efficiency"
POLLUX_EPOCHS = "validation"  # in the tables of Pollux, which name no machine: all were measured on T4s
GPU_TYPES: Mapping[str, str] = MappingProxyType({"t4": "aws", "a100": "dgx-ext", "v100": "azure", "quadro": "quad"})
"""How the profiles name machines with these GPUs."""
_MAY_TELL = {
    "workload": NUMBER, "fails": TEXT, "rigid": TEXT, "work": NUMBER, "app": TEXT, "score": NUMBER, "search": TEXT,
}  # fmt: skip
MAX_WORKLOAD = 999_999
_ROW = {"name": TEXT, "time": NUMBER, "application": TEXT, "num_replicas": NUMBER, "batch_size": NUMBER}


def is_pollux(folder: Path) -> bool:
    """Whether a folder holds the tables of Pollux."""
    return bool(_found(folder, POLLUX_EPOCHS)) and not _found(folder, EPOCHS)


def read_profiles(folder: Path) -> tuple[StepProfile, EpochProfile]:
    """Read ``*placements``, ``*scalability`` and ``*validation_stat_efficiency`` of a folder, Parquet or CSV.

    Raises `InputError`, and `MissingExtra` without DuckDB.
    """
    step = {"app": TEXT, "local_bsz": NUMBER, "step_time": NUMBER, "sync_time": NUMBER}
    machine = {"cluster": TEXT}
    laid, laid_rows = load(look(_file(folder, PLACEMENTS)), {**step, "placement": TEXT}, None, optional=machine)
    where = {"num_nodes": NUMBER, "num_replicas": NUMBER}
    wide, wide_rows = load(look(_file(folder, SCALABILITY)), {**step, **where}, None, optional=machine)
    for columns, sieve, names in ((laid, laid_rows, ()), (wide, wide_rows, where)):
        _must_count(columns, sieve, names)
        _must_be_from_1(columns, sieve, "local_bsz")
    bad = next((text for text in laid["placement"].tolist() if not text.isdecimal() or "0" in text), None)
    if bad is not None:
        raise InputError(str(_file(folder, PLACEMENTS)), f"{bad!r} is not a placement", "Write one digit a node: 44")
    nodes = np.array([len(text) for text in laid["placement"].tolist()])
    gpus = np.array([sum(map(int, text)) for text in laid["placement"].tolist()])
    kinds = [table.get("cluster", np.full(len(table["app"]), GPU_TYPES["t4"])) for table in (laid, wide)]
    laid_out = StepProfile(
        np.concatenate([laid["app"], wide["app"]]),
        np.concatenate(kinds),
        np.array([",".join(text) for text in laid["placement"].tolist()] + [""] * len(wide["app"])),
        np.concatenate([nodes, wide["num_nodes"].astype(np.int64)]),
        np.concatenate([gpus, wide["num_replicas"].astype(np.int64)]),
        *(np.concatenate([laid[name], wide[name]]) for name in ("local_bsz", "step_time", "sync_time")),
    )
    epochs = {"app": TEXT, "global_batch": NUMBER, "progress": NUMBER, "grad_sqr": NUMBER, "grad_var": NUMBER}
    path = _file(folder, POLLUX_EPOCHS if is_pollux(folder) else EPOCHS)
    told, sieve = load(look(path), epochs, None, optional={"iteration": NUMBER})
    _must_count(told, sieve, ("global_batch",))
    batch, iteration = told["global_batch"].astype(np.int64), told.get("iteration")
    return laid_out, EpochProfile(told["app"], batch, told["progress"], told["grad_sqr"], told["grad_var"], iteration)


def read_pipelines(folder: Path) -> PipelineProfile:
    """Read ``*pipelines`` of a folder, Parquet or CSV: ``app,cluster,stages,microbatches``; without one, no rows.

    Raises `InputError`, and `MissingExtra` without DuckDB.
    """
    if not _found(folder, PIPELINES):
        return PipelineProfile(np.empty(0, "U1"), np.empty(0, "U1"), np.empty(0, np.int64), np.empty(0, np.int64))
    wanted = {"app": TEXT, "cluster": TEXT, "stages": NUMBER, "microbatches": NUMBER}
    told, sieve = load(look(_file(folder, PIPELINES)), wanted, None)
    _must_count(told, sieve, ("stages", "microbatches"))
    stages, microbatches = (told[name].astype(np.int64) for name in ("stages", "microbatches"))
    return PipelineProfile(told["app"], told["cluster"], stages, microbatches)


def _must_count(columns: Mapping[str, NDArray[Any]], sieve: Sieve, names: Iterable[str]) -> None:
    """Raises `InputError`, naming the line, for a count that is not a whole number from 1 on, or absurd."""
    for name in names:
        _must_be_from_1(columns, sieve, name)
        value = columns[name]
        sieve.bad(value != np.floor(value), f"{name} is not a whole number", "Write a whole number", value)


def _must_be_from_1(columns: Mapping[str, NDArray[Any]], sieve: Sieve, name: str) -> None:
    value = columns[name]
    sieve.bad(~(value >= 1), f"{name} is not a number from 1 on", "Write a number from 1 on", value)
    sieve.bad(value > MAX_COUNT, f"{name} is absurd", f"Write a number up to {MAX_COUNT}", value)


def has_rates(folder: Path) -> bool:
    """Whether a folder holds rates of kinds of jobs, in the form of Gavel's tables, and no profiles of steps."""
    return bool(_found(folder, RATES)) and not _found(folder, PLACEMENTS)


def read_rates(folder: Path) -> RateProfile:
    """Read ``*isolated`` of a folder, Parquet or CSV: ``gpu,job,scale_factor,steps_per_s``, and ``consolidated``.

    Of rows with a ``source``, those of the simulation are taken. Raises `InputError`, and `MissingExtra`.
    """
    wanted = {"gpu": TEXT, "job": TEXT, "scale_factor": NUMBER, "steps_per_s": NUMBER}
    path = _file(folder, RATES)
    columns, sieve = load(look(path), wanted, None, optional={"consolidated": TEXT, "source": TEXT})
    gpus = columns["scale_factor"]
    _must_count(columns, sieve, ("scale_factor",))
    n = len(gpus)
    told = columns.get("source", np.full(n, SOURCE))
    rows = told == SOURCE if (told == SOURCE).any() else np.ones(n, bool)
    together = _together(columns)
    return RateProfile(
        columns["job"][rows],
        columns["gpu"][rows],
        gpus[rows].astype(np.int64),
        together[rows],
        columns["steps_per_s"][rows],
    )


def read_pairs(folder: Path) -> PairProfile | None:
    """Read ``*throughputs`` of a folder, Parquet or CSV; None without one. Rows without ``co_job`` do not count.

    ``gpu,job,scale_factor,co_job,co_scale,steps_per_s``, and ``consolidated`` and ``source`` as of `read_rates`. Pairs
    of jobs with different numbers of GPUs are passed over. Raises `InputError`, and `MissingExtra`.
    """
    if not _found(folder, PAIRS):
        return None
    wanted = {
        "gpu": TEXT,
        "job": TEXT,
        "scale_factor": NUMBER,
        "co_job": TEXT,
        "co_scale": NUMBER,
        "steps_per_s": NUMBER,
    }
    columns, sieve = load(look(_file(folder, PAIRS)), wanted, None, optional={"consolidated": TEXT, "source": TEXT})
    _must_count(columns, sieve, ("scale_factor",))
    rows = (columns["co_job"] != "") & (columns["scale_factor"] == columns["co_scale"])
    told = columns.get("source")
    if told is not None and (told == SOURCE).any():
        rows &= told == SOURCE
    together = _together(columns)
    return PairProfile(
        columns["job"][rows],
        columns["co_job"][rows],
        columns["gpu"][rows],
        columns["scale_factor"][rows].astype(np.int64),
        together[rows],
        columns["steps_per_s"][rows],
    )


def _together(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Whether the GPUs of each row are on one node, as they are where the table does not say."""
    if "consolidated" not in columns:
        return np.ones(len(columns["gpu"]), bool)
    return np.asarray(np.char.lower(columns["consolidated"]) != "false", bool)


def read_adaptive(path: Path, workload: int | None = None) -> AdaptiveJobs:
    """Read a trace of ``name,time,application,num_replicas,batch_size``; of several in a file, the one of that number.

    ``fails`` may say of each attempt that fails when it does, as `AdaptiveJobs.fails`, and ``rigid`` (yes, no, batch)
    which jobs keep to the GPUs and the batch asked for, or to the batch: without it all may be resized, as in the
    published experiments.
    ``work`` says how often a job does the work of its application. Jobs with the same ``app`` search for one model, of
    which ``score`` tells theirs, in the way that ``search`` names.

    Raises `InputError`.
    """
    source = look(path)
    columns, sieve = load(source, _ROW, None, optional=_MAY_TELL)
    told = np.char.lower(columns.get("rigid", np.full(len(columns["name"]), "")))
    sieve.bad(~np.isin(told, ("yes", "no", "batch", "")), "rigid is neither yes nor no nor batch", "Fix it", told)
    work = columns.get("work")
    if work is not None:
        sieve.bad(~(np.isfinite(work) & (work > 0)), "work is no number above 0", "Fix it", work)
    for name, least, most in (("time", 0, MAX_S), ("num_replicas", 1, MAX_GPUS), ("batch_size", 1, MAX_COUNT)):
        value = columns[name]
        is_right = (value >= least) & (value <= most) & ((name == "time") | (value == np.floor(value)))
        kind = "a number" if name == "time" else "a whole number"
        sieve.bad(~is_right, f"{name} is not a valid number", f"Write {kind} from {least} to {most:.0f}", value)
    keep = np.ones(len(columns["name"]), bool)
    if "workload" in columns:
        number = columns["workload"]
        is_right = (number >= 0) & (number <= MAX_WORKLOAD) & (number == np.floor(number))
        sieve.bad(~is_right, "workload is not a valid number", f"Write a whole number from 0 to {MAX_WORKLOAD}", number)
        numbers = np.unique(columns["workload"]).astype(int).tolist()
        if workload is None and len(numbers) > 1:
            listed = ", ".join(map(str, numbers))
            raise InputError(str(path), f"it holds the workloads {listed}", f"Choose one: {path}:{numbers[0]}")
        keep = columns["workload"] == (numbers[0] if workload is None else workload)
    if not keep.any():
        raise InputError(str(path), "it holds no such jobs", "Name a workload that is there")
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(columns["time"][rows], kind="stable")]
    return AdaptiveJobs(
        columns["name"][rows],
        columns["time"][rows],
        columns["application"][rows],
        columns["num_replicas"][rows].astype(np.int64),
        columns["batch_size"][rows].astype(np.int64),
        tuple(_fails(path, text) for text in columns["fails"][rows].tolist()) if "fails" in columns else (),
        rigid=(told == "yes")[rows],
        own_batch=(told == "batch")[rows],
        work=None if work is None else work[rows],
        apps=_apps(columns, sieve, rows),
    )


def _apps(columns: Mapping[str, NDArray[Any]], sieve: Sieve, rows: NDArray[np.intp]) -> AppJobs | None:
    """Which of these jobs search together; None without the column."""
    if "app" not in columns:
        return None
    app, nothing = columns["app"], np.full(len(columns["app"]), "")
    search, score = columns.get("search", nothing), columns.get("score", np.full(len(app), np.nan))
    search = np.where(search == "", "all", search)
    known = ", ".join(SEARCHES)
    sieve.bad((app != "") & ~np.isin(search, SEARCHES), f"search is none of {known}", "Fix it", search)
    for name in np.unique(app[app != ""]).tolist():
        sieve.bad((app == name) & (search != search[app == name][0]), "its app has another search", "Name one", search)
    halves = (app != "") & np.char.startswith(search, "halving")
    sieve.bad(halves & ~np.isfinite(score), "score is no number, which halving compares", "Give each job one", score)
    return AppJobs(app[rows], score[rows], search[rows])


def _fails(path: Path, text: str) -> tuple[float, ...]:
    """The shares of "0.3;0.5"."""
    try:
        found = tuple(float(word) for word in text.split(";")) if text else ()
    except ValueError:
        found = (-1.0,)
    if not all(0 <= share <= 1 for share in found):
        what = f"fails is {text!r}, which is not a list of shares of the work"
        raise InputError(str(path), what, "Write it like 0.3;0.5: when the first attempt fails, and the second")
    return found


def _found(folder: Path, ending: str) -> list[Path]:
    return sorted(path for kind in ("parquet", "csv", "csv.gz") for path in folder.glob(f"*{ending}.{kind}"))


def _file(folder: Path, ending: str) -> Path:
    found = _found(folder, ending)
    if not found:
        raise InputError(str(folder), f"it has no {ending}.parquet or .csv", "Name a folder of Sia's profiles")
    return found[0]
