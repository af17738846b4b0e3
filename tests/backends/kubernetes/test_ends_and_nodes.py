"""Ends stay as they were first told, and the state of a node by its condition, its taints and its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.backends.kubernetes.ends import RememberedEnds
from perdure.backends.kubernetes.marks import DRAINED, GIVEN_UP
from perdure.backends.kubernetes.nodes import OUT_OF_SERVICE, PERDURE, node_of
from perdure.backends.kubernetes.picture import SightedJob
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import NodeState
from tests.copying import replace

SINCE = "2026-11-01T08:00:00Z"
SINCE_S = 1_793_520_000.0
FIRST = AttemptId("c", "team/train", 100)


def sighted(state: AttemptState, start_s: float, end_s: float | None = None) -> SightedJob:
    attempt = Attempt(FIRST, state, ("n1",), start_s, end_s)
    return SightedJob(Job("c", "team/train", "train", "ada", JobState.RUNNING, 90.0), (attempt,), (), {})


def test_an_end_stays_as_it_was_first_told() -> None:
    ends, first = RememberedEnds(), sighted(AttemptState.NODE_FAIL, 100.0, 150.0)
    for each in (first, sighted(AttemptState.FAILED, 100.0, 160.0)):
        ends.remember(each)
    for now in (sighted(AttemptState.COMPLETED, 100.0, 170.0), sighted(AttemptState.RUNNING, 100.0)):
        assert ends.apply(now).attempts == first.attempts


@pytest.mark.parametrize(("start_s", "incarnation"), [(100.0, None), (100.5, 101), (130.0, 130)])
def test_who_starts_after_its_launch_was_told_to_have_failed_has_an_attempt_of_its_own(
    start_s: float, incarnation: int | None
) -> None:
    ends, failed = RememberedEnds(), sighted(AttemptState.LAUNCH_FAILED, 100.0, 120.0)
    ends.remember(failed)
    runs = sighted(AttemptState.RUNNING, start_s)
    late = () if incarnation is None else (replace(runs.attempts[0], id=replace(FIRST, incarnation=incarnation)),)
    assert ends.apply(runs).attempts == (*failed.attempts, *late)


def document(ready: str, *taints: str, cordoned: bool = False) -> dict[str, Any]:
    spec = {"taints": [{"key": key} for key in taints], **({"unschedulable": True} if cordoned else {})}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": SINCE}
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": [condition]}}


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize(
    ("told", "state", "since_s", "by", "is_set_down"),
    [
        (document("True"), NodeState.UP, None, "", False),
        (document("Unknown"), NodeState.DOWN, SINCE_S, "", False),
        (document("True", DRAINED), NodeState.DRAINED, None, PERDURE, False),
        (document("True", cordoned=True), NodeState.DRAINED, None, "", False),
        (document("False", DRAINED), NodeState.DOWN, SINCE_S, PERDURE, False),
        (document("False", GIVEN_UP), NodeState.DOWN, None, PERDURE, True),  # when that was, the condition does not say
        (document("True", OUT_OF_SERVICE), NodeState.DOWN, None, "", True),
    ],
)
def test_the_state_of_a_node(
    told: dict[str, Any], state: NodeState, since_s: float | None, by: str, is_set_down: bool, is_busy: bool
) -> None:
    node = node_of(told, {}, frozenset({"n1"} if is_busy else ()))
    if is_busy and state is NodeState.DRAINED:
        state = NodeState.DRAINING
    assert (node.state, node.since_s, node.by, node.is_set_down) == (state, since_s, by, is_set_down)
