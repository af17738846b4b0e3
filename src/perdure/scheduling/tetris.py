"""Tetris: pack what fits the free resources best, and favour what is soon done.

Source: R. Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.placement.resources import Stock
from perdure.scheduling.protocol import StatelessPolicy
from perdure.scheduling.view import View

EQUAL = 1e9  # scores are equal where so many parts of the best one tell them apart by less than one


def alignment(
    demand: NDArray[np.float64], free: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How well each demand, shape (n_jobs, n_resources), uses what is free, (n_resources,); -inf where it does not fit.

    The dot product of both, each over the capacity: large demands score where much is free, and a demand that is large
    in what is scarce does not.

    >>> alignment(np.array([[4.0], [1.0], [9.0]]), np.array([6.0]), np.array([8.0])).round(3).tolist()
    [0.375, 0.094, -inf]
    """
    score = (demand / capacity) @ (free / capacity)
    return np.where((demand <= free).all(axis=1), score, -np.inf)


@dataclass(frozen=True, slots=True)
class Tetris(StatelessPolicy):
    """Start the waiting job with the best score; a job that does not fit is passed over; nobody is preempted.

    The score is the alignment plus eps over the service left, eps making both terms equal on average. `packing` weighs
    the alignment: 1 as published, 0 is the shortest service first. Equal scores, to a billionth, go by arrival.

    With GPUs alone to pack, alignment means the widest gang first, and to score again after each start would change
    nothing: both terms are in proportion to what is free, and eps is that of the beginning of the pass. Where the
    cluster counts CPUs or memory too, alignment is over all of them, service is the running time left times the shares
    of all of them together, and jobs are scored again after each start. What is free counts in the whole cluster, not
    machine by machine. Remote placement, fairness and barriers are left out. Clairvoyant by the service left.
    """

    packing: float = 1.0
    name: str = "tetris"

    def order(self, view: View) -> Iterator[int]:
        if view.stock is not None:
            yield from self._over_all(view, view.stock)
            return
        asked, work, before, free = view.gpus, view.work, view.before, view.free_gpus
        rows = [row for row in view.waiting if asked[row] <= free] if free else []
        if len(rows) <= 1:
            yield from rows
            return
        gpus = np.array([asked[row] for row in rows], np.float64)
        left = np.array([work[row] - before[row] for row in rows])
        share = free / view.total_gpus
        soon = 1.0 / np.maximum(1.0, gpus * left)
        eps = gpus.sum() / view.total_gpus * share / np.cumsum(soon)[-1]  # one by one, which the compiled form does too
        score = self.packing * (gpus / view.total_gpus * share) + eps * soon
        for i in np.argsort(-np.rint(score / score.max() * EQUAL), kind="stable").tolist():
            if not view.free_gpus:
                return
            if asked[rows[i]] <= view.free_gpus:
                yield rows[i]

    def _over_all(self, view: View, stock: Stock) -> Iterator[int]:
        """The best of what fits, then the best of what then fits; by GPUs and all that is counted besides.

        Eps is over the jobs that fit when the pass begins, and what is free by then.
        """
        capacity = np.array([view.total_gpus, *(each.total for each in stock.resources)], float)
        columns = [view.gpus, *(each.asked for each in stock.resources)]
        rows = [row for row in view.waiting if view.gpus[row] <= view.free_gpus]
        asked = np.array([[column[row] for column in columns] for row in rows], float).reshape(-1, len(columns))
        begins = alignment(asked, _free(view, stock), capacity) > -np.inf
        rows, asked = [rows[i] for i in np.flatnonzero(begins)], asked[begins]
        left = np.array([max(1, view.remaining(row)) for row in rows], float)
        soon = 1.0 / (left * (asked / capacity).sum(axis=1))
        tried = np.zeros(len(rows), bool)
        while True:
            free = _free(view, stock)
            tried |= (asked > free).any(axis=1)
            if tried.all():  # nothing more fits, and where nothing at all is free, no score is above 0
                return
            packed = (asked / capacity) @ (free / capacity)
            score = self.packing * packed + packed.mean() / soon.mean() * soon
            best = int(np.argmax(np.where(tried, -1.0, np.round(score / score.max(), 9))))
            tried[best] = True
            yield rows[best]


def _free(view: View, stock: Stock) -> NDArray[np.float64]:
    """What is free of GPUs and of each resource besides, in the whole cluster."""
    return np.array([view.free_gpus, *map(sum, stock.free)], float)
