"""Lists of machines that come with traces, as a `Cluster`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster, told_of_all
from perdure.traces.columns import NUMBER, TEXT, load, look
from perdure.traces.trace import whole_counts

_MAX_GPUS_A_NODE = 1024
_FURTHER = {"cpus": NUMBER, "mem_mib": NUMBER}
_LISTS = (  # columns of GPUs and of what tells the kind of GPU: of openb, of Philly, of a list made by hand
    ("gpu", "model"),
    ("number of GPUs", "single GPU mem"),
    ("gpus", "gpu_type"),
)


def read_nodes(path: Path | str) -> Cluster:
    """Read the GPU nodes of openb's node list, Philly's machine list, or a CSV of ``gpus`` and ``gpu_type``.

    Nodes without GPUs run none of the jobs and are left out. Philly's list tells GPUs apart by their memory. All nodes
    are in one rack unless the list has a column ``rack`` of numbers. Columns ``cpus`` and ``mem_mib`` of a list made by
    hand are CPUs and memory. Raises `InputError`, naming the line.
    """
    source = look(path)
    found = [(gpus, kind) for gpus, kind in _LISTS if gpus in source.header]
    if not found:
        what = f"no column of GPUs ({', '.join(gpus for gpus, _ in _LISTS)})"
        raise InputError(source.at_line(1), what, "Name a list of machines, or a cluster like 32x8")
    gpus_column, kind_column = found[0]
    columns, sieve = load(
        source, {gpus_column: NUMBER}, False, optional={kind_column: TEXT, "rack": NUMBER, **_FURTHER}
    )
    gpus = columns[gpus_column]
    sieve.bad(
        ~((gpus >= 0) & (gpus <= _MAX_GPUS_A_NODE)) | (gpus % 1 > 0), "the GPUs are not a count", "Give them", gpus
    )
    rows = gpus > 0
    if not rows.any():
        raise InputError(str(source.path), "no node has GPUs", "Name a list of machines with GPUs")
    kinds: NDArray[np.str_] = np.char.strip(columns.get(kind_column, np.full(len(gpus), "")))
    racks = np.nan_to_num(columns.get("rack", np.zeros(len(gpus))))
    further = (whole_counts(columns.get(name, np.zeros(len(gpus))))[rows] for name in _FURTHER)
    cpus, mem_mib = (
        told_of_all(str(source.path), name, column) for name, column in zip(_FURTHER, further, strict=True)
    )
    return Cluster(gpus[rows].astype(np.int64), racks[rows].astype(np.int64), kinds[rows], cpus, mem_mib)
