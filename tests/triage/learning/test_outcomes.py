"""Outcomes prove little: only success past the point, and the same failure elsewhere, say anything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.triage.learning.outcomes import Trial, labels
from tests.copying import replace


def trial(
    n: int,
    ran_s: float = 100.0,
    node: str = "a",
    passed: bool = False,
    failed: bool = True,
    fingerprint: str = "f",
    category: str = "shape",
) -> Trial:
    mark = fingerprint if failed else ""
    return Trial(AttemptId("c", "1", n), frozenset(node), ran_s, passed, failed, mark, category)


ONE = trial(1)


@pytest.mark.parametrize(
    ("then", "proved"),
    [
        ([], {}),
        ([trial(2, passed=True, failed=False)], {1: True}),
        ([trial(2, 500.0, failed=False)], {1: True}),  # runs, well past the point
        ([trial(2, 130.0, failed=False)], {}),  # runs, hardly past it
        ([trial(2, 500.0, fingerprint="g")], {1: True}),  # fails otherwise, later on
        ([trial(2, 20.0, fingerprint="g")], {}),  # fails otherwise, earlier
        ([trial(2, node="b")], {1: False, 2: False}),
        ([trial(2, node="a")], {}),  # the same node again
        ([trial(2, node="ab")], {}),  # that node, and another one
        ([trial(2, 4000.0, node="b")], {}),  # alike, at quite another point
        ([trial(2, node="b"), trial(3, passed=True, failed=False)], {2: True}),  # both proofs of the first
    ],
)
def test_what_each_outcome_proves(then: list[Trial], proved: dict[int, bool]) -> None:
    found = labels([ONE, *then])
    assert {attempt.incarnation: kind for attempt, kind in found.items()} == proved


@pytest.mark.parametrize(
    ("ran_s", "again_s", "alike"),
    [(100.0, 130.0, True), (100.0, 130.1, True), (100.0, 134.0, False), (750.0, 1000.0, True), (749.0, 1000.0, False)],
)
def test_two_fail_at_one_point_that_is_told_by_the_longer_of_them_whichever_came_first(
    ran_s: float, again_s: float, alike: bool
) -> None:
    for first_s, then_s in ((ran_s, again_s), (again_s, ran_s)):
        assert bool(labels([trial(1, first_s), trial(2, then_s, node="b")])) is alike


def test_a_service_that_is_down_proves_nothing_by_failing_everywhere() -> None:
    assert labels([replace(t, category="obj_store") for t in (ONE, trial(2, node="b"), trial(3, node="c"))]) == {}


def test_on_nodes_that_nobody_knows_nothing_failed_elsewhere() -> None:
    assert labels([trial(1, node=""), trial(2, node="b")]) == {}
    assert labels([trial(1, node="a"), trial(2, node="")]) == {}


def test_another_last_line_is_no_progress_where_nothing_else_is_known_of_the_failure() -> None:
    assert labels([trial(1, fingerprint="~f"), trial(2, 500.0, fingerprint="~g")]) == {}
    assert labels([trial(1, fingerprint="~f"), trial(2, 500.0, fingerprint="g")]) == {}
    later = labels([trial(1, fingerprint="f"), trial(2, 500.0, fingerprint="~g")])
    assert list(later.values()) == [True]


trials = st.builds(
    trial,
    st.integers(1, 9),
    st.floats(0, 1e6),
    st.sampled_from("abc"),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["f", "g", ""]),
    st.sampled_from(["shape", "net"]),
)


@given(st.lists(trials, max_size=6, unique_by=lambda t: t.attempt))
def test_only_failures_are_labelled(history: list[Any]) -> None:
    failed = {t.attempt for t in history if t.failed and t.fingerprint}
    assert set(labels(history)) <= failed


@given(st.lists(trials, max_size=6, unique_by=lambda t: t.attempt))
def test_what_has_no_successor_is_never_called_transient(history: list[Any]) -> None:
    found = labels(history)
    if history and history[-1].attempt in found:
        assert found[history[-1].attempt] is False
