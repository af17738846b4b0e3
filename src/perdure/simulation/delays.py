"""Why jobs waited: their virtual cluster's quota was used, others had borrowed it, or the free GPUs lay scattered.

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019,
which tells fair-share delay (no quota left) from fragmentation delay (quota, but no place of the locality asked for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import Result

SIZES: Sequence[tuple[str, int, int]] = (("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), (">8", 9, 1 << 40))


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds that each job waited for its first start, by cause; shape (n_jobs,). Together they are its wait."""

    fair_share_s: NDArray[np.float64]  # its virtual cluster held too much of its quota for one gang more
    borrowed_s: NDArray[np.float64]  # there was quota, but fewer free GPUs than the gang needs
    fragmentation_s: NDArray[np.float64]  # there was quota, and GPUs enough, but no place for the gang


def delays(table: JobTable, result: Result, quotas: Mapping[str, float], lends: bool = False) -> Delays:
    """Split the wait of each job, given the GPUs of each virtual cluster.

    `lends` is for a scheduler that gives idle GPUs to jobs beyond their quota, as Philly's does: there a job waits for
    its quota only while fewer GPUs are free than it needs, and where more are free it waits for a place.

    Raises `ValueError` for a virtual cluster without a quota, and for a result with preemptions but without spans.
    """
    if missing := set(table.vc.tolist()) - set(quotas):
        raise ValueError(f"no quota for virtual cluster {min(missing)!r}")
    names, group = np.unique(table.vc, return_inverse=True)
    at, used = _use(table, result, group, len(names))
    free = result.total_gpus - used.sum(axis=0)
    lasts = np.diff(at)
    wait_s = result.start_s - table.submit_s
    fair_s, borrowed_s = np.zeros(len(table)), np.zeros(len(table))
    waiting = np.flatnonzero(wait_s > 0)
    kinds, kind = np.unique(np.stack([group[waiting], table.gpus[waiting]]), axis=1, return_inverse=True)
    for place, (of, gpus) in enumerate(kinds.T.tolist()):
        rows = waiting[kind.ravel() == place]
        over, short = used[of] + gpus > quotas[str(names[of])] + 1e-9, free < gpus
        for seconds, holds in ((fair_s, over & short if lends else over), (borrowed_s, ~over & short)):
            so_far = np.concatenate([[0.0], np.cumsum(holds[:-1] * lasts)])
            seconds[rows] = np.interp(result.start_s[rows], at, so_far) - np.interp(table.submit_s[rows], at, so_far)
    return Delays(fair_s, borrowed_s, np.maximum(0.0, wait_s - fair_s - borrowed_s))


def quotas_by_demand(table: JobTable, total_gpus: int) -> dict[str, float]:
    """GPUs of each virtual cluster: its share in all GPU time asked for."""
    names, group = np.unique(table.vc, return_inverse=True)
    asked = np.bincount(group, table.gpus * table.duration_s, len(names))
    whole = asked.sum()
    shares = asked / whole if whole else np.full(len(names), 1 / max(1, len(names)))
    return {str(name): float(share * total_gpus) for name, share in zip(names, shares, strict=True)}


def _use(
    table: JobTable, result: Result, group: NDArray[np.intp], groups: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Instants, and the GPUs that each virtual cluster holds from then on, shape (groups, n_instants)."""
    held = result.spans or result.attempts
    if result.spans is None and result.preempted.any():
        raise ValueError("jobs were preempted, and only spans tell when they held their GPUs")
    edges = np.concatenate([held.start_s, held.end_s])
    gpus = np.concatenate([table.gpus[held.job], -table.gpus[held.job]])
    at, place = np.unique(edges, return_inverse=True)
    steps = np.zeros((groups, len(at)))
    np.add.at(steps, (np.tile(group[held.job], 2), place), gpus)
    used: NDArray[np.float64] = np.cumsum(steps, axis=1)
    return at, used
