"""Which notices follow, who is told and when, each at its limit and one step beside it."""

from collections.abc import ItemsView, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.record import (
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
)
from perdure.model.events import NodeChanged, SightChanged
from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.core.messages import ExceptionChanged
from perdure.service.notices import outbox
from perdure.service.notices.derive import ROOM_AGAIN, STALE_S, DiskSeen, NoticeFact, notices_of, subjects_of
from perdure.service.notices.notice import MAX_DETAIL, MAX_NAME, NAMED, Kind, Message, Notice, Severity, first_message
from perdure.service.notices.outbox import Outbox, Routing
from perdure.service.notices.rules import (
    FIRST_RETRY_S,
    HOUR_S,
    LONGEST_WAIT_S,
    NoticeLimits,
    PendingMessage,
    Rule,
    WaitReason,
    joined,
    next_to_send,
    retry_at,
    wait_reason,
)
from perdure.service.store.database import Store
from tests.copying import replace

NOW = 1_700_000_000.0
JOB = Job("c", "7", "train", "ada", JobState.FAILED, 0.0, partition="gpu,fat")
RETRY = Decision(DecisionKind.RETRY, "away from n2; expected cost 1 GPU-h")
BY_PERDURE = Answer(Component.SCHEDULER, AnswerKind.HANDLED, NOW, "away from n2")
FAILURE = ExceptionRecord("c/7#1:job.failed", "job.shape", 0, Scope.LOCAL, Subject("c", "7"), NOW, "the note")
HANDLED = replace(FAILURE, verdicts=(BY_PERDURE,), state=ExceptionState.HANDLED)
ESCALATED = replace(FAILURE, state=ExceptionState.ESCALATED)


def told(
    record: ExceptionRecord,
    job: Job | None = JOB,
    decision: Decision | None = None,
    armed: bool = True,
    at_s: float = NOW,
) -> tuple[Notice, ...]:
    fact = NoticeFact(ExceptionChanged(at_s, record), job, decision)
    return notices_of([fact], {}, NOW, armed=armed)


# -- what follows from an exception


def test_a_decision_is_told_with_its_reason_and_leads_to_the_job() -> None:
    (notice,) = told(HANDLED, decision=RETRY)
    assert notice == Notice(
        Kind.JOB_RETRIED, FAILURE.id, NOW, "job 7 (train)", "ada", "gpu,fat", "away from n2", "/jobs/7"
    )
    stop = replace(RETRY, kind=DecisionKind.STOP)
    assert [each.kind for each in told(HANDLED, decision=stop)] == [Kind.JOB_STOPPED]
    probe = replace(RETRY, kind=DecisionKind.PROBE)
    assert [each.kind for each in told(HANDLED, decision=probe)] == [Kind.JOB_RETRIED]


def test_in_shadow_mode_a_stop_is_told_and_a_retry_is_not() -> None:
    assert told(HANDLED, decision=RETRY, armed=False) == ()
    limited = replace(RETRY, kind=DecisionKind.STOP, limit="two retries")
    kinds = [each.kind for each in told(HANDLED, decision=limited, armed=False)]
    assert kinds == [Kind.JOB_STOPPED, Kind.BUDGET_SPENT]


@pytest.mark.parametrize("kind", [DecisionKind.RETRY, DecisionKind.STOP])
def test_a_limit_is_told_whether_it_refuses_or_delays(kind: DecisionKind) -> None:
    of_decision, of_limit = told(HANDLED, decision=replace(RETRY, kind=kind, limit="ada's share is spent"))
    assert (of_limit.kind, of_limit.subject, of_limit.detail) == (
        Kind.BUDGET_SPENT,
        f"limit:{FAILURE.id}",
        "ada's share is spent",
    )
    assert (of_limit.user, of_limit.path) == (of_decision.user, of_decision.path)


