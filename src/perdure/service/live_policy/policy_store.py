"""What the policy in force has done, and what it needs of the past: in the journal's database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict
from sqlalchemy import case, delete, func, insert, select, update

from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.outcome import JobLife, PolicyPromise, PolicyTerm
from perdure.live_policy.policies import thinned
from perdure.live_policy.queue_view import Ran
from perdure.model.actions import Preempt
from perdure.model.clean_text import clean
from perdure.model.jobs import JobSize
from perdure.service.store.database import Store
from perdure.service.store.queries.reader import Reader
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import actions, attempts, jobs, policy_jobs, policy_nice, policy_sizes, policy_terms
from perdure.waits.queue import QueuedJob

AT_ONCE = 500  # names in one statement
MOST_SERVICES = 5_000  # of past jobs, the newest
_PREEMPT = str(Preempt.__struct_config__.tag)
_DONE, _OPEN, _IN_VAIN = ("done",), ("planned", "started"), ("expired", "shadow")
FORGOTTEN_S = 30.0  # from a preemption to a look that must not show the same start any more
OVER = ("completed", "failed", "cancelled")
T = TypeVar("T")


class KeptNice(NamedTuple):
    """What a job had before the policy changed its place, and whose job it was."""

    nice: int
    user: str


class KeptSize(NamedTuple):
    """What a job asked for before the policy changed it, and whose job it was."""

    size: JobSize
    user: str


class PastPreemptions(NamedTuple):
    """How often each job was put back, which are on their way, and how often it was planned in vain."""

    done: Mapping[str, int]
    open: Collection[str]
    in_vain: Mapping[str, int]


class PolicyStore:
    """The part of a journal's database that is about the policy in force. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self.cluster = store, cluster
        self._reader = Reader(store.engine, cluster)

    def nice(self) -> dict[str, KeptNice]:
        """By job."""
        p = policy_nice.c
        rows = self._reader.all(select(p.job_id, p.nice, p.user).where(p.cluster == self.cluster))
        return {row.job_id: KeptNice(row.nice, row.user) for row in rows}

    def keep_nice(self, told: Iterable[QueuedJob], now: float) -> None:
        """Note what jobs have that have no entry yet. Raises `StateError`."""
        rows = [
            {"cluster": self.cluster, "job_id": job.job_id, "user": clean(job.user), "nice": job.nice, "noted_s": now}
            for job in told
        ]
        if rows:
            with self._store.writing() as db:
                db.execute(insert(policy_nice), rows)

    def forget_nice(self, job_ids: Collection[str]) -> None:
        """Drop entries. Raises `StateError`."""
        p = policy_nice.c
        if job_ids:
            with self._store.writing() as db:
                for some in _parts(job_ids):
                    db.execute(delete(policy_nice).where(p.cluster == self.cluster, p.job_id.in_(some)))

    def sizes(self) -> dict[str, KeptSize]:
        """By job."""
        p = policy_sizes.c
        rows = self._reader.all(select(policy_sizes).where(p.cluster == self.cluster))
        return {
            row.job_id: KeptSize(JobSize(*(getattr(row, name) for name in JobSize.__struct_fields__)), row.user)
            for row in rows
        }

    def keep_sizes(self, told: Mapping[str, KeptSize], now: float) -> None:
        """Note what jobs ask for that have no entry yet. Raises `StateError`."""
        rows = [
            {"cluster": self.cluster, "job_id": job_id, "user": clean(each.user), "noted_s": now, **asdict(each.size)}
            for job_id, each in told.items()
        ]
        if rows:
            with self._store.writing() as db:
                db.execute(insert(policy_sizes), rows)

    def forget_sizes(self, job_ids: Collection[str]) -> None:
        """Drop entries. Raises `StateError`."""
        p = policy_sizes.c
        if job_ids:
            with self._store.writing() as db:
                for some in _parts(job_ids):
                    db.execute(delete(policy_sizes).where(p.cluster == self.cluster, p.job_id.in_(some)))

    def past(self, since_s: float) -> EndedJobs:
        """What a policy that plans in rounds knows of jobs that ended since an instant, the newest."""
        a, j = attempts.c, jobs.c
        limit = j.payload["walltime_s"].as_float()
        over = (
            select(
                j.submit_s, limit.label("walltime_s"), func.min(a.start_s).label("start_s"),
                func.max(a.end_s).label("end_s"), func.sum(a.end_s - a.start_s).label("ran_s"),
            )
            .join(attempts, (a.job_id == j.job_id) & (a.cluster == j.cluster))
            .where(self._reader.owns(jobs), j.state.in_(OVER), j.gpus > 0, a.end_s > since_s, of_this_job(attempts))
            .group_by(j.job_id, j.submit_s, limit)
            .order_by(func.max(a.end_s).desc())
            .limit(MOST_SERVICES)
        )  # fmt: skip
        rows = [row for row in self._reader.all(over) if row.ran_s and row.ran_s > 0]
        return EndedJobs(
            [(min(row.submit_s, row.start_s), row.end_s) for row in rows],
            thinned([min(1.0, row.ran_s / row.walltime_s) for row in rows if row.walltime_s]),
            thinned([row.ran_s for row in rows]),
        )

    def most_gpus(self, job_ids: Collection[str]) -> dict[str, int]:
        """On how many GPUs each job has run, at most; without those that have not run."""
        a, found = attempts.c, dict[str, int]()
        for some in _parts(job_ids):
            query = select(a.job_id, func.max(a.gpus).label("gpus")).group_by(a.job_id)
            own = a.cluster == self.cluster, a.job_id.in_(some), of_this_job(attempts)
            rows = self._reader.all(query.where(*own))
            found |= {row.job_id: row.gpus for row in rows if row.gpus}
        return found

    def term(self) -> PolicyTerm | None:
        """The latest, whether it goes on or not."""
        t = policy_terms.c
        query = select(policy_terms).where(t.cluster == self.cluster).order_by(t.seq.desc()).limit(1)
        row = next(iter(self._reader.all(query)), None)
        if row is None:
            return None
        promise = msgspec.json.decode(row.promise, type=PolicyPromise) if row.promise else None
        return PolicyTerm(row.policy, row.since_s, row.until_s, promise)

    def begin_term(self, term: PolicyTerm) -> None:
        """Raises `StateError`."""
        promise = msgspec.json.encode(term.promise).decode() if term.promise else ""
        row = {"cluster": self.cluster, "policy": term.policy, "since_s": term.since_s, "promise": promise}
        with self._store.writing() as db:
            db.execute(insert(policy_terms), [row])

    def end_term(self, now: float) -> None:
        """Raises `StateError`."""
        t = policy_terms.c
        with self._store.writing() as db:
            db.execute(update(policy_terms).where(t.cluster == self.cluster, t.until_s.is_(None)).values(until_s=now))

    def note_jobs(self, told: Iterable[QueuedJob]) -> None:
        """Note who takes part, once each; who has the id of an earlier job takes its place. Raises `StateError`."""
        came = {clean(job.job_id): job.submit_s for job in told}
        p, known = policy_jobs.c, set[str]()
        for some in _parts(came):
            own = p.cluster == self.cluster, p.job_id.in_(some), of_this_job(policy_jobs)
            query = select(p.job_id).where(*own)
            known |= {row.job_id for row in self._reader.all(query)}
        new = [job_id for job_id in came if job_id not in known]
        rows = [{"cluster": self.cluster, "job_id": job_id, "came_s": came[job_id]} for job_id in new]
        if rows:
            with self._store.writing() as db:
                for some in _parts(new):
                    db.execute(delete(policy_jobs).where(p.cluster == self.cluster, p.job_id.in_(some)))
                db.execute(insert(policy_jobs), rows)

    def lives(self, term: PolicyTerm) -> list[JobLife]:
        """Of the jobs that came in a term and took part, the latest."""
        a, j, p = attempts.c, jobs.c, policy_jobs.c
        ended_s = case((j.state.in_(OVER), func.max(a.end_s)))
        query = (
            select(p.came_s, j.state, func.min(a.start_s).label("started_s"), ended_s.label("ended_s"))
            .join(jobs, (j.cluster == p.cluster) & (j.job_id == p.job_id))
            .outerjoin(attempts, (a.cluster == p.cluster) & (a.job_id == p.job_id) & of_this_job(attempts))
            .where(p.cluster == self.cluster, p.came_s >= term.since_s, of_this_job(policy_jobs))
            .group_by(p.job_id, p.came_s, j.state)
            .order_by(p.came_s.desc())
            .limit(MOST_SERVICES)
        )
        if term.until_s is not None:
            query = query.where(p.came_s < term.until_s)
        rows = self._reader.all(query)  # without those that were cancelled while they waited
        return [
            JobLife(row.came_s, row.started_s, row.ended_s)
            for row in rows
            if row.started_s is not None or row.state not in OVER
        ]

    def ran(self, job_ids: Collection[str]) -> dict[str, list[Ran]]:
        """The spans in which jobs ran before, of attempts that are over."""
        a = attempts.c
        found: dict[str, list[Ran]] = {}
        for some in _parts(job_ids):
            query = select(a.job_id, a.start_s, a.end_s).where(
                a.cluster == self.cluster, a.job_id.in_(some), a.end_s.is_not(None), of_this_job(attempts)
            )
            for row in self._reader.all(query):
                found.setdefault(row.job_id, []).append((row.start_s, row.end_s))
        return found

    def preemptions(self, running: Mapping[str, float], now_s: float) -> PastPreemptions:
        """What was done to some jobs that run, each since an instant.

        Where a job runs on, long after it was put back, its manager has forgotten that, and nothing came of it.
        """
        a, on_their_way = actions.c, set()
        done: dict[str, int] = {}
        in_vain: dict[str, int] = {}
        for some in _parts(running):
            own = a.cluster == self.cluster, a.job_id.in_(some), a.kind == _PREEMPT, of_this_job(actions)
            for row in self._reader.all(select(a.job_id, a.state, a.incarnation, a.ended_s).where(*own)):
                if row.state in _OPEN:
                    on_their_way.add(row.job_id)
                is_forgotten = row.incarnation == running[row.job_id] and now_s > (row.ended_s or now_s) + FORGOTTEN_S
                is_in_vain = row.state in _IN_VAIN or (row.state in _DONE and is_forgotten)
                counts = in_vain if is_in_vain else done if row.state in _DONE else {}
                counts[row.job_id] = counts.get(row.job_id, 0) + 1
        return PastPreemptions(done, on_their_way, in_vain)

    def preempted_since(self, since_s: float) -> list[float]:
        """When jobs were put back by the policy."""
        a = actions.c
        query = select(a.started_s).where(self._reader.owns(actions), a.started_s > since_s, a.kind == _PREEMPT)
        return [row.started_s for row in self._reader.all(query)]

    def services(self) -> list[float]:
        """GPU-seconds that jobs took which are over, of the newest."""
        a, j = attempts.c, jobs.c
        over = select(j.job_id).where(self._reader.owns(jobs), j.state.in_(OVER))
        newest = over.order_by(j.seq.desc()).limit(MOST_SERVICES).subquery()
        service = func.sum((a.end_s - a.start_s) * a.gpus).label("service")
        query = (
            select(service)
            .join(newest, newest.c.job_id == a.job_id)
            .where(a.cluster == self.cluster, a.end_s.is_not(None), a.gpus > 0, of_this_job(attempts))
            .group_by(a.job_id)
        )
        return [row.service for row in self._reader.all(query) if row.service > 0]


def _parts(names: Collection[str]) -> Iterator[list[str]]:
    listed = [clean(name) for name in names]
    for begin in range(0, len(listed), AT_ONCE):
        yield listed[begin : begin + AT_ONCE]
