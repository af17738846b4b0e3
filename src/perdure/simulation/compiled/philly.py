"""Philly's scheduler, compiled: jobs within quota first, others borrow until the cluster is crowded.

`perdure.scheduling.philly` defines it. The plain order sorts all running and waiting jobs into those within the quota
of their virtual cluster and those beyond, after each event. Here it is kept (`lending`) who borrows, and a pass looks
only at jobs that can gain or lose GPUs: waiting ones that may fit, and running borrowers, the last to start first.

Running jobs within quota come first in the order and all fit, as they run: none of them can lose its GPUs. So it
suffices to choose among the others.

Source: M. Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads", USENIX ATC 2019.
"""

from __future__ import annotations

from math import inf

import numpy as np

from perdure.scheduling.philly import Philly
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.gpu_places import forget, lift, put_back
from perdure.simulation.compiled.kernel import entry, kernel
from perdure.simulation.compiled.lending import (
    Lending,
    begin_to_run,
    cease_to_run,
    forget_borrowers,
    forget_entitled,
    into_margin,
    is_entitled,
    last_borrower,
    lending_of,
    next_entitled,
    split,
    wait,
)
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.placements import looks_for_itself
from perdure.simulation.compiled.state import preempt, start
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of


def prepare(policy: Philly, jobs: Workload, total_gpus: int) -> Lending | None:
    """Virtual clusters without jobs, and their quotas; None where borrowing is capped, which the plain loop knows."""
    if policy.most < inf:
        return None
    quota = np.array(policy.ranking(view_of(jobs, total_gpus)).quota)
    return lending_of(jobs, quota, policy.crowded * total_gpus, total_gpus)


@kernel
def _arrive(state, lending, row):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """A job that came waits behind all others, whatever it did before."""
    wait(lending, row)


@kernel
def _give(state, lending):  # type: ignore[no-untyped-def]
    """One pass. Only running jobs that borrow can lose their GPUs, the last to start first, to jobs within quota.

    In the order of the plain policy: running jobs within quota, waiting ones within quota, running borrowers, waiting
    ones that borrow. Nobody yields before `crowded_gpus` are busy.
    """
    if not state.tally[0].waiting:
        return
    split(state, lending)
    lending.tally[0].many_lifted = 0
    if lending.total_gpus - state.places.tally[0].total_free >= lending.crowded_gpus:
        _choose(state, lending)
    for i in range(lending.tally[0].many_lifted):
        lift(state.places, lending.lifted[i], np.int64(state.job[lending.lifted[i]].gpus))
    if state.places.tally[0].total_free >= _narrowest(lending):
        _open_sizes(lending)
        _start_entitled(state, lending)
        yielding = _put_back(state, lending)
        _start_others(state, lending)
        _preempt(state, lending, yielding)


@kernel
def _narrowest(lending):  # type: ignore[no-untyped-def]
    """GPUs of the narrowest waiting job; `NEVER` if nobody waits. A pass is over when fewer are free."""
    for size in range(len(lending.sizes)):
        if lending.common[size].first >= 0:
            return lending.sizes[size].gpus
    return NEVER


@kernel
def _open_sizes(lending):  # type: ignore[no-untyped-def]
    """Make every size of gang be tried again, from the job that began to wait first."""
    for size in range(len(lending.sizes)):
        lending.sizes[size].closed = False
        lending.sizes[size].waiting = lending.common[size].first


