"""Whether Perdure holds a job: by the last of its holds and releases that was begun, whatever came of it."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from perdure.model.actions import Hold, Release
from perdure.model.identity import AttemptId
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import PERDURE, Act
from perdure.service.store.journal import ActionState, Journal

ONE = AttemptId("c", "1", 1)
BEGUN = (ActionState.STARTED, ActionState.DONE)
STATES = (*BEGUN, ActionState.PLANNED, ActionState.REFUSED, ActionState.SUPERSEDED, ActionState.EXPIRED)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db", "c")
    yield opened
    opened.close()


def put(journal: Journal, action: Hold | Release, state: ActionState, by: str = PERDURE) -> None:
    """Plan an action, and let it come so far."""
    nothing = ControllerState("c")
    journal.record([Act(action, by, "", 900.0)], nothing, nothing)
    if state is ActionState.PLANNED:
        return
    if state in BEGUN:
        assert journal.begin(action.key, 1.0)
    if state is not ActionState.STARTED:
        row = journal.action(action.key)
        assert row is not None
        assert journal.finish(row, state, "", 2.0)


def test_a_hold_that_was_begun_holds_until_a_release_is_begun(journal: Journal) -> None:
    for number, (first, second) in enumerate(product(STATES, STATES)):
        about = AttemptId("c", str(number), 1)
        put(journal, Hold(about, "down"), first)
        put(journal, Release(about, "up"), second)
        assert journal.holds(about) == (first in BEGUN and second not in BEGUN), (first, second)


def test_what_is_held_again_after_a_release_is_held(journal: Journal) -> None:
    put(journal, Hold(ONE, "down"), ActionState.DONE)
    put(journal, Release(ONE, "up"), ActionState.DONE)
    put(journal, Hold(ONE, "down-again"), ActionState.STARTED)
    assert journal.holds(ONE)


def test_what_a_person_holds_and_what_another_start_of_it_was_do_not_count(journal: Journal) -> None:
    put(journal, Hold(ONE, "down"), ActionState.DONE, by="ada")
    assert not journal.holds(ONE)
    put(journal, Hold(AttemptId("c", "1", 2), "down"), ActionState.DONE)
    assert not journal.holds(ONE)
