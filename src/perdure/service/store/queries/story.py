"""What belongs to the job that has an id now: a resource manager that lost its state gives ids out again.

Rows of the journal name jobs by their ids alone. Every question about a job asks for the rows of its story.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_, select

from perdure.model.jobs import SAME_SUBMIT_S
from perdure.service.store.schema import actions, attempts, exceptions, jobs, policy_jobs, wait_promises


@cache  # few tables have it: built once, it costs a query nothing
def of_this_job(table: Any) -> ColumnElement[bool]:
    """Whether a row is about the job that has its id now, where one is known.

    Of attempts, exceptions, actions, jobs under a policy, and promises of waits.
    """
    said_s = {policy_jobs: policy_jobs.c.came_s, wait_promises: wait_promises.c.asked_s}.get(table)
    if said_s is not None:
        is_of_another = said_s < jobs.c.story_s - SAME_SUBMIT_S
    else:
        is_of_another = _is_attempt_of_another(table) if table is attempts else _is_about_another(table)
    return ~exists(select(jobs.c.seq).where(jobs.c.cluster == table.c.cluster, jobs.c.job_id == table.c.job_id,
                                            is_of_another).correlate(table))  # fmt: skip


def _is_attempt_of_another(table: Any) -> ColumnElement[bool]:
    """It is another user's, or began before this job was submitted."""
    user = table.c.payload["user"].as_string()
    return or_(table.c.start_s < jobs.c.story_s, and_(user != "", user != jobs.c.user))


def _is_about_another(table: Any) -> ColumnElement[bool]:
    """It was written down before we knew this job, or is about an attempt of another."""
    written_s = {exceptions: exceptions.c.time_s, actions: actions.c.created_s}[table]
    run = attempts.alias()
    about = (run.c.cluster == table.c.cluster, run.c.job_id == table.c.job_id, run.c.incarnation == table.c.incarnation)
    of_another = exists(select(run.c.seq).where(*about, _is_attempt_of_another(run)).correlate(table, jobs))
    return or_(written_s < jobs.c.story_known_s, of_another)
