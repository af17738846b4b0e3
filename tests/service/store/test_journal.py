"""The journal holds what it acknowledged, once, in SQLite and in PostgreSQL."""

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, event, insert, select, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.sql.schema import Column

from perdure.backends.simulated import EVERY, FaultPlan, Script, SimulatedBackend, SimulatedCluster
from perdure.coordination.record import ExceptionRecord, ExceptionState, Scope, Subject
from perdure.errors import NotFound, StateError
from perdure.model.actions import Action, Drain, Hold, Requeue
from perdure.model.events import ActionEnded, AttemptEnded, AttemptStarted, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.retry.history import NodeTrouble, Spent
from perdure.service.core.case import Case, ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import (
    PERDURE,
    Act,
    Effect,
    Ended,
    Event,
    ExceptionChanged,
    Journalled,
    Judge,
    Judged,
    Looked,
    Noted,
    Ordered,
)
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import DAY_S, ActionRow, ActionState, Journal
from perdure.service.store.schema import actions, attempts, events, exceptions, jobs, metadata, nodes
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

SETTINGS = ControllerSettings()
ONE = AttemptId("c", "1", 1)
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=8)
FAILED = Attempt(ONE, AttemptState.FAILED, ("n2",), 10.0, 3610.0, exit_code=1, gpus=8, user="ada")
NODES = tuple(Node(f"n{i}", NodeState.UP, gpus=8) for i in range(1, 4))
LOOK = Looked(Observation("c", 3611.0, (JOB,), (FAILED,), NODES))
TRANSIENT = Judged(3612.0, ONE, Verdict(Label.TRANSIENT, 0.9, "net", "lost", infrastructure=True, fingerprint="f"))
WRONG = Judged(3612.0, ONE, Verdict(Label.DETERMINISTIC, 0.02, "shape", "shapes do not match", fingerprint="d"))


