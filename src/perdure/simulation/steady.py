"""Whether a trace shows a cluster in steady state: its load, when the cluster had filled, whether it is long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure.model.table import JobTable
from perdure.simulation.result import Result
from perdure.simulation.use import DAY_S, attempts_held, held_gpu_s
from perdure.simulation.workload import attempts_of

_LONG = 0.1  # of the time in which jobs come: a job that runs longer is long
_MOST_LONG = 0.2  # share of the GPU time that long jobs may ask for


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """The time in which the cluster is full of jobs that come: from the end of the warm-up to the last submit.

    The warm-up ends when jobs that came, each taken to start at once, first ask for as many GPUs as they do in the
    mean from the first submit to the last. That depends on the trace alone, so all policies have the same window.
    """

    first_s: float  # the first submit
    since_s: float
    until_s: float
    load: float  # GPU time that jobs ask for, over what there is from the first submit to the last

    def used(self, table: JobTable, result: Result) -> float:
        """Share of the GPU time of the window that jobs held.

        What attempts that were preempted add up to beyond all GPUs is cut: when they held theirs is not known.
        """
        held = held_gpu_s(attempts_held(table.gpus, result), np.array([self.since_s, self.until_s]))
        share = float(held[0]) / (result.total_gpus * (self.until_s - self.since_s))
        return min(share, max(1.0, result.utilisation)) if result.preempted.any() else share

    @property
    def says(self) -> str:
        """What a reader should know of it."""
        warm_up, days = (self.since_s - self.first_s) / DAY_S, (self.until_s - self.since_s) / DAY_S
        asked = f"Jobs ask for {self.load:.2f} of the GPU time"
        window = f"the window is the {days:.1f} days after {warm_up:.1f} of warm-up, up to the last submit"
        grows = ". That is more than there is: the queue grows as long as jobs come, and waits with the trace's length"
        return f"{asked}; {window}{grows if self.load > 1 else ''}."

    def to_json(self) -> dict[str, Any]:
        return {"warm_up_s": self.since_s - self.first_s, "lasts_s": self.until_s - self.since_s, "load": self.load}


def window_of(table: JobTable, total_gpus: int) -> SteadyWindow | None:
    """The window of a trace; None where its jobs come all at once, or ask for nothing.

    >>> table = JobTable(np.array(["a", "b", "c"]), np.array([0.0, 10, 100]), np.array([1, 3, 1]), np.full(3, 50.0))
    >>> window_of(table, 4)
    SteadyWindow(first_s=0.0, since_s=10.0, until_s=100.0, load=0.625)
    """
    if not len(table) or table.submit_s[-1] <= table.submit_s[0]:
        return None
    first_s, last_s = float(table.submit_s[0]), float(table.submit_s[-1])
    runs_s = _running_s(table)
    at = np.concatenate([table.submit_s, table.submit_s + runs_s])
    order = np.argsort(at, kind="stable")
    at, asked = at[order], np.cumsum(np.concatenate([table.gpus, -table.gpus])[order])
    there = np.searchsorted(at, last_s)
    mean = float(asked[:there] @ np.diff(np.append(at[:there], last_s))) / (last_s - first_s)
    if mean <= 0:
        return None
    since_s = float(at[np.argmax(asked >= mean)])
    load = float(table.gpus @ runs_s) / (total_gpus * (last_s - first_s))
    return SteadyWindow(first_s, since_s, last_s, load) if since_s < last_s else None


def too_short(table: JobTable) -> str | None:
    """What to say of a trace whose figures hang on its longest jobs; None where they do not."""
    if len(table) < 2 or table.submit_s[-1] <= table.submit_s[0]:
        return None
    asked = table.gpus * (runs_s := _running_s(table))
    long = runs_s > _LONG * (table.submit_s[-1] - table.submit_s[0])
    share = float(asked[long].sum() / asked.sum()) if asked.any() else 0.0
    if share <= _MOST_LONG:
        return None
    return (
        f"The trace is short against its longest jobs: {int(long.sum())} that run for more than a tenth of it ask for "
        f"{share:.0%} of the GPU time, so figures hang on few jobs. Take a longer trace"
    )


def _running_s(table: JobTable) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How long each job runs in all, with all its recorded attempts."""
    first, ran_s, _ = attempts_of(table)
    whole = np.concatenate([[0.0], np.cumsum(ran_s)])
    return np.diff(whole[first])
