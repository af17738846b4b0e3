"""A law of ids that come again: nothing goes over from the job that had an id to the one that has it now."""

from __future__ import annotations

import math
from sqlite3 import Connection as Raw
from typing import cast

from perdure.live_policy.outcome import PolicyTerm
from perdure.model.jobs import Job
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.store.database import Store
from perdure.service.store.queries.actions import actions_of
from perdure.service.store.queries.jobs import job_detail
from perdure.service.store.queries.reader import Reader
from perdure.service.waits.promise_store import PromiseStore
from perdure.waits.calibration import Promise
from perdure.waits.queue import QueuedJob
from tests.dst.broken import must
from tests.dst.cluster import Manager
from tests.dst.disk import Disk

ALL = PolicyTerm("las", 0.0, None, None)
HERE = "SELECT submit_s, user, story_known_s FROM jobs WHERE job_id = ?"


class SameStore:
    """What stores beside the journal write to and read from: what is written there is not lost, and nothing dies."""

    def __init__(self, disk: Disk) -> None:
        self.engine, self.writing = disk.reader, disk.beside


def store_on(disk: Disk) -> Store:
    return cast("Store", SameStore(disk))


def note_apart(store: Store, manager: Manager, job_id: str) -> None:
    """Have a job take part in a policy, and its start promised, as though it waited still."""
    job = manager.job(job_id)
    PolicyStore(store, manager.name).note_jobs([_queued(job)])
    PromiseStore(store, manager.name).note([Promise(job_id, job.submit_s, (1.0,) * 5)], manager.now)


def is_written(db: Raw, job: Job, by_s: float = math.inf) -> bool:
    """Whether the service has seen that the id is this job's, and by then if it was another's before."""
    *told, known_s = db.execute(HERE, (job.job_id,)).fetchone() or (None, None, 0.0)
    return told == [job.submit_s, job.user] and bool(known_s <= by_s)


def check_apart(store: Store, reader: Reader, db: Raw, manager: Manager) -> None:
    """A job that got another's id is shown its own starts, failures, actions, promises and life, and no others."""
    for job_id in {each.job.job_id for each in manager.every if manager.was_given_again(each.job.job_id)}:
        whose = manager.whose(job_id)
        if not is_written(db, whose.job):
            continue  # the manager forgot it, and nobody has seen it
        if manager.may_be_mistaken(job_id):
            continue
        own, detail = {a.id.incarnation for a in whose.attempts}, job_detail(reader, job_id)
        shown = {each.attempt.id.incarnation for each in detail.attempts}
        must(shown <= own, "a job is shown its own starts", job_id, shown - own)
        failures = {each.record.incarnation for each in detail.exceptions} - {0}
        must(failures <= own, "a job is shown its own failures", job_id, failures - own)
        done = {each.action.attempt.incarnation for each in actions_of(reader, job_id)} - {0}
        must(done <= own, "a job is shown what was done to it", job_id, done - own)
        starts = {a.start_s for a in whose.attempts}
        policy, promises = PolicyStore(store, manager.name), PromiseStore(store, manager.name)
        ran = {start_s for start_s, _ in policy.ran([job_id]).get(job_id, ())}
        must(ran <= starts, "a policy knows when a job itself ran", job_id, ran - starts)
        must(job_id not in promises.promised_since(0.0), "a job was promised what it was told", job_id)
        for life in policy.lives(ALL):
            must(life.started_s is None or life.started_s >= life.came_s, "a life is one job's", job_id, life)
        policy.note_jobs([_queued(whose.job)])
        lives = [life for life in policy.lives(ALL) if life.came_s == whose.job.submit_s]
        told = {life.started_s for life in lives} - {None}
        alike = [s for s in manager.every if s.job.submit_s == whose.job.submit_s]
        starts = {a.start_s for each in alike for a in each.attempts}
        must(told <= starts, "a job's life is its own", job_id, told - starts)


def _queued(job: Job) -> QueuedJob:
    return QueuedJob(job.job_id, job.user, job.state, (), submit_s=job.submit_s)