def test_what_another_recovers_or_nobody_has_decided_is_no_news() -> None:
    by_job = replace(HANDLED, verdicts=(replace(BY_PERDURE, component=Component.JOB),))
    assert told(by_job, decision=RETRY) == told(FAILURE, decision=RETRY) == told(HANDLED) == ()
    assert told(HANDLED, job=None, decision=RETRY) == ()


def test_a_person_is_asked_while_it_is_open_and_led_to_the_exception() -> None:
    (notice,) = told(ESCALATED, decision=RETRY)
    assert (notice.kind, notice.detail, notice.path) == (
        Kind.PERSON_NEEDED,
        "job.shape: the note",
        "/exceptions/c%2F7%231%3Ajob.failed",
    )
    declined = replace(BY_PERDURE, kind=AnswerKind.DECLINED, note="no nodes")
    said = replace(ESCALATED, verdicts=(replace(declined, note="first"), declined))
    assert [each.detail for each in told(said)] == ["job.shape: no nodes"]
    assert [each.detail for each in told(replace(ESCALATED, note=""))] == ["job.shape"]
    for outcome in set(ExceptionOutcome) - {ExceptionOutcome.OPEN}:
        assert told(replace(ESCALATED, outcome=outcome)) == ()


def test_a_suspect_is_told_while_it_stands() -> None:
    suspect = replace(FAILURE, type="suspect.node", subject=Subject("c", nodes=("n1", "n2", "n3")))
    (notice,) = told(suspect, job=None)
    assert (notice.kind, notice.name, notice.user, notice.detail) == (
        Kind.SUSPECT,
        "node n1 and 2 more",
        "",
        "the note",
    )
    assert told(replace(suspect, outcome=ExceptionOutcome.WITHDRAWN), job=None) == ()
    assert told(replace(suspect, type="suspects"), job=None) == ()


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (Subject("c", "9"), "job 9"),
        (Subject("c", nodes=("n1",)), "node n1"),
        (Subject("c", resource="pfs:/x"), "pfs:/x"),
        (Subject("c"), "job.shape"),
    ],
)
def test_what_it_is_about_is_named(subject: Subject, name: str) -> None:
    (notice,) = told(replace(ESCALATED, subject=subject), job=None)
    assert notice.name == name


# -- what follows from nodes, parts and disks


@pytest.mark.parametrize(("age_s", "is_told"), [(STALE_S, True), (STALE_S + 0.5, False)])
def test_what_is_a_day_old_is_told_and_what_is_older_is_not(age_s: float, is_told: bool) -> None:
    assert STALE_S == 24 * HOUR_S
    assert bool(told(ESCALATED, at_s=NOW - age_s)) is is_told


def test_a_node_s_notice_says_why_and_of_which_partitions() -> None:
    node = Node("n1", NodeState.DOWN, "fan", partitions=("a", "b"))
    (notice,) = notices_of([NoticeFact(NodeChanged(NOW, "c", node))], {}, NOW)
    assert notice == Notice(Kind.NODE_DOWN, "node:n1", NOW, "node n1", "", "a,b", "fan", "/nodes")


def test_parts_of_a_manager_and_two_nodes_are_told_of_apart() -> None:
    gone = [NoticeFact(SightChanged(NOW, "c", part, "silent")) for part in ("controller", "accounting")]
    back = [NoticeFact(SightChanged(NOW, "c", "accounting", ""))]
    assert [(n.kind, n.name) for n in notices_of([*gone, *back], {}, NOW)] == [
        (Kind.MANAGER_UNREACHABLE, "controller"),
        (Kind.MANAGER_UNREACHABLE, "accounting"),
        (Kind.MANAGER_BACK, "accounting"),
    ]
    assert subjects_of(gone) == {"part:controller", "part:accounting"}


