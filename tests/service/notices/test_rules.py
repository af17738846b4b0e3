"""Which notices follow from what happened, who is told, and when: laws of the pure part."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from perdure.model.events import NodeChanged, SightChanged
from perdure.model.nodes import Node, NodeState
from perdure.service.notices.derive import STALE_S, DiskSeen, NoticeFact, notices_of
from perdure.service.notices.notice import NAMED, Kind, Message, Notice, Severity, first_message, of_text
from perdure.service.notices.rules import (
    HOUR_S,
    LONGEST_WAIT_S,
    Begun,
    NoticeLimits,
    PendingMessage,
    Rule,
    addresses_of,
    gathered,
    next_to_send,
    retry_at,
    wait_reason,
)
from tests.copying import replace

NOW = 1_700_000_000.0


def node(state: NodeState, name: str = "n1", reason: str = "", at_s: float = NOW) -> NoticeFact:
    return NoticeFact(NodeChanged(at_s, "c", Node(name, state, reason)))


def kinds(
    facts: Sequence[NoticeFact], told: dict[str, Kind] | None = None, now: float = NOW, disk_low_mib: int = 0
) -> list[Any]:
    return [notice.kind for notice in notices_of(facts, told or {}, now, disk_low_mib)]


# -- what is told


def test_a_node_that_is_seen_up_first_is_no_news() -> None:
    assert kinds([node(NodeState.UP)]) == []


def test_a_drained_node_is_told_of_once_whatever_its_reason() -> None:
    facts = [node(NodeState.DRAINING), node(NodeState.DRAINED, reason="a"), node(NodeState.DRAINED, reason="b")]
    assert kinds(facts) == [Kind.NODE_DRAINED]
    assert kinds(facts, {"node:n1": Kind.NODE_DRAINED}) == []


def test_a_node_that_comes_back_and_goes_is_told_of_each_time() -> None:
    facts = [node(state) for state in (NodeState.DOWN, NodeState.UP, NodeState.UP, NodeState.DRAINED)]
    assert kinds(facts) == [Kind.NODE_DOWN, Kind.NODE_BACK, Kind.NODE_DRAINED]


def test_a_state_that_is_not_known_is_no_news() -> None:
    assert kinds([node(NodeState.DOWN), node(NodeState.UNKNOWN), node(NodeState.DOWN)]) == [Kind.NODE_DOWN]


def test_what_happened_long_ago_is_told_to_nobody() -> None:
    assert kinds([node(NodeState.DOWN, at_s=NOW - STALE_S - 1)]) == []


def test_a_disk_is_told_of_when_it_is_low_and_when_it_has_clearly_more_room() -> None:
    def disk(*free_mib: int) -> list[Any]:
        return [NoticeFact(DiskSeen(NOW, each)) for each in free_mib]

    assert kinds(disk(1000, 999, 998, 1001, 999, 1250, 2000), disk_low_mib=1000) == [Kind.DISK_LOW, Kind.DISK_BACK]
    assert kinds(disk(0), disk_low_mib=0) == []


def test_what_a_manager_says_is_one_line() -> None:
    (notice,) = notices_of([NoticeFact(SightChanged(NOW, "c", "controller", "a\r\nb\x1b[2J\u202e"))], {}, NOW)
    assert notice.detail == "a  b[2J"


states = st.sampled_from([NodeState.UP, NodeState.DRAINED, NodeState.DRAINING, NodeState.DOWN, NodeState.UNKNOWN])
histories = st.lists(st.builds(node, states, st.sampled_from(["n1", "n2"])), max_size=30)


@given(histories, st.data())
def test_what_is_read_in_parts_tells_the_same(facts: list[NoticeFact], data: DataObject) -> None:
    whole = notices_of(facts, {}, NOW)
    cut = data.draw(st.integers(0, len(facts)))
    first = notices_of(facts[:cut], {}, NOW)
    told = {notice.subject: notice.kind for notice in first}
    assert (*first, *notices_of(facts[cut:], told, NOW)) == whole


@given(histories)
def test_of_a_subject_no_kind_is_told_twice_in_a_row(facts: list[NoticeFact]) -> None:
    last = {}
    for notice in notices_of(facts, {}, NOW):
        assert last.get(notice.subject) is not notice.kind
        last[notice.subject] = notice.kind


@given(st.text(max_size=300))
def test_text_of_a_job_becomes_one_bounded_printable_line(text: str) -> None:
    line = of_text(text, 50)
    assert len(line) <= 50
    assert line.isprintable()


# -- who is told


def notice(
    kind: Kind = Kind.NODE_DRAINED, user: str = "", partition: str = "", subject: str = "x", at_s: float = NOW
) -> Notice:
    return Notice(kind, subject, at_s, subject, user, partition)


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(("a",)), True),
        (Rule(("a",), severity=Severity.CRITICAL), False),
        (Rule(("a",), kinds=("node_down",)), False),
        (Rule(("a",), kinds=("node_down", "node_drained")), True),
        (Rule(("a",), users=("mira",)), True),
        (Rule(("a",), users=("jonas",)), False),
        (Rule(("a",), partitions=("gpu", "x")), True),
        (Rule(("a",), partitions=("x",)), False),
        (Rule(("a",), kinds=("node_drained",), users=("mira",), partitions=("cpu",), severity=Severity.INFO), True),
    ],
)
def test_a_rule_matches_by_kind_user_partition_and_severity(rule: Rule, matches: bool) -> None:
    assert rule.matches(notice(user="mira", partition="cpu,gpu")) is matches


def test_a_target_is_told_once_however_many_rules_name_it() -> None:
    rules = [Rule(("a", "b")), Rule(("b", "a"))]
    assert list(addresses_of(notice(), rules, ())) == [("a", ""), ("b", "")]


def test_a_personal_target_is_told_of_a_users_own_alone() -> None:
    rules = [Rule(("mail", "ops"))]
    assert list(addresses_of(notice(user="mira"), rules, {"mail"})) == [("mail", "mira"), ("ops", "")]
    assert list(addresses_of(notice(), rules, {"mail"})) == [("ops", "")]


# -- what is told together, and when

users = st.sampled_from(["", "mira", "jonas"])
some = st.lists(
    st.builds(notice, st.sampled_from([Kind.NODE_DOWN, Kind.PERSON_NEEDED]), users, subject=st.text(max_size=3)),
    max_size=40,
)


@given(some, st.integers(0, 40))
def test_no_notice_is_lost_or_doubled_by_gathering(notices: list[Notice], cut: int) -> None:
    rules, personal = [Rule(("ops", "mail"))], {"mail"}
    open_ = gathered({}, notices[:cut], rules, personal, "c")
    both = {**open_, **gathered(open_, notices[cut:], rules, personal, "c")}
    wanted = Counter((*address, each.kind) for each in notices for address in addresses_of(each, rules, personal))
    assert {group: message.count for group, message in both.items()} == wanted
    for group, message in both.items():
        assert (message.target, message.whose, message.kind) == group
        assert len(message.notices) == min(NAMED, message.count)
        assert message.count == len(message.notices) + message.unnamed


def simulate(
    arrivals: list[float], limits: NoticeLimits, works: Callable[[Any], Any], hours: float = 6.0
) -> tuple[list[tuple[float, Message]], list[float], dict[str, PendingMessage]]:
    """Send to one target for some hours: what arrived and when, and what was begun, by the pure rules alone."""
    rules, waiting, begun, sent = [Rule(("ops",))], {}, [], []
    now, arrivals = NOW, sorted(arrivals)
    while now <= NOW + hours * HOUR_S:
        while arrivals and NOW + arrivals[0] <= now:
            at_s = NOW + arrivals.pop(0)
            open_ = {("ops", "", each.message.kind): each.message for each in waiting.values() if each.begun_s is None}
            new = notice(Kind.NODE_DOWN, subject=f"{at_s}/{len(arrivals)}", at_s=at_s)
            for message in gathered(open_, [new], rules, (), "c").values():
                known = waiting.get(message.key)
                due_s = known.due_s if known else now + limits.group_s
                waiting[message.key] = PendingMessage(message, due_s)
        recent = {("", Severity.WARNING): [at_s for at_s in begun if at_s > now - HOUR_S]}
        while (chosen := next_to_send(waiting.values(), recent, limits, now)) is not None:
            if chosen.begun_s is None:
                begun.append(now)
                recent["", Severity.WARNING].append(now)
            begun_s = now if chosen.begun_s is None else chosen.begun_s
            if works(now):
                sent.append((now, chosen.message))
                del waiting[chosen.message.key]
            elif (again_s := retry_at(chosen.tries + 1, begun_s, limits, now)) is None:
                del waiting[chosen.message.key]
            else:
                waiting[chosen.message.key] = replace(chosen, begun_s=begun_s, due_s=again_s, tries=chosen.tries + 1)
        now += 5.0
    return sent, begun, waiting


arrivals = st.lists(st.floats(0, 3 * HOUR_S), max_size=60)


@given(arrivals, st.integers(1, 5), st.floats(0, 120))
def test_no_hour_has_more_messages_than_the_limit_and_all_arrive(
    at: list[float], per_hour: int, group_s: float
) -> None:
    limits = NoticeLimits(group_s, per_hour)
    sent, begun, waiting = simulate(at, limits, lambda now: True)
    for start_s in begun:
        assert sum(start_s <= each < start_s + HOUR_S for each in begun) <= per_hour
    assert sum(message.count for _, message in sent) == len(at)
    assert not waiting


@given(arrivals, st.floats(0, 2 * HOUR_S))
def test_a_target_that_is_down_for_a_while_is_told_of_all_afterwards(at: list[float], down_s: float) -> None:
    sent, _, waiting = simulate(at, NoticeLimits(), lambda now: now >= NOW + down_s)
    assert sum(message.count for _, message in sent) == len(at)
    assert not waiting


@given(arrivals)
def test_a_target_that_never_answers_keeps_two_messages_of_a_kind(at: list[float]) -> None:
    sent, _, waiting = simulate(at, NoticeLimits(), lambda now: False)
    assert not sent
    assert len(waiting) <= 2


def test_tries_are_spaced_out_up_to_a_bound_and_end() -> None:
    limits = NoticeLimits(retry_for_s=3600.0)
    instants = [retry_at(tries, NOW, limits, NOW) for tries in range(1, 40)]
    waits = [at_s - NOW for at_s in instants if at_s is not None]
    assert len(waits) == len(instants)
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert waits == sorted(waits)
    assert max(waits) == LONGEST_WAIT_S
    assert retry_at(3, NOW - 3600.0, limits, NOW) is None


def test_an_instant_from_a_clock_that_was_wrong_is_not_waited_for() -> None:
    (message,) = gathered({}, [notice()], [Rule(("ops",))], (), "c").values()
    assert next_to_send([PendingMessage(message, NOW + 365 * 86_400.0)], {}, NoticeLimits(), NOW) is not None
    assert next_to_send([PendingMessage(message, NOW + 10.0)], {}, NoticeLimits(), NOW) is None


def test_the_most_severe_message_is_sent_first_however_long_others_wait() -> None:
    kinds_by_rank = sorted({kind.severity: kind for kind in Kind}.values(), key=lambda kind: kind.severity.rank)
    waiting = [
        PendingMessage(first_message("c", "ops", "", Notice(kind, "n1", NOW, "n1")), NOW - 100.0 / (number + 1))
        for number, kind in enumerate(kinds_by_rank)
    ]
    order = []
    while (chosen := next_to_send(waiting, {}, NoticeLimits(), NOW)) is not None:
        waiting.remove(chosen)
        order.append(chosen.message.kind)
    assert order == kinds_by_rank[::-1]


def test_of_one_severity_what_was_begun_is_sent_before_what_waits_longer() -> None:
    begun, new = (
        PendingMessage(first_message("c", whose, whose, notice()), NOW - ago_s, begun_s)
        for whose, ago_s, begun_s in (("ada", 1.0, NOW - 50.0), ("bob", 100.0, None))
    )
    assert next_to_send([new, begun], {}, NoticeLimits(), NOW) == begun


def test_a_message_is_held_until_the_last_that_fills_the_hour_is_an_hour_old() -> None:
    recent = [NOW - 50.0, NOW - 40.0, NOW - 30.0]  # the limit was higher then
    waiting = PendingMessage(first_message("c", "ops", "ada", notice()), NOW - 1.0)
    begun: Begun = {("ada", waiting.message.kind.severity): recent}
    reason = wait_reason(waiting, (), begun, NoticeLimits(per_hour=2), NOW)
    assert reason.until_s == NOW - 40.0 + HOUR_S
    assert wait_reason(
        waiting, (), {("", waiting.message.kind.severity): recent}, NoticeLimits(per_hour=2), NOW
    ).why == ("is next")


@pytest.mark.parametrize(
    ("begun", "is_held"),
    [
        ({("", Severity.WARNING): [NOW - 10.0, NOW - 20.0]}, True),
        ({("", Severity.WARNING): [NOW - 10.0, NOW - HOUR_S]}, False),  # more than an hour ago
        ({("", Severity.WARNING): [NOW - 10.0, NOW + 10.0]}, False),  # of a clock that was ahead
        ({("ada", Severity.WARNING): [NOW - 10.0, NOW - 20.0]}, False),  # another's
        ({("", Severity.INFO): [NOW - 10.0, NOW - 20.0]}, False),  # of another severity
    ],
)
def test_an_hours_messages_hold_back_those_alone_that_count_with_them(begun: Begun, is_held: bool) -> None:
    (notice,) = notices_of([node(NodeState.DRAINED)], {}, NOW, 0)
    assert notice.severity is Severity.WARNING
    waiting = PendingMessage(first_message("c", "ops", "", notice), NOW)
    limits = NoticeLimits(per_hour=2)
    assert (next_to_send([waiting], begun, limits, NOW) is None) is is_held
    assert wait_reason(waiting, (), begun, limits, NOW).why.startswith("held" if is_held else "is next")
