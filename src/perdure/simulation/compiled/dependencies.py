"""Jobs that wait for others, compiled: `perdure.scheduling.slurm.eligible` defines it.

Only where no retry policy is asked: a job whose attempt failed comes back at once, or its last record says how it ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.asks import After, Needs
from perdure.simulation.compiled.event_heap import holds
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records

_OK, _NOTOK, _START = int(After.OK), int(After.NOTOK), int(After.START)


class Dependencies(NamedTuple):
    """The dependencies of each job, and the jobs that have come and whose dependencies are not met.

    `unmet` keeps the order of arrival, in which jobs become eligible at one instant.
    """

    first: NDArray[np.int64]  # those of job i are rows first[i]:first[i + 1] of `need`; empty where nobody waits
    need: Records
    unmet: NDArray[np.int64]  # rows; the first `many[0]`
    many: NDArray[np.int64]


def dependencies_of(needs: Needs | None, n: int) -> Dependencies:
    """The table of dependencies, sorted by the job that waits; nobody has come yet.

    >>> needs = Needs(np.array([2, 1]), np.array([0, 0]), np.array([After.OK, After.ANY], np.int8))
    >>> table = dependencies_of(needs, n=3)
    >>> table.first.tolist(), table.need.tolist()  # job 1 waits for 0, and job 2 for 0 to end well
    ([0, 0, 1, 2], [(0, 0), (0, 1)])
    """
    many = 0 if needs is None else len(needs.of)
    need = records(many, on=LONG, kind=LONG)
    first = np.zeros(0 if needs is None else n + 1, np.int64)
    if needs is not None:
        order = np.argsort(needs.of, kind="stable")
        need["on"], need["kind"] = needs.on[order], needs.kind[order]
        first[1:] = np.cumsum(np.bincount(needs.of, minlength=n))
    return Dependencies(first, need, np.zeros(many, np.int64), np.zeros(1, np.int64))


@kernel
def depends(dependencies, row):  # type: ignore[no-untyped-def]
    """Whether a job waits for any other."""
    return len(dependencies.first) > 0 and dependencies.first[row] < dependencies.first[row + 1]


@kernel
def defer(dependencies, row):  # type: ignore[no-untyped-def]
    """Add a job to those whose dependencies are not met."""
    dependencies.unmet[dependencies.many[0]] = row
    dependencies.many[0] += 1


@kernel
def next_met(state, part, place):  # type: ignore[no-untyped-def]
    """Take the next job out whose dependencies are met, from a position of `unmet` on; -1 for none. And where to go on.

    All deferred jobs are looked at after each event: meant for traces in which few jobs depend on others.
    """
    dependencies = part.dependencies
    while place < dependencies.many[0]:
        row = dependencies.unmet[place]
        if is_met(state, part, row):
            dependencies.many[0] -= 1
            for i in range(place, dependencies.many[0]):
                dependencies.unmet[i] = dependencies.unmet[i + 1]
            return row, place
        place += 1
    return np.int64(-1), place


@kernel
def is_met(state, part, row):  # type: ignore[no-untyped-def]
    """Whether a job no longer has to wait for another.

    A job is over if it has been tried, and neither runs, waits, nor is on its way to a next attempt. ``afterok`` of one
    that failed is never met: the job waits for ever.
    """
    dependencies = part.dependencies
    for i in range(dependencies.first[row], dependencies.first[row + 1]):
        need = dependencies.need[i]
        job = state.job[need.on]
        over = job.tried > 0 and job.resumed < 0 and not part.job[need.on].waits and not holds(state.returns, need.on)
        if need.kind == _START:
            if job.resumed < 0 and not over:
                return False
        elif not over or (need.kind in (_OK, _NOTOK) and state.passed[job.record] != (need.kind == _OK)):
            return False
    return True
