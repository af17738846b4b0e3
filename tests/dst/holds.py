"""Laws of holds: why a job is held, who says so, and that it is let go once, when nothing needs it held any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import ExceptionRecord
from perdure.model.actions import Hold, Release
from perdure.model.jobs import JobState
from perdure.service.access.auth import Role
from tests.dst.broken import must
from tests.dst.cluster import Manager

NEEDED = "/resource.needed/"  # behind the id of what is down, and its own before the job that came
DEEDS = (  # the last first: one job's actions keep their order, and clocks are set back
    "SELECT kind, key, by FROM actions WHERE job_id = ? AND kind IN ('hold', 'release') AND state = 'done' "
    "ORDER BY seq DESC"
)


class Holds:
    """Compares what Perdure holds and lets go of with what was said of the resources that jobs need."""

    def __init__(
        self,
        db: Connection,
        manager: Manager,
        voices: defaultdict[Any, Any],
        told_by: defaultdict[Any, Any],
        needs: Callable[[str, str], bool],
        knows: Callable[[str], bool],
    ) -> None:
        """Who said so: `voices` by type and resource, `told_by` by id. `needs` tells whether a job needs a resource.

        `knows` tells whether the service knows a job.
        """
        self._db, self._manager, self._voices, self._told_by = db, manager, voices, told_by
        self._needs, self._knows = needs, knows

    def check_hold(self, action: Hold, record: ExceptionRecord, chain: Chain) -> None:
        """A job is held while something that it needs is down, by the word of the site."""
        job_id, resource = action.attempt.job_id, record.subject.resource
        if action.user != self._manager.job(job_id).user:
            return  # the manager will see that it is meant for another's job
        must(self._needs(job_id, resource), "a job is held because of what it needs", action.key, resource)
        hold_orders = [r for r in chain.ended.values() if r.is_hold_order and self._needs(job_id, r.subject.resource)]
        must(hold_orders, "a job is held while something that it needs is down", action.key)
        told_by = self._told_by[record.id.partition(NEEDED)[0]]
        must(any(by.role is Role.OPERATOR for by in told_by), "no user holds others' jobs", action.key, told_by)

    def check_release(self, action: Release, record: ExceptionRecord, chain: Chain) -> None:
        """A job is let go once for each time that it was held, by the site's word, and needs nothing that is down."""
        job_id, resource = action.attempt.job_id, record.subject.resource
        said = self._voices[record.type, resource]
        must(any(by.role is Role.OPERATOR for by in said), "no user lets go of what is held", action.key)
        effects = self._manager.effects
        held = sum(key.startswith(f"hold:{action.attempt}@") for key in effects)
        let_go = sum(key.startswith(f"release:{action.attempt}@") and key != action.key for key in effects)
        must(let_go < held, "what is held is let go once", action.key, held, let_go)
        if self._manager.job(job_id).state.is_over and not self._knows(job_id):
            return  # forgotten: nobody can tell what it needed, and there is nothing to let go
        for other in chain.ended.values():
            needed = other.is_hold_order and self._needs(job_id, other.subject.resource)
            must(not needed, "a job that needs what is down stays held", action.key, other.id)

    def check_end(self, chain: Chain) -> None:
        """What is still held, a person holds, its own failure, or an exception in force."""
        for job_id in self._manager.job_ids:
            if self._manager.job(job_id).state is not JobState.HELD:
                continue
            last = self._db.execute(DEEDS, (job_id,)).fetchone()
            if last is None or last[2] != "perdure" or not self._is_hold_of(job_id, last[1]):
                continue
            hold_orders = [
                r.id for r in chain.ended.values() if r.is_hold_order and self._needs(job_id, r.subject.resource)
            ]
            must(hold_orders, "a job is held while something that it needs is down", job_id, *last)

    def _is_hold_of(self, job_id: str, key: str) -> bool:
        """Whether it is a hold of the job's latest start: a manager that guards nothing may hold a newer one."""
        incarnation = max((a.id.incarnation for a in self._manager.attempts(job_id)), default=0)
        return key.startswith("hold:") and f"#{incarnation}@" in key