@pytest.mark.parametrize(
    ("free", "last", "kind"),
    [(99, None, Kind.DISK_LOW), (100, None, None), (124, Kind.DISK_LOW, None), (125, Kind.DISK_LOW, Kind.DISK_BACK)],
)
def test_a_disk_has_room_again_at_a_quarter_more(free: int, last: Kind | None, kind: Kind | None) -> None:
    assert ROOM_AGAIN == 1.25
    found = notices_of([NoticeFact(DiskSeen(NOW, free))], {"disk": last} if last else {}, NOW, 100)
    assert [each.kind for each in found] == ([kind] if kind else [])
    if kind:
        assert found[0].detail == f"{free} MiB are free"


def test_what_a_name_and_a_reason_hold_is_bounded() -> None:
    node = Node("n" * 300, NodeState.DOWN, "r" * 900)
    (notice,) = notices_of([NoticeFact(NodeChanged(NOW, "c", node))], {}, NOW)
    assert (len(notice.name), len(notice.detail)) == (MAX_NAME, MAX_DETAIL)


# -- how much each matters, as the docs have it


SEVERITIES = {
    Severity.INFO: {"job_retried", "job_stopped", "test"},
    Severity.WARNING: {"budget_spent", "suspect", "node_drained", "node_down", "node_back"},
    Severity.CRITICAL: {"person_needed", "manager_unreachable", "manager_back", "disk_low", "disk_back"},
}


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_matters_as_much_as_the_docs_say(kind: Kind) -> None:
    assert kind.value in SEVERITIES[kind.severity]
    ranks = [severity.rank for severity in (Severity.INFO, Severity.WARNING, Severity.CRITICAL)]
    assert ranks == sorted(set(ranks))
    for severity in Severity:
        assert Rule(("a",), severity=severity).matches(notice(kind)) is (kind.severity.rank >= severity.rank)


# -- messages


def notice(kind: Kind = Kind.NODE_DOWN, subject: str = "s", at_s: float = NOW, path: str = "/nodes") -> Notice:
    return Notice(kind, subject, at_s, subject, path=path)


def message(target: str = "ops", whose: str = "", kind: Kind = Kind.NODE_DOWN, subject: str = "s") -> Message:
    return first_message("c", target, whose, notice(kind, subject))


def test_a_message_counts_names_the_first_few_and_spans_their_time() -> None:
    grown = message()
    for number in range(1, 8):
        grown = joined(grown, notice(subject=str(number), at_s=NOW + (number if number < 7 else -9)))
    assert (grown.count, grown.unnamed, len(grown.notices)) == (8, 8 - NAMED, NAMED)
    assert (grown.first_s, grown.last_s) == (NOW, NOW + 6)
    assert [each.subject for each in grown.notices] == ["s", "1", "2", "3", "4"]
    assert grown.title == "8 nodes are down"
    assert message().title == "A node is down"


def test_a_message_leads_to_the_page_of_one_and_to_the_list_of_many() -> None:
    one = first_message("c", "ops", "", notice(Kind.PERSON_NEEDED, path="/exceptions/x"))
    assert one.path == "/exceptions/x"
    assert joined(one, notice(Kind.PERSON_NEEDED)).path == "/exceptions"
    disk = first_message("c", "ops", "", notice(Kind.DISK_LOW, path="/"))
    assert joined(disk, notice(Kind.DISK_LOW)).path == "/"


@pytest.mark.parametrize(
    "other",
    [
        {"cluster": "d"}, {"target": "x"}, {"whose": "ada"}, {"notice": notice(Kind.NODE_BACK)},
        {"notice": notice(subject="t")}, {"notice": notice(at_s=NOW + 1)},
    ],
)  # fmt: skip
def test_a_message_has_a_key_of_its_own(other: Mapping[str, str | Notice]) -> None:
    given: dict[str, Any] = {"cluster": "c", "target": "ops", "whose": "", "notice": notice()}
    assert first_message(**given).key == first_message(**given).key != first_message(**{**given, **other}).key
    assert len(first_message(**given).key) == 32


# -- when


MINE, ADAS = ("", Severity.WARNING), ("ada", Severity.WARNING)
LIMITS = NoticeLimits(group_s=30.0, per_hour=2, retry_for_s=100.0)


