"""Failures that are not their node's: a node set down by a person, and launches that fail alike on several nodes."""

from typing import Any

import pytest

from perdure.cli.card import card
from perdure.cli.diagnosis import Diagnosis
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.nodes import Node, NodeState
from perdure.retry.decide import Decision, DecisionKind
from perdure.retry.not_the_node import MAX_REASON, of_launches, of_set_down
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict
from tests.copying import replace
from tests.retry.test_decide import TRANSIENT, TRIED, decided, earlier

NOT_LAUNCHED = replace(TRIED, state=AttemptState.LAUNCH_FAILED, exit_code=0, reason="launch failed: no such user")


LOST = replace(TRIED, state=AttemptState.NODE_FAIL)
SET_DOWN = {"n2": Node("n2", NodeState.DOWN, reason="replacing a DIMM", is_set_down=True)}


def failed_before(*nodes: str) -> list[Any]:
    """The same launch failure on each of these nodes, the oldest first."""
    seen, found = judge(b"", NOT_LAUNCHED), []
    for node in nodes:
        (before,) = earlier(1, node, seen.fingerprint)
        found.append(replace(before, category="launcher", p_transient=found[-1].p_transient / 2 if found else 0.85))
    return found


def said_after(*nodes: str) -> tuple[Verdict, Decision]:
    past = failed_before(*nodes)
    verdict = of_launches(judge(b"", NOT_LAUNCHED), NOT_LAUNCHED, past)
    return verdict, decided(verdict, attempt=NOT_LAUNCHED, past=past)


def test_a_first_launch_failure_is_retried_on_another_node() -> None:
    verdict, decision = said_after()
    assert (verdict.label, decision.headline(verdict), decision.kind) == ("transient", "transient", "retry")
    assert verdict.advice.startswith("A retry on another node usually starts")


def test_what_failed_to_launch_on_several_nodes_is_not_called_transient_nor_sent_to_another() -> None:
    verdict, decision = said_after("n1", "n3")
    assert verdict.summary == "the job never got as far as its program, on n1, n3, n2 alike"
    assert "another node" not in verdict.advice
    assert verdict.advice.startswith("It did not start on n1, n3, n2: look at what the job needs")
    assert decision.headline(verdict) != Label.TRANSIENT
    assert decision.kind is DecisionKind.RETRY


def test_a_launch_that_failed_twice_on_one_node_may_be_that_node_s() -> None:
    assert said_after("n2")[0] == judge(b"", NOT_LAUNCHED)


def test_only_launches_are_spoken_of_so() -> None:
    failed = replace(TRANSIENT, bound=Bound.NODE)
    assert of_launches(failed, TRIED, earlier(2)) == failed


@pytest.mark.parametrize(
    ("times", "headline"),
    [(0, "transient"), (1, "transient"), (2, "unsure"), (3, "deterministic"), (4, "deterministic")],
)
def test_the_label_follows_the_chance_that_returns_leave(times: int, headline: str) -> None:
    decision = decided(past=earlier(times))  # 0.9, 0.69, 0.36, 0.12, 0.03
    assert decision.headline(TRANSIENT) == headline


def test_a_label_that_no_return_has_moved_is_the_verdict_s() -> None:
    unsure = replace(TRANSIENT, label=Label.UNSURE, p_transient=0.1)
    assert decided(unsure).headline(unsure) == Label.UNSURE


def test_a_card_calls_a_failure_that_came_back_unsure() -> None:
    verdict, decision = said_after("n1")
    first, *rest = card(Diagnosis("job 7", verdict, decision))
    assert first.startswith("job 7  UNSURE: nobody can tell yet (p = 0.")
    assert not any("usually starts" in line for line in rest)


def test_a_launch_that_failed_for_another_reason_elsewhere_says_nothing_of_this_one() -> None:
    other = [replace(before, fingerprint="another") for before in failed_before("n1", "n3")]
    verdict = judge(b"", NOT_LAUNCHED)
    assert of_launches(verdict, NOT_LAUNCHED, other) == verdict


def test_a_failure_of_a_node_that_a_person_set_down_says_so() -> None:
    told = of_set_down(TRANSIENT, LOST, SET_DOWN)
    assert told == replace(TRANSIENT, summary="a person set n2 down under the job: replacing a DIMM")


def test_a_reason_that_fills_pages_is_cut() -> None:
    long = {"n2": replace(SET_DOWN["n2"], reason="x" * 5000)}
    assert of_set_down(TRANSIENT, LOST, long).summary.endswith(f": {'x' * MAX_REASON}")


@pytest.mark.parametrize(
    ("verdict", "attempt", "node"),
    [
        (replace(TRANSIENT, hardware="GPU has fallen off the bus"), LOST, SET_DOWN["n2"]),  # the log shows what broke
        (TRANSIENT, TRIED, SET_DOWN["n2"]),
        (TRANSIENT, LOST, replace(SET_DOWN["n2"], is_set_down=False)),
    ],
    ids=["broken", "failed", "down by itself"],
)
def test_otherwise_a_failure_of_a_node_stays_one(verdict: Verdict, attempt: Attempt, node: Node) -> None:
    assert of_set_down(verdict, attempt, {"n2": node}) == verdict
