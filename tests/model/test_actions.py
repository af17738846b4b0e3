"""A new action is a class and a word in its union: what every class says of itself, and a toy that says little."""

from typing import Any

import pytest

from perdure.backends.local.core import Core, fresh_nodes
from perdure.backends.local.records import Timing
from perdure.backends.local.requests import perform
from perdure.backends.local.spec import JobSpec
from perdure.model.actions import KINDS, ActionKey, Drain, OnJob, OutcomeStatus, first_key, planned_again
from perdure.model.identity import AttemptId
from perdure.service.store.journal import ActionRow, ActionState
from perdure.service.web.pages import labels
from perdure.service.workers.executor import is_charged, lets_go
from tests.service.web_world import CLUSTER

ATTEMPT = AttemptId(CLUSTER, "7", 1)
FIELDS = {"attempt": ATTEMPT, "exclude": (), "walltime_s": 60.0, "comment": "c", "node": "n1", "reason": "r"}


class Nudge(OnJob, frozen=True):
    """A toy: it says its name and what it is about."""

    label = "Nudge"
    attempt: AttemptId

    @property
    def key(self) -> str:
        return f"nudge:{self.attempt}"


def made(kind: Any) -> Any:
    """An action of this kind; one that has an episode has "e"."""
    fields = {name: value for name, value in FIELDS.items() if name in kind.__struct_fields__}
    return kind(**fields, **({"episode": "e"} if "episode" in kind.__struct_fields__ else {}))


@pytest.mark.parametrize("name", KINDS)
def test_each_action_is_known_by_its_kind_and_has_words(name: str) -> None:
    action = made(KINDS[name])
    assert action.kind == name
    assert action.key.partition(":")[0] == name
    assert labels.kind(name) == action.label != ""


SAYS = {  # whether it keeps, moves, recovers and takes a node out; and the key of what takes it back
    "requeue": (True, True, True, False, "cancel:aurora/7#1"),
    "preempt": (False, True, False, False, None),
    "exclude": (True, True, True, False, None),
    "hold": (False, True, False, False, "release:aurora/7#1@e"),
    "release": (True, True, True, False, "hold:aurora/7#1@e"),
    "cancel": (False, True, False, False, None),
    "extend": (False, True, False, False, None),
    "comment": (True, False, False, False, None),
    "drain": (True, True, False, True, "undrain:n1:undo of e"),
    "down": (True, True, False, True, "undrain:n1:undo of e"),
    "undrain": (True, True, False, False, None),
}


@pytest.mark.parametrize("name", SAYS)
def test_what_an_action_says_of_itself(name: str) -> None:
    action = made(KINDS[name])
    undo = action.undo()
    says = action.keeps, action.moves, action.recovers, action.takes_node_out, undo.key if undo else None
    assert says == SAYS[name]


@pytest.mark.parametrize("name", KINDS)
def test_what_takes_an_action_back_is_about_the_same_and_another_kind(name: str) -> None:
    action = made(KINDS[name])
    undo = action.undo()
    if undo is not None:
        assert undo.kind != action.kind
        assert {getattr(undo, about, None) for about in ("attempt", "node")} == {
            getattr(action, about, None) for about in ("attempt", "node")
        }


def test_an_action_that_says_nothing_of_itself_counts_expires_late_and_cannot_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "nudge", Nudge)
    toy = Nudge(ATTEMPT)
    row = ActionRow(
        toy.key,
        toy,  # type: ignore[arg-type]  # it is in no union
        by="perdure",
        reason="",
        state=ActionState.PLANNED,
        detail="",
        created_s=0.0,
        expires_s=1.0,
    )
    assert labels.kind("nudge") == "Nudge"
    assert is_charged(row)
    assert not lets_go(row)
    assert toy.keeps
    assert toy.counts_at(5.0) == 5.0
    assert toy.undo() is None
    assert not toy.takes_node_out


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("times", [1, 2, 11])
def test_a_key_says_what_the_action_is_and_is_about(name: str, times: int) -> None:
    action = made(KINDS[name])
    key = planned_again(action.key, times)
    assert first_key(key) == action.key
    assert (key == action.key) is (times == 1)
    said = ActionKey.of(key)
    assert said.is_a(type(action))
    assert said.episode == (getattr(action, "episode", "") if name in ("hold", "release", "preempt") else "")
    if name in ("hold", "release", "requeue", "cancel", "comment", "exclude"):
        assert said.attempt == action.attempt


def test_a_cluster_refuses_what_it_does_not_know() -> None:
    core = Core(fresh_nodes(1, 1, 1, {}, 0.0), [], [], 7, Timing(), "{job}-{incarnation}")
    assert core.submit(JobSpec(("true",)), 0.0) == "7"
    toy = Nudge(AttemptId(CLUSTER, "7", core.jobs["7"].incarnation))
    outcome = perform(core, CLUSTER, toy, 0.0)  # type: ignore[arg-type]  # it is in no union
    assert outcome.status is OutcomeStatus.REFUSED
    assert "cannot nudge" in outcome.detail


def test_a_tilde_of_somebody_else_is_no_number_of_an_action_planned_again() -> None:
    """A node's name and a reason may hold one."""
    key = Drain("n~a", "r", "e~b").key
    assert first_key(key) == key
    assert first_key(planned_again(key, 12)) == key
