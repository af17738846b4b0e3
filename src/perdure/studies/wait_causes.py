"""Why jobs waited: nothing was left of their virtual cluster's quota, too few GPUs were free, or these lay scattered.

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019. It
tells two: fair-share delay, while a job's virtual cluster has used up its quota, and fragmentation delay, while it has
not. It counts how often either holds a job back; its scheduler tries a waiting job again every two to three minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import Result

SIZES: Sequence[tuple[str, int, int]] = (("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), (">8", 9, 1 << 40))
TRY_S = 150.0  # from one try of a waiting job to the next; the first is at its submit


@dataclass(frozen=True, slots=True)
class Causes:
    """How much each job waited for its first start, by cause; shape (n_jobs,)."""

    fair_share: NDArray[np.float64]  # nothing was left of the quota of its virtual cluster
    shortage: NDArray[np.float64]  # something was, but fewer GPUs were free than its gang needs
    scattered: NDArray[np.float64]  # something was, and GPUs enough were free, but no place for the gang

    @property
    def fragmentation(self) -> NDArray[np.float64]:
        """All delay that fair share does not cause, which is what the paper calls so."""
        return self.shortage + self.scattered


@dataclass(frozen=True, slots=True)
class Delays:
    """The waiting of each job, in seconds and in tries that did not start it."""

    seconds: Causes  # together the job's wait
    tries: Causes


def delays(table: JobTable, result: Result, quotas: Mapping[str, float], whole_gang: bool = False) -> Delays:
    """Split the wait of each job, given the GPUs of each virtual cluster.

    A quota is used up when less than one GPU of it is left; with `whole_gang`, when less than the job's gang needs.

    Raises `ValueError` for a virtual cluster without a quota, and for a result with preemptions but without spans.
    """
    if missing := set(table.vc.tolist()) - set(quotas):
        raise ValueError(f"no quota for virtual cluster {min(missing)!r}")
    names, group = np.unique(table.vc, return_inverse=True)
    at, used = _use(table, result, group, len(names))
    free = result.total_gpus - used.sum(axis=0)
    seconds, tries = _no_causes(len(table)), _no_causes(len(table))
    waiting = np.flatnonzero(result.start_s > table.submit_s)
    kinds, kind = np.unique(np.stack([group[waiting], table.gpus[waiting]]), axis=1, return_inverse=True)
    for place, (of, gpus) in enumerate(kinds.T.tolist()):
        rows = waiting[kind.ravel() == place]
        since, until = table.submit_s[rows], result.start_s[rows]
        used_up = used[of] + (gpus if whole_gang else 1) > quotas[str(names[of])] + 1e-9
        short = free < gpus
        for cause, holds in enumerate((used_up, ~used_up & short, ~used_up & ~short)):
            seconds[cause, rows] = _lasts(at, holds, since, until)
            tries[cause, rows] = _count(at, holds, since, until)
    return Delays(Causes(*seconds), Causes(*tries))


def quotas_by_demand(table: JobTable, total_gpus: int) -> dict[str, float]:
    """GPUs of each virtual cluster: its share in all GPU time asked for."""
    names, group = np.unique(table.vc, return_inverse=True)
    asked = np.bincount(group, table.gpus * table.duration_s, len(names))
    whole = asked.sum()
    shares = asked / whole if whole else np.full(len(names), 1 / max(1, len(names)))
    return {str(name): float(share * total_gpus) for name, share in zip(names, shares, strict=True)}


def _no_causes(n_jobs: int) -> NDArray[np.float64]:
    return np.zeros((3, n_jobs))


def _lasts(
    at: NDArray[np.float64], holds: NDArray[np.bool_], since: NDArray[np.float64], until: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For how long something holds in each stretch, given whether it does from each instant on."""
    so_far = np.concatenate([[0.0], np.cumsum(holds[:-1] * np.diff(at))])
    lasts: NDArray[np.float64] = np.interp(until, at, so_far) - np.interp(since, at, so_far)
    return lasts


def _count(
    at: NDArray[np.float64], holds: NDArray[np.bool_], since: NDArray[np.float64], until: NDArray[np.float64]
) -> NDArray[np.float64]:
    """At how many tries of each stretch something holds."""
    tries = np.ceil((until - since) / TRY_S).astype(np.int64)
    stretch = np.repeat(np.arange(len(since)), tries)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(tries) - tries, tries)
    place = np.searchsorted(at, since[stretch] + number * TRY_S, side="right") - 1
    return np.bincount(stretch, holds[place], len(since)).astype(np.float64)


def _use(
    table: JobTable, result: Result, group: NDArray[np.intp], groups: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Instants from the first submit on, and the GPUs that each virtual cluster then holds, shape (groups, n)."""
    held = result.spans or result.attempts
    if result.spans is None and result.preempted.any():
        raise ValueError("jobs were preempted, and only spans say when they held their GPUs")
    edges = np.concatenate([held.start_s, held.end_s, table.submit_s[:1]])
    at, place = np.unique(edges, return_inverse=True)
    steps = np.zeros((groups, len(at)))
    gpus = np.concatenate([table.gpus[held.job], -table.gpus[held.job]])
    np.add.at(steps, (np.tile(group[held.job], 2), place[: len(gpus)]), gpus)
    used: NDArray[np.float64] = np.cumsum(steps, axis=1)
    return at, used
