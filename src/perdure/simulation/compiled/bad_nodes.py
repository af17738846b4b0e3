"""Faults of nodes, compiled; see `perdure.simulation.faults`.

A recorded attempt that failed for a fault leaves it on one of the nodes that it ran on, until the repair. Whenever its
job runs on that node again before then, the fault strikes after as long a run as the first time. A fault is one job's:
other jobs do not meet it, as the trace says nothing of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.gpu_places import has_node
from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, Records, kernel, records
from perdure.simulation.faults import MOST_MET, NodeFaults


class CompiledBadNodes(NamedTuple):
    """The faults of a run, and those that jobs have met so far.

    The faults of one job form a chain in the order in which it met them first (`first`, `later`).
    """

    of: NDArray[np.int32]  # of each recorded attempt, -1 for none; empty where no faults come
    fault: Records  # see `bad_nodes`
    job: Records  # see `bad_nodes`; -1: no job


def bad_nodes(faults: NodeFaults | None, jobs: int, ticks_per_s: int) -> CompiledBadNodes:
    """All nodes are well; without `faults` they remain so, and what is kept has no room.

    Repairs are rounded to ticks.
    """
    bound = np.empty(0, np.intp) if faults is None else np.flatnonzero(faults.bound)
    fault = records(
        len(bound),
        record=LONG,
        again=FLAG,
        pick=np.float64,
        repair=LONG,
        node=SHORT,
        until=LONG,
        after=LONG,
        met=LONG,  # attempts that it has ended
        later=SHORT,  # the next fault that its job met
    )
    job = records(0 if faults is None else jobs, first=SHORT, last=SHORT, doom=SHORT)  # `doom` will end its attempt
    fault["later"] = -1
    for name in ("first", "last", "doom"):
        job[name] = -1
    if faults is None:
        return CompiledBadNodes(np.empty(0, np.int32), fault, job)
    fault["record"], fault["again"], fault["pick"] = bound, faults.again[bound], faults.pick[bound]
    fault["repair"] = np.rint(faults.repair_s[bound] * ticks_per_s)
    of = np.full(len(faults.bound), -1, np.int32)
    of[bound] = np.arange(len(bound))
    return CompiledBadNodes(of, fault, job)


@kernel
def left_by(bad, row, record, ran, noted, until, now):  # type: ignore[no-untyped-def]
    """The fault that a recorded attempt leaves on one of its nodes, noted up to `until`; -1 for none.

    Which of its nodes was drawn beforehand (`pick`, in [0, 1)), so that the draw does not depend on the schedule.
    """
    fault = np.int64(bad.of[record]) if len(bad.of) else -1
    if fault < 0:
        return -1
    first = noted.tally[0].nodes
    bad.fault[fault].node = noted.nodes[first + int(bad.fault[fault].pick * (until - first))]
    bad.fault[fault].until = now + bad.fault[fault].repair
    bad.fault[fault].after = max(1, ran)
    bad.fault[fault].met = 1
    if bad.job[row].first < 0:
        bad.job[row].first = fault
    else:
        bad.fault[bad.job[row].last].later = fault
    bad.job[row].last = fault
    return fault


@kernel
def lasts(bad, places, row, remaining, now):  # type: ignore[no-untyped-def]
    """Ticks that a job runs that has just been given its GPUs: until it ends, or a fault strikes.

    Of several faults the one that strikes first is its `doom`; of equal ones the one that it met first. Walks along the
    faults of this job alone, and the nodes that it holds for each.
    """
    if not len(bad.of):
        return remaining
    fault, doom = np.int64(bad.job[row].first), np.int64(-1)
    while fault >= 0:
        strikes = now < bad.fault[fault].until and bad.fault[fault].after < remaining
        if strikes and has_node(places, row, bad.fault[fault].node):
            doom, remaining = fault, bad.fault[fault].after
        fault = np.int64(bad.fault[fault].later)
    bad.job[row].doom = doom
    return remaining


@kernel
def met_by(bad, row):  # type: ignore[no-untyped-def]
    """The fault that has ended the job's attempt; -1 for none. It is counted as met once more."""
    if not len(bad.of) or bad.job[row].doom < 0:
        return -1
    fault = np.int64(bad.job[row].doom)
    bad.fault[fault].met += 1
    return fault


@kernel
def is_over(bad, fault):  # type: ignore[no-untyped-def]
    """Whether the job that met the fault has met it often enough: nobody tries a job again without end."""
    return bad.fault[fault].met >= MOST_MET


@kernel
def following(bad, record):  # type: ignore[no-untyped-def]
    """The next recorded attempt that does not repeat a fault: the simulated nodes bring repetitions about."""
    record += 1
    if len(bad.of):
        while bad.of[record] >= 0 and bad.fault[bad.of[record]].again:
            record += 1
    return record
