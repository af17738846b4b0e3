"""Max-min fairness by rounds: over time every job gets its max-min share of the GPUs, as whole gangs.

Source: the round mechanism follows D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep
learning workloads" (Gavel), OSDI 2020, for GPUs of one kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.placement.resources import Stock
from perdure.scheduling.view import View

UNIT = 27_720  # of these a GPU has: shares are whole, so that equal jobs stay equal, and exact among up to 12 jobs
Ints = NDArray[np.int64]


def maxmin_shares(asked: Ints, total: int) -> Ints:
    """Shares of `total` GPUs that maximise the smallest, then the next smallest, none above what is asked.

    In 27,720ths of a GPU, rounded down. By water-filling in the order of what is asked: each takes an even part of
    what is left, or less if it asks less; from the first that asks for more than its part, all get that same part.

    >>> (maxmin_shares(np.array([1, 4, 8]), 8) / UNIT).tolist()
    [1.0, 3.5, 3.5]
    """
    wanted = np.sort(asked) * UNIT
    left = total * UNIT - (np.cumsum(wanted) - wanted)
    part = left // np.arange(len(asked), 0, -1)
    more = np.flatnonzero(wanted > part)
    return np.minimum(asked * UNIT, part[more[0]]) if len(more) else asked * UNIT


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Each round, the jobs that were given least of their max-min share so far run, as far as they fit.

    A gang cannot run on 3.5 GPUs of 8: it runs with all of them in some rounds and not in others, so that the average
    is its share. A job that ends within a round leaves its GPUs idle until the next; shorter rounds (`round_s`,
    seconds) preempt more. Among equals, whoever came first runs first.
    """

    round_s: float = 360.0
    name: str = "maxmin"

    def planner(self, view: View) -> Deficits:
        return Deficits(view)


@dataclass(slots=True)
class Deficits:
    """Max-min fairness at work: what each job is owed, in `UNIT` parts of a GPU-tick.

    A job is owed its share for each tick since it came, less what it ran; `share` is that of the last round. A next
    attempt starts with nothing owed. A job that runs when a round begins ran all the round before.
    """

    view: View
    gpus: Ints = field(init=False)
    owed: Ints = field(init=False)  # of each job, like the next one
    share: Ints = field(init=False)
    there: dict[int, None] = field(default_factory=dict)  # in the order in which they came
    counted: int = 0

    def __post_init__(self) -> None:
        self.gpus = np.array(self.view.gpus, np.int64)
        self.owed, self.share = np.zeros_like(self.gpus), np.zeros_like(self.gpus)

    def arrive(self, row: int) -> None:
        self.there[row] = None
        self.owed[row] = self.share[row] = 0

    def leave(self, row: int) -> None:
        del self.there[row]

    def plan(self) -> list[int]:
        """Settle what is owed, share out again, and take the gangs that are owed most for each of their GPUs while they
        fit.

        Among equals, the order of arrival.
        """
        view = self.view
        rows, running = (np.fromiter(jobs, np.intp, len(jobs)) for jobs in (self.there, view.running))
        elapsed, self.counted = view.now - self.counted, view.now
        self.owed[rows] += self.share[rows] * elapsed
        self.owed[running] -= self.gpus[running] * (UNIT * elapsed)
        gpus = self.gpus[rows]
        self.share[rows] = maxmin_shares(gpus, view.total_gpus)
        order = np.argsort(-(self.owed[rows] + self.share[rows]) / gpus, kind="stable")
        return _first_fit(rows[order], gpus[order], view)

    def is_settled(self) -> bool:
        """With everybody running, the next plan is the same again."""
        return not self.view.waiting


def _first_fit(rows: NDArray[np.intp], gpus: Ints, view: View) -> list[int]:
    """Those that fit, one after another: all up to the first that does not, then who fits into what is left."""
    first = 0 if view.resources else int(np.searchsorted(np.cumsum(gpus), view.total_gpus, "right"))
    plan: list[int] = rows[:first].tolist()
    free, others = view.total_gpus - int(gpus[:first].sum()), Stock.counted(view.resources)
    narrow = first + np.flatnonzero(gpus[first:] <= free)
    for row, asked in zip(rows[narrow].tolist(), gpus[narrow].tolist(), strict=True):
        if not free:
            break
        if asked <= free and (not others.resources or others.take(row, asked)):
            plan.append(row)
            free -= asked
    return plan
