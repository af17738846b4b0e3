"""What retries proved of each message, one row a job: who saw it, whether it passed, and what of it is set aside.

Rows outlive the jobs that they are of, as learning is slower than the journal forgets. Bounded: the `MAX_OUTCOMES`
newest, and of one user `MAX_OF_USER`, so that nobody crowds out what others saw. What is set aside (of a user, a
message, a day) counts for nothing until it is approved again; nothing is deleted for it. The service itself sets users
aside whom others contradict on message after message, with its reason.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from perdure.errors import TooMany
from perdure.model.clean_text import clean
from perdure.service.store.database import Store
from perdure.service.store.schema import outcomes, set_aside
from perdure.triage.learning.contradicted import Contradicted, Witnessed, contradicted
from perdure.triage.learning.testimony import Outcomes

MAX_OUTCOMES = 20_000
MAX_OF_USER = 2_000
MAX_SET_ASIDE = 1_000
DAY_S = 86400.0


class Aside(StrEnum):
    """By what outcomes are set aside."""

    USER = "user"
    MESSAGE = "message"  # its fingerprint
    DAY = "day"  # of the failure, YYYY-MM-DD in UTC
    TRAINING = "training"  # no new model is adopted, since one was taken back
    TRUSTED = "trusted"  # a user whom an operator let count again: what they taught before is not held against them


SERVICE = "perdure"
"""Who sets a user aside without an operator."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """One thing that is not learnt from, and who said so."""

    kind: Aside
    value: str
    time_s: float
    by: str
    reason: str = ""  # of the service itself; "" where a person set it aside
    since_seq: int = 0  # of a trusted user: the newest outcome of all when they were let count again

    @property
    def is_automatic(self) -> bool:
        return bool(self.reason)

    @property
    def is_shown(self) -> bool:
        """Whether it is something from which nothing is learnt."""
        return self.kind not in (Aside.TRAINING, Aside.TRUSTED)


class AsideIndex:
    """What is set aside, to be asked about thousands of outcomes: a lookup each, as there may be a thousand things."""

    def __init__(self, aside: Iterable[SetAside]) -> None:
        self._held = {(one.kind, one.value) for one in aside}

    def holds(self, user: str, fingerprint: str, time_s: float) -> bool:
        """Whether what was proved by a job of `user` at an instant is set aside."""
        of = ((Aside.USER, user), (Aside.MESSAGE, fingerprint), (Aside.DAY, day_of(time_s)))
        return not self._held.isdisjoint(of)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What one job's retries proved of one message."""

    job_id: str
    fingerprint: str
    time_s: float  # of the failure
    user: str
    passed: bool  # else it failed alike on other nodes
    message: str
    seq: int = field(default=0, compare=False)  # its row's; 0 before it is written


