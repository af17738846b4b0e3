"""Faults of nodes, compiled; see `perdure.simulation.faults`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, SHORT_NONE, Records, kernel, records
from perdure.simulation.faults import MOST_MET, NodeFaults


class BadNodes(NamedTuple):
    """The faults of a run, and those that jobs have met so far."""

    of: NDArray[np.int32]  # of each recorded attempt, -1 for none; empty where no faults come
    fault: Records  # see `bad_nodes`
    job: Records  # of each job: the first and the last fault that it met, the one that will end its attempt; -1 is none


def bad_nodes(faults: NodeFaults | None, jobs: int, ticks_per_s: int) -> BadNodes:
    """All nodes are well; without `faults` they remain so."""
    if faults is None:
        return BadNodes(np.empty(0, np.int32), _faults(0), _jobs(0))
    bound = np.flatnonzero(faults.bound)
    of = np.full(len(faults.bound), -1, np.int32)
    of[bound] = np.arange(len(bound))
    fault = _faults(len(bound))
    fault["record"], fault["again"], fault["pick"] = bound, faults.again[bound], faults.pick[bound]
    fault["repair"] = np.rint(faults.repair_s[bound] * ticks_per_s)
    return BadNodes(of, fault, _jobs(jobs))


def _faults(n: int) -> Records:
    return records(
        n,
        record=LONG,
        again=FLAG,
        pick=(np.float64, 0),
        repair=LONG,
        node=SHORT,
        until=LONG,
        after=LONG,
        met=LONG,  # attempts that it has ended
        later=SHORT_NONE,  # the next fault that its job met
    )


def _jobs(n: int) -> Records:
    return records(n, first=SHORT_NONE, last=SHORT_NONE, doom=SHORT_NONE)


@kernel
def left_by(bad, row, record, ran, noted, until, now):  # type: ignore[no-untyped-def]
    """The fault that a recorded attempt leaves on one of its nodes, noted up to `until`; -1 for none."""
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
    """Ticks that a job runs that has just been given its GPUs, if it is let: until it ends, or a fault strikes."""
    if not len(bad.of):
        return remaining
    fault, doom = np.int64(bad.job[row].first), np.int64(-1)
    while fault >= 0:
        strikes = now < bad.fault[fault].until and bad.fault[fault].after < remaining
        if strikes and _has_node(places, row, bad.fault[fault].node):
            doom, remaining = fault, bad.fault[fault].after
        fault = np.int64(bad.fault[fault].later)
    bad.job[row].doom = doom
    return remaining


@kernel
def met_by(bad, row):  # type: ignore[no-untyped-def]
    """The fault that has ended the job's attempt; -1 for none."""
    if not len(bad.of) or bad.job[row].doom < 0:
        return -1
    fault = np.int64(bad.job[row].doom)
    bad.fault[fault].met += 1
    return fault


@kernel
def is_over(bad, fault):  # type: ignore[no-untyped-def]
    """Whether the job that met the fault has met it often enough."""
    return bad.fault[fault].met >= MOST_MET


@kernel
def following(bad, record):  # type: ignore[no-untyped-def]
    """The next recorded attempt."""
    record += 1
    if len(bad.of):
        while bad.of[record] >= 0 and bad.fault[bad.of[record]].again:
            record += 1
    return record


@kernel
def _has_node(places, row, node):  # type: ignore[no-untyped-def]
    share = np.int64(places.holders[row].first)
    while share >= 0:
        if places.shares[share].node == node:
            return True
        share = np.int64(places.shares[share].after)
    return False