@kernel
def _choose(state, lending):  # type: ignore[no-untyped-def]
    """Put borrowers into `lifted` that must yield to jobs within quota, by counting GPUs; see `gpu_pass._choose`.

    Borrowers go into the margin, the last to start first, until the job within quota fits; whichever of them still fits
    in the end, the first to start first, stays. Waiting borrowers come last in the order and displace nobody.
    """
    free, too_wide, margin, may_lift = state.places.tally[0].total_free, NEVER, 0, True
    narrowest = _narrowest(lending)
    forget_entitled(lending)
    forget_borrowers(lending)
    while free >= narrowest or may_lift:
        waiter = next_entitled(state, lending)
        if waiter < 0:
            break
        gpus = np.int64(state.job[waiter].gpus)
        if gpus >= too_wide:
            continue
        while free < gpus:
            borrower = last_borrower(state, lending)
            may_lift = borrower >= 0
            if not may_lift:
                break
            lending.margin[margin] = borrower
            margin += 1
            free += state.job[borrower].gpus
            into_margin(lending, borrower)
        if free < gpus:
            too_wide = gpus
        else:
            free -= gpus
    while margin:
        margin -= 1
        row = lending.margin[margin]
        if state.job[row].gpus <= free:
            free -= state.job[row].gpus
        else:
            lending.lifted[lending.tally[0].many_lifted] = row
            lending.tally[0].many_lifted += 1


@kernel
def _start_entitled(state, lending):  # type: ignore[no-untyped-def]
    """Start waiting jobs within quota, in the order in which they came to wait; a job that does not fit is passed over.

    The quota is gone through again from its beginning: `_choose` used it up.
    """
    forget_entitled(lending)
    while state.places.tally[0].total_free >= _narrowest(lending):
        row = next_entitled(state, lending)
        if row < 0:
            break
        _try(state, lending, row)


@kernel
def _start_others(state, lending):  # type: ignore[no-untyped-def]
    """Start waiting jobs that borrow, in the order in which they came to wait; a job that does not fit is passed over.

    Of each size the next job is kept (`size.waiting`), and the one that came first of these is tried: as in a merge of
    sorted lists.
    """
    while True:
        best = np.int64(-1)
        for i in range(len(lending.sizes)):
            size = lending.sizes[i]
            if size.gpus > state.places.tally[0].total_free:
                break
            while size.waiting >= 0 and is_entitled(lending, size.waiting):
                size.waiting = np.int64(lending.far[size.waiting].after)
            row = size.waiting
            if row >= 0 and not size.closed and (best < 0 or lending.job[row].turn < lending.job[best].turn):
                best = row
        if best < 0:
            break
        lending.sizes[lending.job[best].size_of].waiting = np.int64(lending.far[best].after)
        _try(state, lending, best)


@kernel
def _try(state, lending, row):  # type: ignore[no-untyped-def]
    """Start a waiting job if it finds a place.

    Where it finds none, no other gang of its size will in this pass, unless the job looks for itself (it is
    kept off nodes, or has climbed a ladder): the size is closed.
    """
    size = lending.sizes[lending.job[row].size_of]
    if size.closed and not looks_for_itself(state.places, row):
        return
    if size.waiting == row:
        size.waiting = np.int64(lending.far[row].after)
    if start(state, row):
        begin_to_run(state, lending, row)
    elif not looks_for_itself(state.places, row):
        size.closed = True


@kernel
def _put_back(state, lending):  # type: ignore[no-untyped-def]
    """Give lifted jobs their GPUs if they are still free; the number of those for which they are not, the first of
    `lifted` then.

    Counted in GPUs they would all fit; where GPUs have places, others may have been given some of theirs.
    """
    yielding = 0
    for i in range(lending.tally[0].many_lifted):
        row = lending.lifted[i]
        if not put_back(state.places, row, np.int64(state.job[row].gpus)):
            lending.lifted[yielding] = row
            yielding += 1
    return yielding


@kernel
def _preempt(state, lending, yielding):  # type: ignore[no-untyped-def]
    """Make the first `yielding` of `lifted` wait, the first in precedence first: that is the order in which they wait
    then.
    """
    for i in range(yielding):
        row = lending.lifted[i]
        forget(state.places, row)
        cease_to_run(state, lending, row)
        preempt(state, row)
        wait(lending, row)


kernels(Lending, _arrive, cease_to_run, _give)


@entry
def advance(state, lending, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for these policies."""
    return run(state, lending, asks, resumed)
