"""Laws of the controller's step, tried on all that it is asked in seeds of the deterministic simulation."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pytest

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import Ticked
from perdure.coordination.record import ExceptionOutcome
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import (
    Act,
    ChainInput,
    Effect,
    Ended,
    ExceptionChanged,
    Journalled,
    Judged,
    Looked,
    Ordered,
)
from perdure.service.core.settings import ControllerSettings
from tests.copying import replace
from tests.laws.beside import Mine, as_other, is_mixed, is_of_both, seen_together, together
from tests.laws.difference import must_equal
from tests.laws.moved import Moved
from tests.laws.recorded import FIRST_JOB, Asked, recorded
from tests.laws.seeds import SEEDS

WEEK_S = 7 * 24 * 3600.0  # the hour, as sentences tell it, stays

seen = cache(recorded)
apart = cache(partial(recorded, is_apart=True))


def alike(word: str) -> str:
    """Names that begin with one another, and that users have from nodes; in the same order as before."""
    if word in ("ada", "bob"):
        return {"ada": "n", "bob": "n1"}[word]
    if word[:1] == "n" and word[1:].isdecimal():
        return "n" + "1" * int(word[1:])
    if word.isdecimal() and FIRST_JOB <= int(word) < FIRST_JOB + 100:
        return "1" * (int(word) - FIRST_JOB + 1)
    return word


@pytest.mark.parametrize("seed", SEEDS)
def test_other_names_of_users_nodes_and_jobs_change_the_names_and_nothing_else(seed: int) -> None:
    moved = Moved(alike)
    for asked in seen(seed):
        after, effects = step(moved(asked.state), moved(asked.event), asked.settings)
        must_equal(effects, moved(asked.effects))
        must_equal(after, moved(asked.after))


@pytest.mark.parametrize("shift_s", [-WEEK_S, WEEK_S])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_a_week_later_is_decided_the_same(seed: int, shift_s: float) -> None:
    moved = Moved(shift_s=shift_s)
    for asked in seen(seed):
        settings = replace(asked.settings, ignore_before_s=asked.settings.ignore_before_s + shift_s)
        after, effects = step(moved(asked.state), moved(asked.event), settings)
        must_equal(effects, moved(asked.effects))
        must_equal(after, moved(asked.after))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_told_again_is_nothing_new(seed: int) -> None:
    """But that what was moved now is found to be over, or a node to be back at two looks; the third time nothing is."""
    for asked in seen(seed):
        after, effects = step(asked.after, asked.event, asked.settings)
        match asked.event:
            case Looked() | ChainInput(inputs=(Ticked(),)):
                assert all(is_settled(effect) for effect in effects)
                must_equal(step(after, asked.event, asked.settings), (after, []))
            case Judged():
                assert effects == [Journalled(asked.event)]
                must_equal(after, asked.after)
            case Ended():
                assert acts(effects) == set()
            case ChainInput():
                assert acts(effects).isdisjoint(acts(asked.effects))
            case Ordered():
                assert effects == asked.effects  # one key, which the journal takes once


def is_settled(effect: object) -> bool:
    match effect:
        case Journalled(event=ExceptionChanged(record=record)):
            return record.outcome in (ExceptionOutcome.RECOVERED, ExceptionOutcome.WITHDRAWN)
    return False


def acts(effects: list[Effect]) -> set[Any]:
    return {effect.action.key for effect in effects if isinstance(effect, Act)}


def time_of(asked: Asked) -> float:
    match asked.event:
        case Looked(observation=seen):
            return seen.time_s
        case Ended(ends=ends):
            return max(end.time_s for end in ends)
    return asked.event.time_s


def beside(seed: int) -> Iterator[tuple[Asked, Any]]:
    """What is asked of one seed, each with the state of another at that time."""
    moved, others = Moved(as_other), list(apart(seed + 1000))
    for asked in apart(seed):
        while len(others) > 1 and time_of(others[1]) <= time_of(asked):
            others.pop(0)
        other = others[0]
        if not is_mixed(asked.state, other.after):
            yield asked, moved(other.after)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happens_to_some_is_the_same_whether_others_are_there_or_not(seed: int) -> None:
    mine = Mine()
    for asked, others in beside(seed):
        event = seen_together(asked.event, others)
        after, effects = step(together(asked.state, others), event, asked.settings)
        must_equal(mine(effects), asked.effects)
        assert not [effect for effect in effects if is_of_both(effect)]
        must_equal(mine(after), mine(asked.after))


@pytest.mark.parametrize("seed", SEEDS)
def test_turns_leases_and_deadlines_end_at_their_instant_and_not_before(seed: int) -> None:
    for asked in seen(seed):
        rested, _ = step(*rest_of(asked))
        instants = due(rested.chain)
        if not instants or min(instants) <= time_of(asked) + 1.0 or isinstance(asked.event, Ordered):
            continue
        first = min(instants)
        must_equal(step(rested, ChainInput(first - 0.25), asked.settings), (rested, []))
        at_once, effects = step(rested, ChainInput(first), asked.settings)
        assert effects or at_once.chain.handlers != rested.chain.handlers
        assert first not in due(at_once.chain)


def rest_of(asked: Asked) -> tuple[ControllerState, ChainInput, ControllerSettings]:
    """A state in which nothing is left to be done at its instant."""
    now = time_of(asked)
    state, _ = step(asked.after, ChainInput(now), asked.settings)
    return state, ChainInput(now), asked.settings


def due(chain: Chain) -> set[Any]:
    """When the chain has something to do next, as its state says."""
    turns = [turn.until_s for turn in chain.turns.values()]
    deadlines = [record.deadline_s for record in chain.open.values() if record.deadline_s is not None]
    return {*turns, *deadlines, *(handler.until_s for handler in chain.handlers.values())}
