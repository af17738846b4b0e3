"""Laws of notices, tried on what seeds of the deterministic simulation write down."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

import pytest

from perdure.model.events import NodeChanged, SightChanged
from perdure.service.core.messages import ExceptionChanged, Journalled
from perdure.service.notices.derive import DiskSeen, NoticeFact, notices_of, subjects_of
from perdure.service.notices.notice import Kind, Message, Notice, Severity
from perdure.service.notices.rules import NoticeLimits, PendingMessage, Rule, gathered, next_to_send, wait_reason
from tests.laws.beside import MARK, as_other
from tests.laws.difference import must_equal
from tests.laws.moved import Moved
from tests.laws.recorded import START_S, recorded
from tests.laws.seeds import SEEDS
from tests.laws.test_controller import WEEK_S, alike

apart = cache(partial(recorded, is_apart=True))
RULES = (
    Rule(to=("all",), severity=Severity.INFO),
    Rule(to=("owners", "ops"), severity=Severity.WARNING),
    Rule(to=("ops",), kinds=("node_down", "node_back", "job_stopped"), severity=Severity.INFO),
    Rule(to=("adas",), users=("ada",), severity=Severity.INFO),
)
PERSONAL = ("owners",)
LIMITS = NoticeLimits(per_hour=3)


@cache
def facts_of(seed: int) -> list[NoticeFact]:
    """What a feed reads, with jobs and decisions as they were; and what is seen of a disk."""
    found = []
    for asked in apart(seed):
        for event in (each.event for each in asked.effects if isinstance(each, Journalled)):
            if isinstance(event, NodeChanged | SightChanged):
                found.append(NoticeFact(event))
            elif isinstance(event, ExceptionChanged):
                failure = asked.after.failure_of(event.record)
                job = asked.after.known.jobs.get(event.record.subject.job_id)
                found.append(NoticeFact(event, job, failure.decision if failure else None))
                found.append(NoticeFact(DiskSeen(event.time_s, len(found) % 3 * 100)))
    return found


def now_of(facts: Sequence[NoticeFact]) -> float:
    return max(fact.event.time_s for fact in facts)


def told_of(facts: Sequence[NoticeFact], *, portion: int = 10**6, now: float | None = None) -> list[Any]:
    """The notices of facts that are read in portions."""
    told, found = {}, []
    for first in range(0, len(facts), portion):
        part = facts[first : first + portion]
        known = {subject: told[subject] for subject in subjects_of(part, 100) if subject in told}
        new = notices_of(part, known, now or now_of(facts), 100)
        told.update({notice.subject: notice.kind for notice in new})
        found += new
    return found


def messages_of(
    notices: list[Any], *, portion: int = 10**6, rules: tuple[Rule, ...] = RULES, cluster: str = "sim"
) -> dict[tuple[str, str, Kind], Message]:
    messages = {}
    for first in range(0, len(notices), portion):
        messages.update(gathered(messages, notices[first : first + portion], rules, PERSONAL, cluster))
    return messages


@pytest.mark.parametrize("seed", SEEDS)
def test_in_whatever_portions_the_journal_is_read_the_same_is_told(seed: int) -> None:
    facts = facts_of(seed)
    whole = told_of(facts)
    assert len({notice.kind for notice in whole}) > 4
    for portion in (1, 2, 7):
        must_equal(told_of(facts, portion=portion), whole)
        must_equal(messages_of(whole, portion=portion), messages_of(whole))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_journal_says_twice_is_told_once(seed: int) -> None:
    facts = facts_of(seed)
    twice = [fact for each in facts for fact in (each, each)]
    must_equal(told_of(twice), told_of(facts))
    must_equal(told_of(twice, portion=1), told_of(facts))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_told_what_of_some_is_the_same_whatever_is_told_of_others(seed: int) -> None:
    facts = of_things(facts_of(seed))
    others = [Moved(as_other)(fact) for fact in of_things(facts_of(seed + 1000))]
    told = told_of(in_order((*others, *facts)), now=now_of(facts))
    mine = [notice for notice in told if MARK not in notice.subject]
    assert len(told) > len(mine) > 3
    must_equal(mine, told_of(in_order(facts), now=now_of(facts)))
    must_equal(of_ada(messages_of(told)), of_ada(messages_of(mine)))


def of_things(facts: list[NoticeFact]) -> list[Any]:
    """Of those of which each cluster has its own."""
    return [fact for fact in facts if not isinstance(fact.event, SightChanged | DiskSeen)]


def in_order(facts: tuple[Any, ...] | list[Any]) -> list[Any]:
    return sorted(facts, key=lambda fact: fact.event.time_s)


def of_ada(messages: dict[tuple[str, str, Kind], Message]) -> dict[Any, Any]:
    """What she is sent, and what is sent where her jobs alone are told of."""
    return {group: message for group, message in messages.items() if group[1] == "ada" or group[0] == "adas"}


@pytest.mark.parametrize("moved", [Moved(alike), Moved(shift_s=WEEK_S), Moved(shift_s=-WEEK_S)])
@pytest.mark.parametrize("seed", SEEDS)
def test_other_names_and_another_week_change_these_and_nothing_else(seed: int, moved: Moved) -> None:
    facts = facts_of(seed)
    must_equal(readable(told_of([moved(fact) for fact in facts])), moved(readable(told_of(facts))))


def readable(notices: list[Any]) -> list[Any]:
    return [replace(notice, path=unquote(notice.path)) for notice in notices]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_sent_to_one_does_not_wait_for_what_others_are_sent(seed: int) -> None:
    messages = messages_of(told_of(facts_of(seed))).values()
    now = max(message.last_s for message in messages) + LIMITS.group_s
    waiting = [PendingMessage(message, message.last_s + LIMITS.group_s) for message in messages]
    for target in {message.target for message in messages}:
        mine = [each for each in waiting if each.message.target == target]
        begun = {of_limit(each): (now - 1.0,) * 2 for each in mine}
        first = next_to_send(mine, begun, LIMITS, now)
        assert first is not None
        assert next_to_send(mine[::-1], begun, LIMITS, now) == first
        others_full = {**begun, ("somebody else", first.message.kind.severity): (now - 1.0,) * 50}
        assert next_to_send(mine, others_full, LIMITS, now) == first


@pytest.mark.parametrize(
    ("begun_s", "is_next"),
    [((-1.0, -1.0, -1.0), False), ((-1.0, -1.0), True), ((-1.0, 0.0, -3600.0), True), ((0.0, 0.0, -3599.0), False),
     ((1.0, 1.0, 1.0), True)],
)  # fmt: skip
def test_an_hour_has_its_messages_to_the_second_and_what_a_wrong_clock_wrote_is_none_of_them(
    begun_s: tuple[float, ...], is_next: bool
) -> None:
    (message,) = messages_of([Notice(Kind.NODE_DOWN, "node:n1", START_S, "node n1")], rules=RULES[:1]).values()
    waits = PendingMessage(message, START_S)
    begun = {of_limit(waits): tuple(START_S + each for each in begun_s)}
    assert next_to_send([waits], begun, LIMITS, START_S) == (waits if is_next else None)
    reason = wait_reason(waits, (), begun, LIMITS, START_S)
    assert reason.why.startswith("is next") is is_next
    if not is_next:
        later = reason.until_s or 0.0
        assert next_to_send([waits], begun, LIMITS, later - 0.5) is None
        assert next_to_send([waits], begun, LIMITS, later) == waits


def of_limit(each: PendingMessage) -> tuple[str, Severity]:
    return each.message.whose, each.message.kind.severity
