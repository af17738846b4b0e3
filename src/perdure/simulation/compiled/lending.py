"""Philly's virtual clusters, compiled: which jobs are within the quota of theirs, and which borrow.

Of each virtual cluster the running jobs, in the order of their start, use up the quota; one that finds too little left
borrows. That is worked out again only where it can have changed: when a job within quota leaves while others borrow, or
a job is put before others. Waiting jobs are in two lists: by virtual cluster and size, to find the next one within
quota, and by size alone, to find the next one that borrows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, Records, kernel, records
from perdure.simulation.compiled.linked_lists import append, empty_chains, insert, no_links, unlink
from perdure.simulation.workload import Workload

UNKNOWN = -2  # in the place of a job that has not been looked for yet; -1: no job


class Lending(NamedTuple):
    """The running and waiting jobs of each virtual cluster. Quotas are in GPUs, and need not be whole.

    Kept true between passes: a waiting job is in the list of its virtual cluster and size in `lines`, and in that of
    its size in `common`; a running one is in `running` of its virtual cluster. Unless `changed`, ``groups.within`` is
    the quota less the GPUs of the running jobs that do not borrow, and ``groups.borrowers`` counts those that do.
    """

    crowded_gpus: float  # that must be busy before anybody is preempted
    total_gpus: int
    quota: NDArray[np.float64]  # GPUs of each virtual cluster
    left: NDArray[np.float64]  # of that, besides the running jobs; in a pass, besides those that came before
    job: Records  # see `lending_of`
    groups: Records  # virtual clusters, likewise
    sizes: Records  # of gangs, ascending, likewise
    near: Records  # links of chains within a virtual cluster
    far: Records  # links of chains across virtual clusters
    running: Records  # of each virtual cluster: running jobs in the order of their start, of one instant the lower row
    lines: Records  # (groups, sizes): waiting jobs in the order in which they came to wait
    stands: Records  # (groups, sizes): pass number `passed` found those before `row` to be within quota
    common: Records  # of each size: all waiting jobs, in that order
    margin: NDArray[np.int64]  # running jobs that may have to yield in this pass, the last in precedence first
    lifted: NDArray[np.int64]  # those that must, the first in precedence first
    tally: Records  # one record


def lending_of(jobs: Workload, quota: NDArray[np.float64], crowded: float, total_gpus: int) -> Lending:
    """Virtual clusters without jobs. `crowded` is in GPUs."""
    n, most = len(jobs), min(len(jobs), total_gpus)
    widths, size_of = np.unique(jobs.gpus, return_inverse=True)
    job = records(
        n,
        group=SHORT,
        size_of=SHORT,  # in `sizes`
        borrows=FLAG,  # of a running job
        entitled=LONG,  # of a waiting job: the last pass in which it was within quota
        turn=LONG,  # of a waiting job: counts those who came to wait
    )
    job["group"], job["size_of"] = jobs.group, size_of
    groups = records(
        len(quota),
        changed=FLAG,  # which of its running jobs borrow must be found out again
        waiting=LONG,  # jobs
        borrowers=LONG,  # running jobs
        within=np.float64,  # GPUs left of the quota besides the running jobs
        borrower=LONG,  # the last running job that borrows and is not in the margin
        unseen=LONG,  # borrowers before that one
        entitled=LONG,  # the first waiting job within quota that the pass has not come to
    )
    groups["within"] = quota
    sizes = records(len(widths), gpus=LONG, closed=FLAG, waiting=LONG)  # `waiting`: where a pass is in `common`
    sizes["gpus"] = widths
    shape = len(quota), len(widths)
    return Lending(
        crowded,
        total_gpus,
        quota,
        quota.copy(),
        job,
        groups,
        sizes,
        no_links(n),
        no_links(n),
        empty_chains(len(quota)),
        empty_chains(shape[0] * shape[1]).reshape(shape),
        records(shape[0] * shape[1], passed=LONG, row=LONG).reshape(shape),
        empty_chains(len(widths)),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        records(1, turn=LONG, passes=LONG, many_lifted=LONG),
    )


@kernel
def wait(lending, row):  # type: ignore[no-untyped-def]
    """Queue a job behind all others, in both of its chains."""
    job = lending.job[row]
    job.turn = lending.tally[0].turn
    lending.tally[0].turn += 1
    lending.groups[job.group].waiting += 1
    append(lending.near, lending.lines[job.group, job.size_of], row)
    append(lending.far, lending.common[job.size_of], row)


@kernel
def begin_to_run(state, lending, row):  # type: ignore[no-untyped-def]
    """Put a job that waited, and was just started, among the running ones, in the order of start, then of rows.

    If it is the last one, it is known at once whether it borrows; else `split` finds out for all of its virtual
    cluster. Only jobs of the same instant are compared, for all others started before.
    """
    job = lending.job[row]
    unlink(lending.near, lending.lines[job.group, job.size_of], row)
    unlink(lending.far, lending.common[job.size_of], row)
    before = lending.running[job.group].last
    while before > row and state.job[before].resumed == state.tally[0].now:
        before = np.int64(lending.near[before].before)
    insert(lending.near, lending.running[job.group], before, row)
    group = lending.groups[job.group]
    group.waiting -= 1
    if lending.near[row].after >= 0:
        group.changed = True
    elif not group.changed:
        _use(state, lending, group, row)


@kernel
def cease_to_run(state, lending, row):  # type: ignore[no-untyped-def]
    """Take a job out from among the running ones.

    If it was within quota and others borrow, those behind it may stop borrowing: `split` finds out. Else the quota it
    used is free, or, if it borrowed, nothing changes for anybody.
    """
    job = lending.job[row]
    unlink(lending.near, lending.running[job.group], row)
    group = lending.groups[job.group]
    if job.borrows:
        group.borrowers -= 1
    elif group.borrowers:
        group.changed = True
    else:
        group.within += state.job[row].gpus


@kernel
def split(state, lending):  # type: ignore[no-untyped-def]
    """Tell running jobs within quota from those that borrow, where that is to be done. A pass begins with it."""
    for i in range(len(lending.groups)):
        group = lending.groups[i]
        if group.changed:
            group.changed = False
            group.within = lending.quota[i]
            group.borrowers = 0
            row = lending.running[i].first
            while row >= 0:
                _use(state, lending, group, row)
                row = np.int64(lending.near[row].after)


@kernel
def _use(state, lending, group, row):  # type: ignore[no-untyped-def]
    """Charge the next running job of a virtual cluster to its quota; if too little is left, the job borrows.

    One that borrows uses no quota, so that a narrower one behind it may still be within.
    """
    gpus = state.job[row].gpus
    lending.job[row].borrows = gpus > group.within
    if lending.job[row].borrows:
        group.borrowers += 1
    else:
        group.within -= gpus


@kernel
def forget_entitled(lending):  # type: ignore[no-untyped-def]
    """Go through the quotas from their beginning again: what is left of each besides the running jobs within it."""
    lending.tally[0].passes += 1
    for i in range(len(lending.groups)):
        lending.left[i] = lending.groups[i].within
        lending.groups[i].entitled = UNKNOWN if lending.groups[i].waiting else -1


@kernel
def next_entitled(state, lending):  # type: ignore[no-untyped-def]
    """The next waiting job within its virtual cluster's quota, in the order in which they came; -1 for none.

    It uses up quota as it is named, whether or not it is started then, as in the plain order. Costs the virtual
    clusters, and the sizes of the one that was named last: the answers of the others are kept.
    """
    best = np.int64(-1)
    for i in range(len(lending.groups)):
        group = lending.groups[i]
        if group.entitled == UNKNOWN:
            group.entitled = _first_entitled(lending, i)
        row = group.entitled
        if row >= 0 and (best < 0 or lending.job[row].turn < lending.job[best].turn):
            best = row
    if best >= 0:
        job = lending.job[best]
        job.entitled = lending.tally[0].passes
        lending.left[job.group] -= state.job[best].gpus
        lending.groups[job.group].entitled = UNKNOWN
        lending.stands[job.group, job.size_of].row = np.int64(lending.near[best].after)
    return best


@kernel
def is_entitled(lending, row):  # type: ignore[no-untyped-def]
    """Whether this pass has come to a waiting job as one within quota.

    It is not tried once more as one that borrows.
    """
    return lending.job[row].entitled == lending.tally[0].passes


@kernel
def _first_entitled(lending, group):  # type: ignore[no-untyped-def]
    """The first waiting job of a virtual cluster that what is left of the quota holds; -1 for none.

    One job of each size is looked at: within a size the first to come is the first to be within quota.
    """
    best = np.int64(-1)
    for size in range(len(lending.sizes)):
        if lending.sizes[size].gpus > lending.left[group]:
            break
        row = _candidate(lending, group, size)
        if row >= 0 and (best < 0 or lending.job[row].turn < lending.job[best].turn):
            best = row
    return best


@kernel
def _candidate(lending, group, size):  # type: ignore[no-untyped-def]
    """The first job of a line that this pass has not come to as one within quota; -1 for none.

    Where each line stands is kept with the number of the pass, so that no pass has to set all lines back.
    """
    stand = lending.stands[group, size]
    if stand.passed != lending.tally[0].passes:
        stand.passed = lending.tally[0].passes
        stand.row = lending.lines[group, size].first
    return stand.row


@kernel
def last_borrower(state, lending):  # type: ignore[no-untyped-def]
    """The running job that borrows, is not in the margin, and was started last; -1 for none.

    Of those started at the same instant it is the one with the higher row.
    """
    best = np.int64(-1)
    for i in range(len(lending.groups)):
        group = lending.groups[i]
        if group.borrower == UNKNOWN:
            group.borrower = _borrower_up_to(lending, group, lending.running[i].last)
        row = group.borrower
        if row >= 0 and (best < 0 or _started_after(state, row, best)):
            best = row
    return best


@kernel
def forget_borrowers(lending):  # type: ignore[no-untyped-def]
    """Look for the last borrowers again: nobody is in the margin."""
    for i in range(len(lending.groups)):
        lending.groups[i].borrower = UNKNOWN
        lending.groups[i].unseen = lending.groups[i].borrowers


@kernel
def into_margin(lending, row):  # type: ignore[no-untyped-def]
    """Go on, in its virtual cluster, to the borrower before this one, which is now in the margin."""
    group = lending.groups[lending.job[row].group]
    group.borrower = _borrower_up_to(lending, group, np.int64(lending.near[row].before))


@kernel
def _borrower_up_to(lending, group, row):  # type: ignore[no-untyped-def]
    """The last borrower among a running job and those before it; -1 for none.

    `unseen` says how many there are still, so that the walk never runs off the front of the list.
    """
    if not group.unseen:
        return np.int64(-1)
    group.unseen -= 1
    while not lending.job[row].borrows:
        row = np.int64(lending.near[row].before)
    return row


@kernel
def _started_after(state, a, b):  # type: ignore[no-untyped-def]
    """Whether running job a is behind running job b: started later, or at the same instant with the higher row."""
    since_a, since_b = state.job[a].resumed, state.job[b].resumed
    return since_a > since_b or (since_a == since_b and a > b)