class OutcomeStore:
    """The outcomes in a journal's database. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._insert = (postgresql if store.dialect == "postgresql" else sqlite).insert

    def note(self, found: Iterable[JobOutcome]) -> None:
        """Write outcomes down; the latest proof of a job counts."""
        rows = [
            {**asdict(each), "cluster": self._cluster, "user": clean(each.user), "message": clean(each.message)}
            for each in found
        ]
        for row in rows:
            del row["seq"]  # the database counts
        if not rows:
            return
        insert = self._insert(outcomes)
        changed = {"passed": insert.excluded.passed}
        keys = ["cluster", "job_id", "fingerprint"]
        upsert = insert.on_conflict_do_update(
            index_elements=keys, set_=changed, where=outcomes.c.passed != insert.excluded.passed
        )
        with self._store.writing() as db:
            db.execute(upsert, rows)

    def by_user(self, fingerprint: str) -> dict[str, Outcomes]:
        """The outcomes of one message that count, by user."""
        aside = self.set_aside()
        if any(one.kind is Aside.MESSAGE and one.value == fingerprint for one in aside):
            return {}
        here = [outcomes.c.cluster == self._cluster, outcomes.c.fingerprint == fingerprint]
        here.append(outcomes.c.user.not_in([one.value for one in aside if one.kind is Aside.USER]))
        for one in aside:
            if one.kind is Aside.DAY and (start_s := start_of(one.value)) is not None:
                here.append(~outcomes.c.time_s.between(start_s, start_s + DAY_S - 1e-6))
        query = select(outcomes.c.user, outcomes.c.passed, func.count().label("jobs")).where(*here)
        found: dict[str, Outcomes] = {}
        with self._store.reading() as db:
            for row in db.execute(query.group_by(outcomes.c.user, outcomes.c.passed)):
                had = found.get(row.user, Outcomes())
                found[row.user] = replace(had, **{"passed" if row.passed else "failed": row.jobs})
        return found

    def newest(self, limit: int = MAX_OUTCOMES) -> list[JobOutcome]:
        """The newest outcomes, whether or not they count."""
        query = select(outcomes).where(outcomes.c.cluster == self._cluster).order_by(outcomes.c.seq.desc())
        with self._store.reading() as db:
            return [_outcome(row) for row in db.execute(query.limit(limit))]

    def prune(self) -> int:
        """Delete the oldest beyond `MAX_OUTCOMES`; return how many."""
        mine = outcomes.c.cluster == self._cluster
        newest = select(outcomes.c.seq).where(mine).order_by(outcomes.c.seq.desc())
        many = select(outcomes.c.user).where(mine).group_by(outcomes.c.user).having(func.count() > MAX_OF_USER)
        gone = 0
        with self._store.writing() as db:
            limits = [(outcomes.c.user == user, MAX_OF_USER) for user in db.scalars(many).all()]
            for which, most in (*limits, (mine, MAX_OUTCOMES)):
                border = db.scalar(newest.where(which).offset(most).limit(1))
                if border is not None:
                    gone += db.execute(delete(outcomes).where(mine, which, outcomes.c.seq <= border)).rowcount
        return gone

    # -- what is set aside

    def set_aside(self) -> list[SetAside]:
        """All that is, the newest first."""
        query = select(set_aside).where(set_aside.c.cluster == self._cluster).order_by(set_aside.c.time_s.desc())
        with self._store.reading() as db:
            rows = db.execute(query).all()
        return [SetAside(Aside(row.kind), row.value, row.time_s, row.by, row.reason, row.since_seq) for row in rows]

    def put_aside(self, kind: Aside, value: str, by: str, now: float, reason: str = "") -> None:
        """Learn nothing from that from now on, and no more from what it taught; `reason`: the service's own.

        Raises `TooMany` beyond `MAX_SET_ASIDE`: no older one is dropped in silence. That a model was taken back is
        always noted.
        """
        about = {"time_s": now, "by": clean(by), "reason": clean(reason)}
        row = {"cluster": self._cluster, "kind": kind.value, "value": clean(value), **about}
        mine = select(func.count()).select_from(set_aside).where(set_aside.c.cluster == self._cluster)
        mine = mine.where(set_aside.c.kind != Aside.TRUSTED.value)
        with self._store.writing() as db:
            is_new = db.scalar(mine.where(set_aside.c.kind == row["kind"], set_aside.c.value == row["value"])) == 0
            if kind is not Aside.TRAINING and is_new and (db.scalar(mine) or 0) >= MAX_SET_ASIDE:
                fix = "Approve what is no longer needed: perdure learn --approve KIND=VALUE"
                raise TooMany(f"{kind.value} {value}", f"{MAX_SET_ASIDE} things are set aside already", fix)
            insert = self._insert(set_aside).values(row)
            if reason:  # a person's outranks it
                db.execute(insert.on_conflict_do_nothing())
            else:
                keys = ["cluster", "kind", "value"]
                db.execute(insert.on_conflict_do_update(index_elements=keys, set_=about))

    def approve(self, kind: Aside, value: str, by: str, now: float) -> bool:
        """Let it count again. False: it was not set aside.

        What a user taught up to now is no reason any more for the service to set them aside by itself.
        """
        here = (set_aside.c.cluster == self._cluster, set_aside.c.kind == kind.value, set_aside.c.value == clean(value))
        with self._store.writing() as db:
            found = db.execute(delete(set_aside).where(*here)).rowcount == 1
            if found and kind is Aside.USER:
                self._trust(db, clean(value), clean(by), now)
        return found

    def _trust(self, db: Any, user: str, by: str, now: float) -> None:
        newest = db.scalar(select(func.max(outcomes.c.seq)).where(outcomes.c.cluster == self._cluster)) or 0
        about = {"time_s": now, "by": by, "since_seq": newest}
        row = {"cluster": self._cluster, "kind": Aside.TRUSTED.value, "value": user, **about}
        insert, keys = self._insert(set_aside).values(row), ["cluster", "kind", "value"]
        db.execute(insert.on_conflict_do_update(index_elements=keys, set_=about))
        trusted = (set_aside.c.cluster == self._cluster, set_aside.c.kind == Aside.TRUSTED.value)
        times = select(set_aside.c.time_s).where(*trusted).order_by(set_aside.c.time_s.desc())
        if (border := db.scalar(times.offset(MAX_SET_ASIDE).limit(1))) is not None:
            db.execute(delete(set_aside).where(*trusted, set_aside.c.time_s <= border))

    def contradicted(self) -> list[Contradicted]:
        """The users whose outcomes others contradict so often that they are to be set aside.

        Of a user who was let count again only the outcomes since; by the order of rows, as clocks are set back.
        """
        aside = self.set_aside()
        index = AsideIndex(aside)
        trusted = {one.value: one.since_seq for one in aside if one.kind is Aside.TRUSTED}
        counting = [each for each in self.newest() if not index.holds(each.user, each.fingerprint, each.time_s)]
        named = contradicted(_witnessed(counting))
        if not any(one.user in trusted for one in named):
            return named
        since = [each for each in counting if each.seq > trusted.get(each.user, 0)]
        again = [one for one in contradicted(_witnessed(since)) if one.user in trusted]
        return [one for one in named if one.user not in trusted] + again


def _witnessed(found: Iterable[JobOutcome]) -> Iterator[Witnessed]:
    return (Witnessed(each.fingerprint, each.user, each.passed, int(each.time_s // DAY_S)) for each in found)


def counted(found: Iterable[JobOutcome], aside: AsideIndex) -> dict[str, Outcomes]:
    """Outcomes of one message by user, without those that are set aside."""
    counts: dict[str, list[int]] = {}
    for each in found:
        if not aside.holds(each.user, each.fingerprint, each.time_s):
            counts.setdefault(each.user, [0, 0])[not each.passed] += 1
    return {user: Outcomes(passed, failed) for user, (passed, failed) in counts.items()}


def start_of(day: str) -> float | None:
    """The instant at which a day begins, in UTC; None for what is no day.

    >>> start_of("1970-01-02"), start_of("soon")
    (86400.0, None)
    """
    try:
        return datetime.datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return None


def is_day(value: str) -> bool:
    """Whether something is a day as `day_of` writes it.

    >>> is_day("2026-01-31"), is_day("2026-1-31"), is_day("soon")
    (True, False, False)
    """
    start_s = start_of(value)
    return start_s is not None and day_of(start_s) == value


def by_message(found: Iterable[JobOutcome]) -> Mapping[str, list[JobOutcome]]:
    """Outcomes by fingerprint, in the order in which the first of each comes."""
    grouped: dict[str, list[JobOutcome]] = {}
    for each in found:
        grouped.setdefault(each.fingerprint, []).append(each)
    return grouped


def day_of(time_s: float) -> str:
    """The day of an instant, in UTC.

    >>> day_of(0.0)
    '1970-01-01'
    """
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).date().isoformat()


def _outcome(row: Any) -> JobOutcome:
    return JobOutcome(row.job_id, row.fingerprint, row.time_s, row.user, row.passed, row.message, row.seq)