def chosen(
    *waiting: PendingMessage,
    begun: ItemsView[tuple[str, Severity], list[float]] | tuple[()] = (),
    now: float = NOW,
    limits: NoticeLimits = LIMITS,
) -> str | None:
    found = next_to_send(waiting, dict(begun), limits, now)
    return found.message.key if found else None


def test_a_message_goes_when_it_is_due_and_not_before() -> None:
    assert chosen(PendingMessage(message(), NOW)) == message().key
    assert chosen(PendingMessage(message(), NOW + 0.5)) is None
    far = NOW + LONGEST_WAIT_S + LIMITS.group_s
    assert chosen(PendingMessage(message(), far)) is None
    assert chosen(PendingMessage(message(), far + 1)) == message().key  # of a clock that was put right since


def test_what_was_begun_goes_first_then_what_waits_longest() -> None:
    """Of one severity."""
    old, new = (
        PendingMessage(message(kind=Kind.NODE_BACK), NOW - 9),
        PendingMessage(message(kind=Kind.NODE_DRAINED), NOW - 5),
    )
    again = PendingMessage(message(kind=Kind.SUSPECT), NOW - 1, begun_s=NOW - 60, tries=1)
    assert chosen(new, old) == old.message.key
    assert chosen(new, old, again) == again.message.key


def test_what_is_more_severe_goes_before_all_that_is_less() -> None:
    retried = PendingMessage(message(kind=Kind.JOB_RETRIED), NOW - 900, begun_s=NOW - 905, tries=1)
    suspect = PendingMessage(message(kind=Kind.SUSPECT), NOW - 9)
    disk = PendingMessage(message(kind=Kind.DISK_LOW), NOW)
    assert chosen(retried, suspect, disk) == disk.message.key
    assert chosen(retried, suspect) == suspect.message.key


def test_each_severity_has_an_hour_s_limit_of_its_own() -> None:
    spent = [NOW - 9, NOW - 5]
    info, critical = message(kind=Kind.JOB_STOPPED), message(kind=Kind.PERSON_NEEDED)
    waiting = PendingMessage(info, NOW - 300), PendingMessage(critical, NOW)
    assert chosen(*waiting, begun={("", Severity.INFO): spent}.items()) == critical.key
    assert chosen(*waiting, begun={("", Severity.CRITICAL): spent}.items()) == info.key
    assert chosen(*waiting, begun={("", each): spent for each in Severity}.items()) is None


def test_it_says_what_a_message_waits_for() -> None:
    def hold(due_s: float = NOW, on_their_way: set[Any] | tuple[()] = (), lately: tuple[float, ...] = ()) -> WaitReason:
        return wait_reason(PendingMessage(message(), due_s), on_their_way, {MINE: lately}, LIMITS, NOW)

    assert hold() == WaitReason("is next")
    assert hold(NOW + 5) == WaitReason("waits for more of its kind", NOW + 5)
    assert hold(on_their_way={("ops", "", Kind.NODE_DOWN)}) == WaitReason(
        "waits until the message before it has arrived"
    )
    held = hold(lately=(NOW - 900, NOW - 60, NOW - 300))
    assert held.why == "held: 3 warning messages in the last hour, and notices.per_hour is 2"
    assert held.until_s == NOW - 300 + HOUR_S  # from when the hour has one of them


def test_while_one_of_a_group_is_on_its_way_the_next_one_waits() -> None:
    on_its_way = PendingMessage(message(subject="a"), NOW + 60, begun_s=NOW - 5, tries=1)
    assert chosen(on_its_way, PendingMessage(message(subject="b"), NOW)) is None
    for other in (message(whose="ada"), message(kind=Kind.NODE_BACK)):
        assert chosen(on_its_way, PendingMessage(other, NOW)) == other.key


