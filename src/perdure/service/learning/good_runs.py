"""Good runs: what the log of a job said when last it went well, so that its failures are told from its habits.

The same job is one of the same user and the same name: that is what a user submits again and again. Names are not
promises; where two programs share one, the worst is that a line of the one is taken for a habit of the other, in
jobs of that user alone. Bounded: the `MAX_GOOD_RUNS` newest, each of at most `MAX_STATE_BYTES`.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import and_, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from perdure.model.clean_text import clean
from perdure.model.identity import AttemptId
from perdure.service.store.database import Store
from perdure.service.store.schema import good_runs, jobs
from perdure.triage.evidence.goodrun import GoodRun

MAX_GOOD_RUNS = 2_000
MAX_STATE_BYTES = 64 * 1024


class GoodRuns:
    """The good runs in a journal's database. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._insert = (postgresql if store.dialect == "postgresql" else sqlite).insert

    def keep(self, user: str, name: str, good: GoodRun, now: float) -> bool:
        """Keep a good run in the place of the one before it. False: it is too large, and the one before it stays."""
        state = good.save()
        if not name or len(state) > MAX_STATE_BYTES:
            return False
        row = {"cluster": self._cluster, "job": _digest(clean(user), clean(name)), "time_s": now, "state": state}
        insert = self._insert(good_runs).values(row)
        newer = {"time_s": insert.excluded.time_s, "state": insert.excluded.state}
        mine = good_runs.c.cluster == self._cluster
        newest = select(good_runs.c.seq).where(mine).order_by(good_runs.c.time_s.desc(), good_runs.c.seq.desc())
        with self._store.writing() as db:
            db.execute(insert.on_conflict_do_update(index_elements=["cluster", "job"], set_=newer))
            border = newest.offset(MAX_GOOD_RUNS).limit(MAX_GOOD_RUNS)
            db.execute(delete(good_runs).where(good_runs.c.seq.in_(db.scalars(border).all())))
        return True

    def of(self, attempt: AttemptId) -> GoodRun | None:
        """The last good run of the job of `attempt`; None where none is known. Raises `InputError` if damaged."""
        here = and_(jobs.c.cluster == self._cluster, jobs.c.job_id == clean(attempt.job_id))
        with self._store.reading() as db:
            job = db.execute(select(jobs.c.user, jobs.c.name).where(here)).one_or_none()
            if job is None:
                return None
            same = and_(good_runs.c.cluster == self._cluster, good_runs.c.job == _digest(job.user, job.name))
            state = db.scalar(select(good_runs.c.state).where(same))
        return None if state is None else GoodRun.load(bytes(state), f"the good run of {job.user}'s {job.name!r}")


def _digest(user: str, name: str) -> str:
    return hashlib.sha256(f"{user}\0{name}".encode()).hexdigest()