class Service:
    """A controller whose effects are journalled, and nothing else."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.state = journal, journal.restore()

    def feed(self, *given_events: Event) -> list[Effect]:
        for one in given_events:
            state, effects = step(self.state, one, SETTINGS)
            self.journal.record(effects, self.state, state)
            self.state = state
        return effects


@pytest.fixture
def service(journal: Journal) -> Service:
    return Service(journal)


def column(journal: Journal, wanted: Column[Any]) -> list[Any]:
    with journal.engine.connect() as db:
        return list(db.scalars(select(wanted)))


def contents(journal: Journal) -> dict[Any, Any]:
    """All rows of all tables."""
    with journal.engine.connect() as db:
        return {t.name: sorted(map(repr, db.execute(select(t)))) for t in metadata.sorted_tables}


def durable(
    state: ControllerState,
) -> tuple[
    Mapping[AttemptId, Attempt],
    dict[str, tuple[NodeState, str]],
    Mapping[str, str],
    Mapping[str, Case],
    Mapping[str, tuple[NodeTrouble, ...]],
    tuple[Spent, ...],
]:
    """What of a state must outlive the service; the rest the next look tells."""
    known = state.known
    nodes = {name: (node.state, node.reason) for name, node in known.nodes.items()}
    return known.running, nodes, known.unseen, state.cases, state.fleet.troubles, state.fleet.spent


def waiting(journal: Journal, key: str) -> ActionRow:
    row = journal.action(key)
    assert row is not None
    return row


def plan(journal: Journal, action: Action, by: str = PERDURE, now: float = 1.0, expires_s: float = 100.0) -> str:
    """Plan an action as the controller would."""
    empty = ControllerState("c")
    ordered = [] if by == PERDURE else [Journalled(Ordered(now, action, by, "why"))]
    journal.record([*ordered, Act(action, by, "why", expires_s)], empty, empty)
    return journal.latest_key(action)


# -- what the controller knows


def test_what_a_job_asks_for_may_be_any_number(service: Service) -> None:
    """Kubernetes and HTCondor take such jobs; the journal took none, and no look at any job, from then on."""
    many = 10**29
    job, attempt = replace(JOB, gpus=many, node_count=many), replace(FAILED, gpus=many)
    service.feed(Looked(Observation("c", 3611.0, (job,), (attempt,), NODES)), TRANSIENT)
    assert column(service.journal, jobs.c.gpus) == column(service.journal, attempts.c.gpus) == [2**31 - 1]
    assert service.journal.restore().cases["1"].job.gpus == many


def test_the_state_outlives_the_service(where: Path | str, service: Service) -> None:
    service.feed(LOOK, TRANSIENT)
    service.journal.close()
    again = Journal.open(where, "c")
    restored = again.restore()
    assert durable(restored) == durable(service.state)
    assert restored.known.jobs == service.state.known.jobs
    assert set(restored.known.ended) == set(service.state.known.ended)
    assert again.seen_until_s(math.inf) == 3611.0  # what was judged later tells nothing of the cluster
    again.close()


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=8)
def test_whatever_happens_the_journal_knows_what_the_controller_knows(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = SimulatedCluster(seed, nodes=3, name="c", gpus=2, requeue_exit=frozenset({75}))
    backend = SimulatedBackend(cluster, FaultPlan(p_blind=0.1), seed)
    journal = Journal.open(tmp_path_factory.mktemp("journal"), "c")
    service = Service(journal)
    kinds: list[dict[str, Any]] = [
        {},
        {"failures": EVERY, "error": "ValueError: no"},
        {"failures": 1, "exit_code": 75},
        {"failures": 1},
    ]
    for turn in range(25):
        cluster.submit(Script(run_s=3.0 + seed % 7, **kinds[(seed + turn) % 4]))
        if turn % 9 == 5:
            cluster.fail_node(f"n{1 + turn % 3}")
        cluster.advance(5.0)
        effects = service.feed(Looked(backend.observe(cluster.now - 60.0)))
        for effect in [e for e in effects if isinstance(e, Judge)]:
            verdict = judge(backend.output(effect.attempt), effect.attempt)
            service.feed(Judged(cluster.now, effect.attempt.id, verdict))
    restored = journal.restore()
    assert durable(restored) == durable(service.state)
    assert set(restored.known.ended) >= set(service.state.known.ended)
    journal.close()


def test_writing_the_same_twice_changes_nothing(journal: Journal) -> None:
    state, effects = step(ControllerState("c"), LOOK, SETTINGS)
    judged, more = step(state, TRANSIENT, SETTINGS)
    journal.record([*effects, *more], ControllerState("c"), judged)
    once = contents(journal)
    journal.record([*effects, *more], ControllerState("c"), judged)
    assert contents(journal) == once


def test_a_step_is_written_as_a_whole_or_not_at_all(service: Service) -> None:
    service.feed(LOOK)
    before = contents(service.journal)

    def refuse(connection: Connection, clause: Any, *_: object) -> None:
        if getattr(clause, "table", None) is actions:
            raise RuntimeError("the disk is gone")

    event.listen(service.journal._store._writers, "before_execute", refuse)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        service.feed(TRANSIENT)
    assert contents(service.journal) == before


def test_the_first_word_on_how_an_attempt_ended_counts(journal: Journal) -> None:
    empty = ControllerState("c")
    started = AttemptStarted(10.0, replace(FAILED, state=AttemptState.RUNNING, end_s=None))
    second = AttemptEnded(9000.0, replace(FAILED, state=AttemptState.LOST), None)
    for one in (started, AttemptEnded(3611.0, FAILED, JOB), second, started):
        journal.record([Journalled(one)], empty, empty)
    assert journal.attempt(ONE) == FAILED
    assert column(journal, events.c.kind) == ["attempt_started", "attempt_ended"]


def test_a_job_and_a_node_are_written_over_with_what_is_newest(service: Service) -> None:
    service.feed(LOOK, Looked(replace(LOOK.observation, time_s=3700.0, jobs=(replace(JOB, state=JobState.PENDING),),
                                      nodes=(replace(NODES[0], state=NodeState.DOWN), *NODES[1:]))))  # fmt: skip
    assert column(service.journal, jobs.c.state) == ["pending"]
    assert sorted(column(service.journal, nodes.c.state)) == ["down", "up", "up"]


def test_a_node_that_was_taken_out_of_the_cluster_is_not_listed_any_more(service: Service) -> None:
    service.feed(LOOK, Looked(replace(LOOK.observation, time_s=3700.0, nodes=NODES[1:])))
    assert sorted(column(service.journal, nodes.c.name)) == sorted(node.name for node in NODES[1:])
    assert set(service.journal.restore().known.nodes) == {node.name for node in NODES[1:]}


def test_a_verdict_stands_with_its_attempt(service: Service) -> None:
    service.feed(LOOK, WRONG)
    assert [verdict["category"] for verdict in column(service.journal, attempts.c.verdict)] == ["shape"]


def test_answers_and_savings_are_never_taken_back(service: Service) -> None:
    service.feed(LOOK)
    raised = service.state.cases["1"].failure
    service.feed(WRONG)
    stopped = service.state.cases["1"].failure
    assert raised is not None
    assert stopped is not None
    for older in (Noted(raised.record, raised), Noted(stopped.record, stopped)):
        service.journal.record([older], service.state, service.state)
    with service.journal.engine.connect() as db:
        row = db.execute(select(exceptions)).one()
    assert (row.state, row.decision, row.owner, row.saved_gpu_h) == ("stopped", "stop", "scheduler", 8 * 0.98)
    assert len(row.payload["verdicts"]) == len(stopped.record.verdicts)


def test_hostile_text_is_kept_without_what_databases_refuse(service: Service) -> None:
    nasty = "a\0b\ud800c; DROP TABLE jobs; --"
    job = replace(JOB, name=nasty, user=nasty, partition=nasty, reason=nasty)
    attempt = replace(FAILED, reason=nasty, nodes=(nasty,))
    node = Node(nasty, NodeState.DOWN, nasty)
    service.feed(Looked(Observation("c", 3611.0, (job,), (attempt,), (node,), {"accounting": nasty})))
    service.feed(replace(TRANSIENT, verdict=replace(TRANSIENT.verdict, summary=nasty, category=nasty)))
    clean = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c; DROP TABLE jobs; --"
    restored = service.journal.restore()
    assert restored.known.jobs["1"].name == clean
    assert restored.known.unseen == {"accounting": clean}
    assert column(service.journal, jobs.c.user) == [clean]
    assert clean in service.journal.planned()[0].reason


def test_clusters_in_one_database_do_not_see_each_other(where: Path | str, service: Service) -> None:
    service.feed(LOOK, TRANSIENT)
    service.journal.close()
    other = Journal.open(where, "other")
    assert other.restore() == ControllerState("other")
    assert other.planned() == []
    assert other.seen_until_s(math.inf) is None
    other.close()


# -- actions


def test_deciding_twice_plans_once(journal: Journal) -> None:
    assert plan(journal, Requeue(ONE)) == plan(journal, Requeue(ONE)) == "requeue:c/1#1"
    assert [row.key for row in journal.planned()] == ["requeue:c/1#1"]


def test_what_has_ended_is_not_planned_again_by_perdure(journal: Journal) -> None:
    plan(journal, Requeue(ONE))
    journal.begin("requeue:c/1#1", 2.0)
    journal.finish(waiting(journal, "requeue:c/1#1"), ActionState.DONE, "", 3.0)
    plan(journal, Requeue(ONE))
    assert journal.planned() == []


def test_a_person_may_ask_again_for_what_has_ended_but_not_for_what_is_open(journal: Journal) -> None:
    hold = Hold(ONE)
    keys = []
    for now in (1.0, 2.0, 3.0):
        keys.append(plan(journal, hold, by="ada", now=now))
        assert plan(journal, hold, by="bob", now=now + 0.5) == keys[-1]
        journal.begin(keys[-1], now)
        assert plan(journal, hold, by="bob", now=now + 0.6) == keys[-1]
        journal.finish(waiting(journal, keys[-1]), ActionState.DONE, "", now)
    assert keys == ["hold:c/1#1", "hold:c/1#1~2", "hold:c/1#1~3"]
    assert {row.action for row in journal._actions()} == {hold}


def test_keys_with_the_signs_of_patterns_stay_apart(journal: Journal) -> None:
    plan(journal, Drain("a_b", "r", "%"), by="ada")
    with pytest.raises(NotFound):
        journal.latest_key(Drain("aXb", "r", "%"))


def test_an_action_is_begun_once_however_many_try(journal: Journal) -> None:
    key = plan(journal, Requeue(ONE))
    won = []
    threads = [threading.Thread(target=lambda: won.append(journal.begin(key, 2.0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]
    assert [row.state for row in journal.open_intents()] == [ActionState.STARTED]


def test_an_action_ends_once(journal: Journal) -> None:
    key = plan(journal, Requeue(ONE))
    journal.begin(key, 2.0)
    begun = journal.action(key)
    assert begun is not None
    assert journal.finish(begun, ActionState.DONE, "ok", 3.0) == ActionEnded(3.0, key, ONE, "done", "ok")
    assert journal.finish(begun, ActionState.REFUSED, "no", 4.0) is None
    assert journal.action(key).detail == "ok"


def test_what_a_person_withheld_is_never_begun(journal: Journal) -> None:
    key = plan(journal, Requeue(ONE))
    assert journal.withhold(key, "ada\0", 2.0)
    assert not journal.begin(key, 3.0)
    assert not journal.withhold(key, "bob", 4.0)
    assert journal.action(key).detail == "withheld by ada\N{REPLACEMENT CHARACTER}"


def test_what_was_not_carried_out_can_be_begun_anew(journal: Journal) -> None:
    key = plan(journal, Requeue(ONE))
    journal.begin(key, 2.0)
    assert journal.hand_back(key, "no answer")
    assert journal.charges(0.0) == {}
    assert journal.begin(key, 3.0)


def test_begun_actions_are_counted_by_kind_and_those_of_people_are_not(where: Path | str, journal: Journal) -> None:
    for number in range(3):
        journal.begin(plan(journal, Requeue(AttemptId("c", str(number), 1))), 10.0 * number)
    journal.begin(plan(journal, Drain("n1", "r", "e")), 15.0)
    journal.begin(plan(journal, Hold(ONE), by="ada"), 15.0)
    journal.close()
    again = Journal.open(where, "c")
    begun = [(10.0, "requeue", "", ""), (15.0, "drain", "", "n1"), (20.0, "requeue", "", "")]
    assert sorted(again.charges(5.0).values()) == begun
    again.close()


def test_it_is_known_whose_jobs_begun_actions_are_about(service: Service) -> None:
    for effect in service.feed(LOOK, TRANSIENT):
        if isinstance(effect, Act):
            service.journal.begin(effect.action.key, 2.0)
    assert [charge.user for charge in service.journal.charges(0.0).values()] == ["ada"]


def test_ends_that_the_controller_never_heard_of_are_told(service: Service) -> None:
    service.feed(LOOK, TRANSIENT)
    journal, key = service.journal, "requeue:c/1#1"
    journal.begin(key, 3613.0)
    ended = journal.finish(waiting(journal, key), ActionState.REFUSED, "no", 3614.0)
    assert journal.unreported() == [ended]
    assert ended is not None
    service.feed(Ended((ended,)))
    assert journal.unreported() == []


def test_ends_that_were_never_heard_of_are_told_though_the_clock_was_set_back_before_them(service: Service) -> None:
    service.feed(LOOK, TRANSIENT)
    journal, key = service.journal, "requeue:c/1#1"
    journal.begin(key, 3613.0)
    ended = journal.finish(waiting(journal, key), ActionState.REFUSED, "no", 1.0)
    assert journal.unreported() == [ended]


def test_ends_that_were_never_heard_of_are_told_though_the_clock_was_ahead_meanwhile(
    service: Service,
) -> None:
    service.feed(LOOK, TRANSIENT)
    service.feed(Looked(Observation("c", 50_000.0, (JOB, replace(JOB, job_id="2")), (FAILED,), NODES)))
    journal, key = service.journal, "requeue:c/1#1"
    journal.begin(key, 3613.0)
    ended = journal.finish(waiting(journal, key), ActionState.EXPIRED, "not begun in time", 3614.0)
    assert journal.unreported() == [ended]


def test_unknown_actions_and_attempts(journal: Journal) -> None:
    assert journal.action("requeue:c/9#1") is None
    assert journal.attempt(AttemptId("c", "9", 1)) is None
    assert journal.extent() == (0, 0, 0)


# -- retention


def test_what_is_settled_and_old_goes_and_what_is_open_stays(service: Service) -> None:
    service.feed(LOOK, TRANSIENT)
    journal = service.journal
    running = replace(JOB, job_id="2", state=JobState.RUNNING)
    service.feed(Looked(replace(LOOK.observation, time_s=3650.0, jobs=(running,))))
    far = 3650.0 + 31 * DAY_S
    while journal.prune(far):
        pass
    assert [row.key for row in journal.planned()] == ["requeue:c/1#1"]
    assert "2" in journal.restore().known.jobs
    assert "1" in journal.restore().cases
    assert sorted(column(journal, jobs.c.job_id)) == ["1", "2"]
    assert column(journal, exceptions.c.job_id) == ["1"]
    assert column(journal, events.c.key) == []


def test_pruning_goes_in_small_steps_and_spares_what_is_recent(journal: Journal) -> None:
    empty = ControllerState("c")
    old = [Journalled(JobChanged(float(i), replace(JOB, job_id=str(i)))) for i in range(10)]
    new = [Journalled(JobChanged(at_s, replace(JOB, job_id="new"))) for at_s in (10 * DAY_S, 40 * DAY_S)]
    journal.record([*old, *new], empty, empty)
    steps = []
    while gone := journal.prune(40 * DAY_S, limit=4):
        steps.append(gone)
    assert steps == [8, 8, 4]
    assert column(journal, jobs.c.job_id) == ["new"]
    assert len(column(journal, events.c.seq)) == 2  # what is just as old as is kept stays


def test_what_was_done_because_of_an_exception_is_kept_until_that_is_over(journal: Journal) -> None:
    empty, hold = ControllerState("c"), Hold(ONE, "x")
    subject = Subject("c", resource="pfs:/scratch")
    record = ExceptionRecord("x", "storage.down", 1, Scope.GLOBAL, subject, 1.0, state=ExceptionState.IN_CHAIN)
    journal.record([Journalled(ExceptionChanged(1.0, record)), Act(hold, PERDURE, "why", 100.0, "x")], empty, empty)
    key = journal.latest_key(hold)
    journal.finish(waiting(journal, key), ActionState.DONE, "", 2.0)
    journal.prune(40 * DAY_S)
    assert journal.action(key) is not None
    journal.record([Journalled(ExceptionChanged(3.0, replace(record, state=ExceptionState.EXPIRED)))], empty, empty)
    journal.prune(40 * DAY_S)
    assert journal.action(key) is None


# -- the database


def test_readers_cannot_write(journal: Journal) -> None:
    with journal.engine.connect() as db, pytest.raises(DatabaseError):
        db.execute(insert(nodes).values(cluster="c", name="n", state="up", changed_s=0.0, payload="{}"))


def test_one_service_at_a_time(where: Path | str, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.store.database.LOCK_PATIENCE_S", 0.1)
    with pytest.raises(StateError, match="in use by another service"):
        Journal.open(where, "c")
    journal.close()
    Journal.open(where, "c").close()


@pytest.mark.parametrize("many", [0, 1, 17, 300])
def test_exceptions_are_recalled_by_their_ids(journal: Journal, many: int) -> None:
    subject = Subject("c", "1")
    records = [ExceptionRecord(f"x{i}", "site.note", 1, Scope.LOCAL, subject, 1.0) for i in range(many)]
    told = [Journalled(ExceptionChanged(1.0, record)) for record in records]
    journal.record(told, ControllerState("c"), ControllerState("c"))
    hostile = ["nobody", "", "a'b", "%s", "\N{SNOWMAN}"]
    assert journal.recall([*(record.id for record in records), *hostile]) == {record.id: record for record in records}


@pytest.mark.postgres
def test_a_lost_connection_is_an_error_once_and_loses_nothing(postgres_database: str) -> None:
    journal = Journal.open(postgres_database, "c")
    key = plan(journal, Requeue(ONE))
    with journal._store.writing() as db:
        pid = db.scalar(text("SELECT pg_backend_pid()"))
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(StateError, match="does not work"):
        journal.begin(key, 2.0)
    assert journal.begin(key, 2.0)
    journal.close()


@pytest.mark.postgres
def test_two_clusters_may_share_a_server(postgres_database: str) -> None:
    one, two = Journal.open(postgres_database, "one"), Journal.open(postgres_database, "two")
    plan(one, Requeue(AttemptId("one", "1", 1)))
    one.close()
    two.close()


def test_a_journal_stays_that_of_the_resource_manager_that_it_was_opened_for_first(where: Path | str) -> None:
    for cluster, name, known in (("c", "alps", "alps"), ("c", "jura", "alps"), ("d", "jura", "jura")):
        opened = Journal.open(where, cluster)
        assert opened.manager(name) == known
        opened.restore()
        opened.close()
