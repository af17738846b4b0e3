"""Tetris, compiled, with GPUs alone to pack: `perdure.scheduling.tetris` defines it.

All waiting jobs that fit are scored in each pass, for a score hangs on what is free and on who else waits. Sums run in
the order of arrival, as in the plain form, so that scores are the same to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.tetris import EQUAL, Tetris
from perdure.simulation.compiled.best_first import nobody_ranked, rank, take_best
from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, Records, entry, kernel, records
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.placements import looks_for_itself
from perdure.simulation.compiled.state import start
from perdure.simulation.workload import Workload


class Crowd(NamedTuple):
    """The waiting jobs in the order of arrival, of which `state.tally` says how many there are.

    Between passes every waiting job is in `line`, and no other job is.
    """

    packing: float
    total_gpus: int
    size_of: NDArray[np.int32]  # of each job, a row of `sizes`
    sizes: Records  # of gangs, the narrowest first
    line: Records
    ranked: Records  # of a pass; labels are positions in `line`


def prepare(policy: Tetris, jobs: Workload, total_gpus: int) -> Crowd:
    """An empty line."""
    n, (gpus, size_of) = len(jobs), np.unique(jobs.gpus, return_inverse=True)
    sizes = records(len(gpus), gpus=LONG, waiting=LONG, closed=FLAG)  # closed: in this pass, as one found no place
    sizes["gpus"] = gpus
    line = records(n, row=SHORT, gpus=SHORT, soon=np.float64)
    return Crowd(policy.packing, total_gpus, size_of.astype(np.int32), sizes, line, nobody_ranked(n))


@kernel
def _arrive(state, crowd, row):  # type: ignore[no-untyped-def]
    """Put a job that came behind all others; it counts as waiting already."""
    crowd.sizes[crowd.size_of[row]].waiting += 1
    one, gpus = crowd.line[state.tally[0].waiting - 1], np.float64(state.job[row].gpus)
    one.row = row
    one.gpus = state.job[row].gpus
    one.soon = 1.0 / max(1.0, gpus * state.work[state.job[row].record])


@kernel
def _leave(state, crowd, row):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Of running jobs nothing is kept."""
    return


@kernel
def _give(state, crowd):  # type: ignore[no-untyped-def]
    """One pass: start the best of those that fitted when it began, then the best that still fits.

    Jobs of a size of which one found no place are not tried, unless each looks for itself.
    """
    if _narrowest(crowd) > state.places.tally[0].total_free:
        return
    waited, many = state.tally[0].waiting, _score(state, crowd)
    rank(crowd.ranked, many)
    while many and _narrowest(crowd) <= state.places.tally[0].total_free:
        at = take_best(crowd.ranked, many)
        many -= 1
        row, size = np.int64(crowd.line[at].row), crowd.sizes[crowd.size_of[crowd.line[at].row]]
        if size.closed or size.gpus > state.places.tally[0].total_free:
            continue
        if start(state, row):
            size.waiting -= 1
            crowd.line[at].row = -1
        else:
            size.closed = not looks_for_itself(state.places, row)
    _close_gaps(state, crowd, waited)


@kernel
def _narrowest(crowd):  # type: ignore[no-untyped-def]
    """GPUs of the narrowest waiting job that may be tried; more than there are if there is none."""
    for i in range(len(crowd.sizes)):
        if crowd.sizes[i].waiting and not crowd.sizes[i].closed:
            return crowd.sizes[i].gpus
    return np.int64(crowd.total_gpus + 1)


@kernel
def _score(state, crowd):  # type: ignore[no-untyped-def]
    """Put the jobs that fit among the ranked ones, at least one, with what the plain policy sorts by; how many."""
    free, many, asked, soon = state.places.tally[0].total_free, 0, 0, 0.0
    for at in range(state.tally[0].waiting):
        if crowd.line[at].gpus <= free:
            crowd.ranked[many].row = at
            crowd.ranked[many].label = at
            asked += crowd.line[at].gpus
            soon += crowd.line[at].soon
            many += 1
    share, best = free / crowd.total_gpus, 0.0
    eps = asked / crowd.total_gpus * share / soon
    for i in range(many):
        one = crowd.line[crowd.ranked[i].row]
        score = crowd.packing * (one.gpus / crowd.total_gpus * share) + eps * one.soon
        crowd.ranked[i].key = score
        best = max(best, score)
    for i in range(many):
        crowd.ranked[i].key = -np.rint(crowd.ranked[i].key / best * EQUAL)
    return many


@kernel
def _close_gaps(state, crowd, waited):  # type: ignore[no-untyped-def]
    """Take the started jobs out of the line, which `waited` jobs long; sizes are open again."""
    kept = 0
    for at in range(waited if state.tally[0].waiting < waited else 0):
        if crowd.line[at].row >= 0:
            crowd.line[kept].row = crowd.line[at].row
            crowd.line[kept].gpus = crowd.line[at].gpus
            crowd.line[kept].soon = crowd.line[at].soon
            kept += 1
    for i in range(len(crowd.sizes)):
        crowd.sizes[i].closed = False


kernels(Crowd, _arrive, _leave, _give)


@entry
def advance(state, crowd, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for Tetris."""
    return run(state, crowd, asks, resumed)
