"""Faults of nodes, against the plain form: what a job leaves, meets and skips."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.bad_nodes import CompiledBadNodes, bad_nodes
from perdure.simulation.compiled.gpu_places import FIRST_FIT, empty_places
from perdure.simulation.compiled.retry_queries import no_questions
from perdure.simulation.faults import MOST_MET, BadNodes, NodeFaults
from tests.simulation.compiled.in_python import in_python

kernels, places_kernels, queries = in_python("bad_nodes"), in_python("gpu_places"), in_python("retry_queries")
CLUSTER, JOBS, RECORDS = Cluster.parse("4x2"), 2, 6
LEFT = st.tuples(
    st.integers(0, JOBS - 1), st.sets(st.integers(0, 3), min_size=1), st.integers(0, 12), st.integers(0, 9)
)


@st.composite
def faults(draw: st.DrawFn) -> NodeFaults:
    bound = np.array(draw(st.lists(st.booleans(), min_size=RECORDS, max_size=RECORDS)))
    again = bound & np.array([False, *draw(st.lists(st.booleans(), min_size=RECORDS - 2, max_size=RECORDS - 2)), False])
    pick = np.array(draw(st.lists(st.sampled_from([0.0, 0.4, 0.99]), min_size=RECORDS, max_size=RECORDS)))
    repair_s = np.array(draw(st.lists(st.sampled_from([0.0, 2.5, 20.0]), min_size=RECORDS, max_size=RECORDS)))
    return NodeFaults(bound, again, pick, repair_s)


def leave(found: CompiledBadNodes, row: int, record: int, ran: int, nodes: list[int], now: int) -> int:
    """The attempt held these nodes and failed."""
    places, noted = empty_places(CLUSTER, FIRST_FIT, 0, JOBS), no_questions(CLUSTER.total_gpus)
    for node in nodes:
        places_kernels.hold(places, row, node, 1)
    return int(kernels.left_by(found, row, record, ran, noted, queries.note_nodes(noted, places, row), now))


def lasts(found: CompiledBadNodes, row: int, nodes: list[int], remaining: int, now: int) -> int:
    """How long the job runs that starts on these nodes."""
    places = empty_places(CLUSTER, FIRST_FIT, 0, JOBS)
    for node in nodes:
        places_kernels.hold(places, row, node, 1)
    return int(kernels.lasts(found, places, row, remaining, now))


@settings(max_examples=30)
@given(faults(), st.lists(LEFT, max_size=RECORDS), LEFT, st.integers(0, 15))
def test_faults_are_left_and_met_as_in_the_plain_form(
    of: NodeFaults, left: list[tuple[int, set[int], int, int]], then: tuple[int, set[int], int, int], remaining: int
) -> None:
    found, plain, now = bad_nodes(of, JOBS, 1), BadNodes(of), 0
    for record, (row, nodes, ran, later) in enumerate(left):
        now += later
        place = leave(found, row, record, ran, sorted(nodes), now)
        known = plain.left_by(row, record, ran, sorted(nodes), now)
        assert (place < 0) == (known is None)
        if known is not None:
            mine = found.fault[place]
            assert (mine.record, mine.node, mine.until, mine.after, mine.met) == (
                known.record, known.node, known.until, known.after, known.met,
            )  # fmt: skip
    row, nodes, _, later = then
    met = plain.met_on(row, sorted(nodes), now + later)
    if met is not None and met.after >= remaining:
        met = None  # it ends of itself before
    assert lasts(found, row, sorted(nodes), remaining, now + later) == (remaining if met is None else met.after)
    place = int(kernels.met_by(found, row))
    assert place < 0 if met is None else found.fault[place].record == met.record
    assert place < 0 or found.fault[place].met == 2


@settings(max_examples=30)
@given(faults(), st.integers(-1, RECORDS - 2))
def test_recorded_repetitions_are_skipped_as_in_the_plain_form(of: NodeFaults, record: int) -> None:
    assert kernels.following(bad_nodes(of, JOBS, 1), record) == BadNodes(of).following(record)


def test_a_fault_is_over_once_it_has_ended_so_many_attempts() -> None:
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    found = bad_nodes(NodeFaults(yes, no, np.zeros(1), np.full(1, 1e6)), 1, 1)
    assert leave(found, 0, 0, 3, [2], 0) == 0
    met = 1
    while not kernels.is_over(found, 0):
        assert lasts(found, 0, [2], 50, 10) == 3
        assert kernels.met_by(found, 0) == 0
        met += 1
    assert met == MOST_MET


def test_repairs_are_in_ticks_and_end_the_fault() -> None:
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    found = bad_nodes(NodeFaults(yes, no, np.zeros(1), np.full(1, 1.5)), 1, 1000)
    leave(found, 0, 0, 0, [3, 1], 100)
    assert found.fault[0].until == 1600
    assert (found.fault[0].node, found.fault[0].after) == (3, 1)  # a fault takes a tick at least
    assert lasts(found, 0, [1], 9, 200) == lasts(found, 0, [3], 9, 1600) == 9
    assert lasts(found, 0, [3], 9, 1599) == 1


def test_without_faults_all_attempts_last_as_recorded() -> None:
    found = bad_nodes(None, JOBS, 1)
    assert lasts(found, 0, [0], 7, 0) == 7
    assert kernels.met_by(found, 0) == leave(found, 0, 3, 1, [0], 0) == -1
    assert kernels.following(found, 3) == 4
