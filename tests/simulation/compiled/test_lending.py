"""Who is within the quota of a virtual cluster, against the order of starts gone through anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.gpu_places import COUNT, empty_places
from perdure.simulation.compiled.lending import Lending, lending_of
from perdure.simulation.compiled.state import State, state_of
from perdure.simulation.workload import Workload
from tests.simulation.compiled.in_python import in_python
from tests.simulation.tables import jobs

kernels = in_python("lending")
WIDTHS, GROUPS = [1, 2, 4, 1, 2, 4, 2, 1], [0, 0, 0, 1, 1, 1, 0, 1]
N, QUOTA = len(WIDTHS), np.array([5.0, 2.5])
STEPS = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, 2), st.booleans()), max_size=30)


def world() -> tuple[State, Lending]:
    work = Workload.of(jobs(*((gpus, 0, 9) for gpus in WIDTHS), vc=[str(group) for group in GROUPS]))
    return state_of(work, empty_places(Cluster.parse("8x8"), COUNT, 0, N), None), lending_of(work, QUOTA, 48.0, 64)


def played(steps: list[tuple[int, int, bool]]) -> tuple[State, Lending, list[int], dict[int, int]]:
    """Each step makes a job wait, start, or stop; now and then a pass tells who borrows.

    Those that wait, in the order in which they came, and those that run with their start.
    """
    state, lending = world()
    waiting, runs, now = list[int](), dict[int, int](), 0
    for row, later, passes in steps:
        state.tally[0].now = now = now + later
        if row in runs:
            kernels.cease_to_run(state, lending, row)
            state.job[row].resumed = -1
            del runs[row]
        elif row in waiting:
            state.job[row].resumed = runs[row] = now
            kernels.begin_to_run(state, lending, row)
            waiting.remove(row)
        else:
            kernels.wait(lending, row)
            waiting.append(row)
        if passes:
            kernels.split(state, lending)
            assert_split(lending, runs)
    kernels.split(state, lending)
    return state, lending, waiting, runs


def order(runs: dict[int, int]) -> list[int]:
    return sorted(runs, key=lambda row: (runs[row], row))


def borrowers(runs: dict[int, int]) -> tuple[set[int], list[float]]:
    """In the order of their start running jobs use up the quota; who finds too little borrows."""
    left, borrow = QUOTA.tolist(), set()
    for row in order(runs):
        if WIDTHS[row] > left[GROUPS[row]]:
            borrow.add(row)
        else:
            left[GROUPS[row]] -= WIDTHS[row]
    return borrow, left


def assert_split(lending: Lending, runs: dict[int, int]) -> None:
    borrow, left = borrowers(runs)
    assert {row for row in runs if lending.job[row].borrows} == borrow
    assert lending.groups["within"].tolist() == left
    assert lending.groups["borrowers"].tolist() == [sum(GROUPS[row] == group for row in borrow) for group in (0, 1)]
    assert not lending.groups["changed"].any()


@settings(max_examples=30)
@given(STEPS)
def test_who_borrows_is_as_if_it_were_worked_out_anew(steps: list[tuple[int, int, bool]]) -> None:
    _, lending, waiting, runs = played(steps)
    assert_split(lending, runs)
    assert lending.groups["waiting"].tolist() == [sum(GROUPS[row] == group for row in waiting) for group in (0, 1)]


@settings(max_examples=20)
@given(STEPS)
def test_waiting_jobs_are_within_quota_in_the_order_in_which_they_came(steps: list[tuple[int, int, bool]]) -> None:
    state, lending, waiting, runs = played(steps)
    _, left = borrowers(runs)
    entitled = []
    for row in waiting:
        if WIDTHS[row] <= left[GROUPS[row]]:
            entitled.append(row)
            left[GROUPS[row]] -= WIDTHS[row]
    for _ in range(2):  # a second pass begins anew
        kernels.forget_entitled(lending)
        found = []
        while (row := int(kernels.next_entitled(state, lending))) >= 0:
            found.append(row)
        assert found == entitled
        assert [kernels.is_entitled(lending, row) for row in waiting] == [row in entitled for row in waiting]


@settings(max_examples=20)
@given(STEPS)
def test_the_last_to_start_of_those_that_borrow_yields_first(steps: list[tuple[int, int, bool]]) -> None:
    state, lending, _, runs = played(steps)
    kernels.forget_borrowers(lending)
    found = []
    while (row := int(kernels.last_borrower(state, lending))) >= 0:
        found.append(row)
        kernels.into_margin(lending, row)
    assert found == [row for row in reversed(order(runs)) if row in borrowers(runs)[0]]


def test_of_jobs_that_start_together_the_lower_rows_use_up_the_quota_first() -> None:
    _, lending, _, runs = played(
        [(1, 0, False), (2, 0, False), (0, 0, False), (2, 3, True), (1, 0, True), (0, 0, True)]
    )
    assert order(runs) == [0, 1, 2]
    assert borrowers(runs) == ({2}, [2.0, 2.5])
    assert_split(lending, runs)


def test_a_narrower_job_behind_one_that_borrows_is_within_quota() -> None:
    steps = [(5, 0, False), (5, 0, False), (3, 1, False), (3, 0, True), (5, 1, True)]
    _, lending, _, runs = played(steps[:4])
    assert (bool(lending.job[5].borrows), bool(lending.job[3].borrows)) == (True, False)
    assert borrowers(runs) == ({5}, [5.0, 1.5])
    assert played(steps)[1].groups["borrowers"].tolist() == [0, 0]
