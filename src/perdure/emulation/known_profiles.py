"""Where profiles come from: the table that is shipped, a user's own, or an estimate.

``h100.csv`` was measured on one H100 (``benchmarks/gpu_profiles``; ``benchmarks/emulation_profiles.py`` makes it of
that). Names that end in ``-bf16`` are of automatic mixed precision, others of TF32.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from perdure.emulation.profiles import COLUMNS, GpuStep, ProfileTable, estimated, unknown
from perdure.errors import InputError
from perdure.in_memory_db import duckdb_in_memory
from perdure.throughput.compute import GPUS
from perdure.throughput.layers import KNOWN_MODELS
from perdure.throughput.speed import Floats

MOST_ROWS = 2_000_000
MOST_BATCH = 10**12  # examples: more is a misread column
NEEDED = ("gpu", "model", "batch_size", "forward_s", "backward_s", "transfer_s", "peak_mib", "persistent_mib")


@cache
def shipped() -> ProfileTable:
    """What was measured by ourselves and comes with the package."""
    with files(__package__).joinpath("h100.csv").open("r", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
    batches = [int(row["batch"]) for row in rows]
    return ProfileTable.of("h100.csv", [row["gpu"] for row in rows], [row["model"] for row in rows], batches, values)


def read_profiles(path: Path) -> ProfileTable:
    """Read a table of profiles, as Parquet or as CSV with a header, with the columns of `NEEDED`.

    ``optimiser_s`` may be there too; without it the optimiser takes no time. The tables of GPEmu (M. Wang et al.) have
    this form. Raises `InputError`, and `MissingExtra` without DuckDB.
    """
    where = str(path)
    if not path.is_file():
        raise InputError(where, "there is no such file", "Give a table of profiles, as Parquet or CSV")
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    with duckdb_in_memory(where, lambda said: InputError(where, said, "Give Parquet, or CSV with a header")) as db:
        found = db.execute(f"SELECT * FROM {reader}(?) LIMIT {MOST_ROWS}", [where])  # noqa: S608 - of two words above
        columns = found.fetchnumpy()
    if missing := [name for name in NEEDED if name not in columns]:
        raise InputError(where, f"no column {', '.join(missing)}", f"Give the columns {', '.join(NEEDED)}")
    rows = len(columns["gpu"])
    batch = _numbers(where, "batch_size", columns["batch_size"])
    values = np.stack(
        [_numbers(where, name, columns[name]) if name in columns else np.zeros(rows) for name in COLUMNS], axis=1
    )
    gpus, models = ([str(each) for each in columns[name]] for name in ("gpu", "model"))
    counted = (batch >= 1) & (batch <= MOST_BATCH) & (batch == np.floor(batch))  # else the row has a hole
    batches = np.where(counted, batch, 0).astype(np.int64)
    return ProfileTable.of(where, gpus, models, batches.tolist(), values)


def _numbers(where: str, name: str, column: Any) -> Floats:
    try:
        return np.asarray(np.ma.filled(np.ma.asarray(column).astype(float), np.nan), np.float64)
    except (TypeError, ValueError) as err:
        raise InputError(where, f"column {name} does not hold numbers", "Give numbers alone in it") from err


def profile_of(gpu: str, model: str, batch: int, table: ProfileTable | None = None) -> GpuStep:
    """A step's profile: of the user's table where there is one, else measured by us, else estimated."""
    if table is not None:
        return table.profile(gpu, model, batch)
    ours = shipped()
    if gpu in ours.gpus and model in ours.models(gpu):
        return ours.profile(gpu, model, batch)
    if gpu not in GPUS:
        raise unknown("--gpu", gpu, [*GPUS, *ours.gpus])
    if model not in KNOWN_MODELS:
        raise unknown("--model", model, models_on(gpu))
    return estimated(gpu, model, batch)


def models_on(gpu: str, table: ProfileTable | None = None) -> Sequence[str]:
    """Models of which a profile is known on a GPU."""
    if table is not None:
        return table.models(gpu)
    ours = shipped().models(gpu) if gpu in shipped().gpus else []
    return sorted({*KNOWN_MODELS, *ours})
