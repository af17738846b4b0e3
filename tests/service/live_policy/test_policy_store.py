"""What the policy in force has done, as the journal tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from perdure.live_policy.outcome import JobLife, PolicyTerm
from perdure.model.actions import Preempt
from perdure.model.events import AttemptEnded, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobSize, JobState
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import PERDURE, Act, Journalled
from perdure.service.live_policy.policy_store import AT_ONCE, KeptNice, KeptSize, PolicyStore
from perdure.service.store.journal import ActionState, Journal
from perdure.service.store.schema import actions, policy_terms
from perdure.waits.queue import QueuedJob
from tests.copying import replace


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal.open(tmp_path, "c")) as found:
        yield found


def test_of_all_actions_preemptions_since_an_instant_count(journal: Journal) -> None:
    begun = [("preempt", 500.0), ("requeue", 600.0), ("drain", 610.0), ("preempt", 700.0), ("preempt", None)]
    with journal.store.writing() as db:
        for at, (kind, started_s) in enumerate(begun):
            about = {"cluster": "c", "kind": kind, "job_id": str(at), "incarnation": 1, "started_s": started_s}
            told = {"key": f"{kind}:{at}", "created_s": 1.0, "expires_s": 2.0, "state": "done", "by": "perdure"}
            db.execute(insert(actions).values(**about, **told, reason="", payload="{}"))
    store = PolicyStore(journal.store, "c")
    assert [sorted(store.preempted_since(since_s)) for since_s in (0.0, 500.0, 700.0)] == [[500.0, 700.0], [700.0], []]


def test_of_jobs_that_took_part_those_that_came_in_the_term_count(journal: Journal) -> None:
    store, empty = PolicyStore(journal.store, "c"), ControllerState("c")
    for job_id, submit_s in (("1", 50.0), ("2", 100.0), ("3", 150.0), ("4", 250.0)):
        job = Job("c", job_id, "train", "ada", JobState.PENDING, submit_s)
        journal.record([Journalled(JobChanged(submit_s, job))], empty, empty)
        store.note_jobs([QueuedJob(job_id, "ada", JobState.PENDING, ("gpu",), submit_s=submit_s)])
    terms = PolicyTerm("las", 100.0, 200.0, None), PolicyTerm("las", 100.0, None, None)
    assert [sorted(life.came_s for life in store.lives(term)) for term in terms] == [
        [100.0, 150.0],
        [100.0, 150.0, 250.0],
    ]


@pytest.mark.parametrize(("user", "is_its_own"), [("ada", False), ("eve", True)])
def test_what_another_users_job_of_the_number_ran_and_was_put_back_is_not_this_ones(
    journal: Journal, user: str, is_its_own: bool
) -> None:
    """As where a manager lost its state. A job that was put back is the same, whatever instant it bears."""
    store, empty, ran = PolicyStore(journal.store, "c"), ControllerState("c"), AttemptId("c", "7", 10)
    attempt = Attempt(ran, AttemptState.REQUEUED, ("n1",), 10.0, 900.0, gpus=8, user="eve")
    first = Job("c", "7", "train", "eve", JobState.RUNNING, 5.0)
    journal.record([Journalled(JobChanged(5.0, first)), Journalled(AttemptEnded(900.0, attempt, None))], empty, empty)
    journal.record([Act(Preempt(ran), PERDURE, "why", 960.0)], empty, empty)
    journal.record(
        [Journalled(JobChanged(2000.0, replace(first, user=user, submit_s=2000.0, restarts=1)))], empty, empty
    )
    assert journal.begin(Preempt(ran).key, 890.0)
    begun = journal.action(Preempt(ran).key)
    assert begun is not None
    journal.finish(begun, ActionState.DONE, "in the queue", 895.0)
    past = store.preemptions({"7": 2010.0}, 2020.0)
    found = store.ran(["7"]), store.most_gpus(["7"]), past.done
    assert found == (({"7": [(10.0, 900.0)]}, {"7": 8}, {"7": 1}) if is_its_own else ({}, {}, {}))


@pytest.mark.parametrize(("later_s", "runs"), [(0.0, False), (0.0, True), (400.0, False), (400.0, True)])
def test_the_life_of_a_job_is_not_that_of_one_that_had_its_number_before(
    journal: Journal, later_s: float, runs: bool
) -> None:
    """As where a manager lost its state: neither what it took nor when it started or ended goes over."""
    store, empty, term = PolicyStore(journal.store, "c"), ControllerState("c"), PolicyTerm("las", 5.0, None, None)
    attempt = Attempt(AttemptId("c", "7", 10), AttemptState.COMPLETED, ("n1",), 10.0, 900.0, gpus=8, user="eve")
    first = Job("c", "7", "train", "eve", JobState.COMPLETED, 5.0, gpus=8, walltime_s=1780.0)
    told = [Journalled(JobChanged(5.0, first)), Journalled(AttemptEnded(900.0, attempt, None))]
    journal.record(told, empty, empty)
    store.note_jobs([queued(first)])
    assert store.lives(term) == [JobLife(5.0, 10.0, 900.0)]
    assert (store.services(), list(store.past(0.0).run_s)) == ([890.0 * 8], [890.0])
    user, submit_s = ("ada", 1000.0 + later_s) if later_s else ("eve", 1000.0)
    second = replace(first, user=user, submit_s=submit_s, state=JobState.PENDING)
    journal.record([Journalled(JobChanged(submit_s, second))], empty, empty)
    assert store.lives(term) == []
    store.note_jobs([queued(second)])
    store.note_jobs([queued(replace(second, submit_s=submit_s + 50.0))])  # as where it was put back
    assert store.lives(term) == [JobLife(submit_s, None, None)]
    if runs:
        again = replace(attempt, id=AttemptId("c", "7", 2000), start_s=2000.0, end_s=2010.0, user=user)
        over = replace(second, state=JobState.COMPLETED)
        journal.record(
            [Journalled(JobChanged(2010.0, over)), Journalled(AttemptEnded(2010.0, again, None))], empty, empty
        )
        assert store.lives(term) == [JobLife(submit_s, 2000.0, 2010.0)]
        assert (store.services(), list(store.past(0.0).run_s)) == ([10.0 * 8], [10.0])


def queued(job: Job) -> QueuedJob:
    return QueuedJob(job.job_id, job.user, job.state, ("gpu",), submit_s=job.submit_s)


def test_a_term_that_ended_keeps_its_end(journal: Journal) -> None:
    store = PolicyStore(journal.store, "c")
    for since_s in (100.0, 300.0):
        store.begin_term(PolicyTerm("las", since_s))
        store.end_term(since_s + 50.0)
    with journal.store.reading() as db:
        rows = db.execute(select(policy_terms.c.since_s, policy_terms.c.until_s).order_by(policy_terms.c.seq)).all()
    assert [tuple(row) for row in rows] == [(100.0, 150.0), (300.0, 350.0)]


def test_of_more_jobs_than_fit_into_one_statement_none_is_left_out(journal: Journal) -> None:
    store, there = PolicyStore(journal.store, "c"), [str(number) for number in range(2 * AT_ONCE + 1)]
    store.keep_nice([QueuedJob(name, "ada", JobState.PENDING, ("gpu",)) for name in there], 1.0)
    assert list(store.nice()) == sorted(there)
    store.forget_nice(there)
    assert store.nice() == {}


def test_of_two_clusters_each_keeps_and_forgets_its_own(journal: Journal) -> None:
    here, there = PolicyStore(journal.store, "c"), PolicyStore(journal.store, "d")
    kept = {"7": KeptSize(JobSize(1, 2, 4), "ada")}
    for store in (here, there):
        store.keep_sizes(kept, 1.0)
        store.keep_nice([QueuedJob("7", "ada", JobState.PENDING, ("gpu",), nice=3)], 1.0)
    here.forget_sizes(["7"])
    here.forget_nice(["7"])
    assert (here.sizes(), here.nice()) == ({}, {})
    assert (there.sizes(), there.nice()) == (kept, {"7": KeptNice(3, "ada")})
