"""How many GPUs jobs held over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import Result

DAY_S = 86_400.0

Floats = NDArray[np.float64]
Stretches = tuple[NDArray[np.int64], Floats, Floats, Floats]  # the job, from, until, and how many GPUs


def stretches(gpus: NDArray[np.int64], result: Result) -> Stretches:
    """Stretches of time during which jobs held GPUs, where the run kept its spans; else as `attempts_held`."""
    if result.spans is None:
        return attempts_held(gpus, result)
    spans = result.spans
    return spans.job, spans.start_s, spans.end_s, gpus[spans.job].astype(np.float64)


def attempts_held(gpus: NDArray[np.int64], result: Result) -> Stretches:
    """Attempts from start to end; one that was preempted counts as if it had held a share of its GPUs throughout.

    `gpus` is what each job asks for.
    """
    log = result.attempts
    length = log.end_s - log.start_s
    share: Floats = np.divide(log.ran_s, length, out=np.zeros(len(length)), where=length > 0)
    held: Floats = gpus[log.job] * share
    return log.job, log.start_s, log.end_s, held


def held_gpu_s(held: Stretches, edges_s: Floats) -> Floats:
    """GPU-seconds that were held between each two neighbours of `edges_s`."""
    _, start_s, end_s, gpus = held
    at = np.concatenate([start_s, end_s])
    if not len(at):
        return np.zeros(len(edges_s) - 1)
    order = np.argsort(at, kind="stable")
    at, many = at[order], np.cumsum(np.concatenate([gpus, -gpus])[order])
    area = np.concatenate([[0.0], np.cumsum(many[:-1] * np.diff(at))])
    return np.diff(np.interp(edges_s, at, area))


def use_over_time(table: JobTable, result: Result, edges_s: Floats) -> Floats:
    """Share of the GPUs that was allocated in the mean between each two neighbours of `edges_s`.

    What attempts that were preempted add up to beyond all GPUs is cut.
    """
    held = held_gpu_s(stretches(table.gpus, result), edges_s)
    share: Floats = np.minimum(1.0, held / (np.diff(edges_s) * result.total_gpus))
    return share


def day_edges(table: JobTable, until_s: float) -> tuple[int, Floats]:
    """The first day of a trace in UTC, and the borders of its days up to an instant; the first and last day are cut.

    Days count from the epoch, or from when the trace began where that is not known.
    """
    first_s = float(table.submit_s.min())
    first = int((table.began_s + first_s) // DAY_S)
    borders = np.arange(first + 1, int(np.ceil((table.began_s + until_s) / DAY_S))) * DAY_S - table.began_s
    return first, np.concatenate([[first_s], borders, [until_s]])
