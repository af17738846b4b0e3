"""Traces, clusters, lists of names and of numbers as the commands that simulate are given them."""

from __future__ import annotations

import csv
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

from perdure.cli.text import plain
from perdure.errors import ConfigError, InputError
from perdure.model.cluster import MAX_NODES, Cluster, told_of_all
from perdure.scheduling.placement.registry import placement_named
from perdure.simulation.fitting import fitting
from perdure.traces.read import read
from perdure.traces.trace import MAX_COUNT, Trace

_QUOTA_FIX = "Write it like lab=64,ops=32, or name a CSV file of vc,gpus"
_NODES_FIX = "Write tables [[nodes]] with count and gpus, and if need be gpu_type, rack (a number), cpus and mem_mib"


_BOUNDS = {
    "count": (1, MAX_NODES), "gpus": (1, MAX_NODES), "rack": (0, MAX_NODES), "cpus": (1, MAX_COUNT),
    "mem_mib": (1, MAX_COUNT),
}  # fmt: skip


def cluster_named(spec: str) -> Cluster:
    """The cluster of "32x8", of a TOML file, or of a list of machines in a CSV file. Raises `InputError`."""
    if not os.path.isfile(spec):
        return Cluster.parse(spec)
    if spec.endswith(".toml"):
        return _in_toml(Path(spec))
    from perdure.traces.machines import read_nodes

    return read_nodes(spec)


def _in_toml(path: Path) -> Cluster:
    """The cluster of tables ``[[nodes]]``, each with ``count`` and ``gpus``, and perhaps other columns."""
    try:
        groups = tomllib.loads(path.read_text("utf-8")).get("nodes")
    except (OSError, ValueError) as err:
        raise InputError(str(path), f"cannot be read as TOML ({err})", _NODES_FIX) from err
    if not isinstance(groups, list) or not groups or not all(map(_is_group, groups)):
        raise InputError(str(path), "it has no [[nodes]], or one that is not a group of nodes", _NODES_FIX)
    counts = [group["count"] for group in groups]
    if sum(counts) > MAX_NODES:
        raise InputError(str(path), f"more than {MAX_NODES} nodes", "Name fewer")
    return Cluster(
        np.repeat(np.array([group["gpus"] for group in groups], np.int64), counts),
        np.repeat(np.array([group.get("rack", 0) for group in groups], np.int64), counts),
        np.repeat(np.array([group.get("gpu_type", "") for group in groups]), counts),
        *_further(str(path), groups, counts),
    )


def _further(where: str, groups: Sequence[Mapping[str, int]], counts: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """CPUs and memory of each node, where they are told."""
    for name in ("cpus", "mem_mib"):
        column = told_of_all(where, name, [group.get(name, 0) for group in groups])
        yield np.repeat(column, counts if len(column) else 1)


def _is_group(group: object) -> bool:
    if not isinstance(group, dict) or set(group) - {"count", "gpus", "gpu_type", *_BOUNDS}:
        return False
    values = {"rack": 0, "cpus": 1, "mem_mib": 1, **group}
    whole = all(type(values.get(name)) is int and low <= values[name] <= most for name, (low, most) in _BOUNDS.items())
    return whole and isinstance(group.get("gpu_type", ""), str)


def read_fitting(path: Path, format: str | None, skip_bad: bool, cluster: Cluster, placement: str) -> Trace:
    """Read a trace; jobs that find no place are left out and counted with `skip_bad`, else an `InputError`."""
    found = read(path, format, skip_bad=skip_bad)
    return fitting(found, str(path), cluster, skip_bad, placement_named(placement))


def quotas(text: str) -> dict[str, float]:
    """GPUs of virtual clusters, of "lab=64,ops=32" or of a CSV file of ``vc,gpus``. Raises `InputError`."""
    if os.path.isfile(text):
        return _quotas_in_file(Path(text))
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, gpus = part.rpartition("=")
        _add_quota(found, "--vc-quota", name.strip(), gpus.strip())
    return found


def _quotas_in_file(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            if missing := {"vc", "gpus"} - set(rows.fieldnames or ()):
                raise InputError(f"{path}:1", f"no column {', '.join(sorted(missing))}", _QUOTA_FIX)
            for row in rows:
                _add_quota(found, f"{path}:{rows.line_num}", row["vc"] or "", row["gpus"] or "")
    except (OSError, UnicodeError, csv.Error) as err:
        raise InputError(str(path), f"cannot be read ({err})", _QUOTA_FIX) from err
    if not found:
        raise InputError(str(path), "it holds no quotas", _QUOTA_FIX)
    return found


def _add_quota(found: dict[str, float], where: str, name: str, gpus: str) -> None:
    try:
        quota = float(gpus)
    except ValueError:
        quota = np.nan
    if not name or not 0 <= quota < np.inf:
        raise InputError(where, f"{plain(f'{name}={gpus}', 40)!r} is not of the form NAME=GPUS", _QUOTA_FIX)
    if name in found:
        raise InputError(where, f"virtual cluster {plain(name, 40)!r} comes twice", _QUOTA_FIX)
    found[name] = quota


def tell_of(trace: Trace, path: Path) -> None:
    """Say on stderr what was left out of a trace, and what a reader of the figures should know."""
    for why, rows in trace.left_out.items():
        _tell(f"{path}: {rows} left out: {why}")
    for note in trace.notes:
        _tell(f"{path}: {note}")


def names_of(option: str, text: str) -> list[str]:
    """The names of "fifo,srtf" or "never,predicted:0.9,0.1": a number belongs to the name before it."""
    names: list[str] = []
    for word in map(str.strip, text.split(",")):
        if names and word.replace(".", "", 1).isdecimal():
            names[-1] += f",{word}"
        else:
            names.append(word)
    if not all(names) or len(set(names)) < len(names):
        raise InputError(option, f"{text!r} has an empty name, or one twice", "Write it like fifo,srtf,las-2d")
    return names


def loads_of(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--load {text!r}", "not a number", "Write it like 0.8") from None


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers above 0, each larger than the one before, of "3250,7200". Raises `InputError`."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(low < high for low, high in zip((0.0, *found), (*found, np.inf), strict=True)):
        raise InputError(option, f"{text!r} is not a list of growing numbers", "Write it like 3250,7200")
    return found


def samples(path: Path) -> tuple[float, ...]:
    """The numbers of a file that has one in each line, below a header or not. Raises `InputError`."""
    try:
        lines = path.read_text("utf-8-sig", "replace").splitlines()
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a file of numbers") from err
    found = []
    for line, text in enumerate(lines, 1):
        try:
            number = float(text)
        except ValueError:
            if line == 1 or not text.strip():
                continue
            number = np.nan
        if not 0 <= number < np.inf:
            raise InputError(f"{path}:{line}", f"{plain(text, 40)!r} is not a job's GPU-seconds", "Write a number")
        found.append(number)
    if not found:
        raise InputError(str(path), "it holds no numbers", "Write the GPU-seconds of one past job in each line")
    return tuple(found)


def _tell(line: str) -> None:
    typer.echo(plain(line), err=True)