def test_the_hour_s_limit_is_each_person_s_own_and_binds_no_second_try() -> None:
    hour = [NOW - HOUR_S + 1, NOW]
    assert chosen(PendingMessage(message(whose="ada"), NOW), begun={ADAS: hour}.items()) is None
    assert chosen(PendingMessage(message(whose="bob"), NOW), begun={ADAS: hour}.items()) is not None
    assert chosen(PendingMessage(message(), NOW), begun={MINE: [NOW - HOUR_S, NOW]}.items()) is not None
    assert chosen(PendingMessage(message(), NOW), begun={MINE: [NOW + 9, NOW]}.items()) is not None  # of a clock ahead
    again = PendingMessage(message(), NOW, begun_s=NOW - 5, tries=1)
    assert chosen(again, begun={MINE: hour}.items()) is not None


def test_tries_are_given_up_when_their_time_is_over() -> None:
    assert retry_at(1, NOW - 99.5, LIMITS, NOW) == NOW + FIRST_RETRY_S
    assert retry_at(1, NOW - 100.0, LIMITS, NOW) is None
    assert retry_at(2, NOW, LIMITS, NOW) == NOW + 2 * FIRST_RETRY_S
    assert retry_at(10**6, NOW, LIMITS, NOW) == NOW + LONGEST_WAIT_S
    assert (LONGEST_WAIT_S, NoticeLimits().group_s, NoticeLimits().per_hour, NoticeLimits().retry_for_s) == (
        900.0,
        30.0,
        30,
        86_400.0,
    )
    assert isinstance(message(), Message)


def test_clusters_in_one_database_are_told_of_apart(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "a")
    try:
        nothing = Routing((), frozenset(), 0.0)
        Outbox(store, "a").add([Notice(Kind.NODE_DOWN, "node:n1", NOW, "node n1")], 1, nothing, NOW)
        assert Outbox(store, "a").told(["node:n1"]) == {"node:n1": Kind.NODE_DOWN}
        assert Outbox(store, "b").told(["node:n1"]) == {}
    finally:
        store.close()


def test_of_each_subject_the_kind_that_was_told_last_counts_and_of_too_many_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path, "a")
    try:
        box, nothing = Outbox(store, "a"), Routing((), frozenset(), 0.0)
        kinds = {"node:n1": [Kind.NODE_DOWN, Kind.NODE_BACK], "node:n2": [Kind.NODE_BACK, Kind.NODE_DOWN]}
        for at in (0, 1):
            box.add([Notice(kinds[each][at], each, NOW + at, each) for each in kinds], at, nothing, NOW)
        latest = {subject: told[-1] for subject, told in kinds.items()}
        assert box.told([*kinds, "node:n3"]) == latest
        monkeypatch.setattr(outbox, "KEEP_NOTICES", 2)
        box.prune(NOW + 2)
        assert box.told(kinds) == latest
    finally:
        store.close()


def test_messages_to_persons_count_against_each_persons_own_limit(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "a")
    try:
        box, personal = Outbox(store, "a"), Routing((Rule(("mail",)),), frozenset({"mail"}), 0.0)
        limits = NoticeLimits(group_s=0.0, per_hour=2)
        for user, first in (("ada", NOW), ("bob", NOW + 10.0)):
            for at_s in (first, first + 1.0):
                box.add([Notice(Kind.SUSPECT, f"{user}{at_s}", at_s, "job 7", user)], None, personal, at_s)
                found = next_to_send(box.waiting("mail"), box.begun("mail", at_s), limits, at_s)
                assert found is not None
                begun = box.begin(found.message.key, at_s)
                assert begun is not None
                box.sent(begun, at_s)
        box.add([Notice(Kind.SUSPECT, "again", NOW + 20.0, "job 7", "ada")], None, personal, NOW + 20.0)
        told = [
            next_to_send(box.waiting("mail"), box.begun("mail", at_s), limits, at_s)
            for at_s in (NOW + 20.0, NOW + HOUR_S + 0.5)
        ]
        assert [found is not None for found in told] == [False, True]
    finally:
        store.close()
