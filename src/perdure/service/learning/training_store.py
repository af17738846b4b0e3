"""The training store: what triage read of each failure, what persons said of it, and the training rounds.

Bounded: readings beyond `MAX_READINGS` and older than their job's rows are dropped, models beyond the newest few.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Text, and_, cast, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from perdure.errors import ClusterError, NotFound, NotPermitted
from perdure.model.clean_text import clean
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.history import WALLTIME_FINGERPRINT
from perdure.service.learning.outcome_store import AsideIndex, JobOutcome, OutcomeStore
from perdure.service.store import codec
from perdure.service.store.database import Store
from perdure.service.store.queries.learning import word_of
from perdure.service.store.schema import attempts, corrections, readings, terms
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.evidence.rule import Cause
from perdure.triage.judge import Finding
from perdure.triage.learning.examples import LabelSource, TrainingExample
from perdure.triage.learning.outcomes import Trial, labels
from perdure.triage.learning.promise import ProvenVerdict
from perdure.triage.learning.update import RoundResult
from perdure.triage.learning.verdict_changes import ChangedBy, ChangedJobs, VerdictChange
from perdure.triage.verdict import CORRECTED, Label, Verdict

MAX_READINGS = 20_000
MAX_PROVEN = 2_000  # readings whose outcomes are held against what was promised, the newest
MAX_RECENT = 100  # failures with one message whose jobs are looked at again, the newest
MAX_TAUGHT = 5_000  # the newest readings, of which training examples are made
KEPT_ALIKE, KEPT_OF_MESSAGE = 5, 25  # excerpts of failures with one message: of one user, and of all
KEPT_MODELS = 5
_AT_ONCE = 400  # jobs a query


@dataclass(frozen=True, slots=True)
class Read:
    """What triage read of a failed attempt, and what it made of it."""

    attempt: AttemptId
    time_s: float
    user: str
    fingerprint: str
    category: str
    reading: Reading
    message: str = ""  # its root line, normalised
    change: VerdictChange | None = None  # what the site's learning made of the verdict

    @classmethod
    def of(cls, attempt: Attempt, found: Finding, now: float, change: VerdictChange | None = None) -> Read:
        """What was found in the log of `attempt`."""
        verdict = found.verdict
        about = (verdict.fingerprint, verdict.category, found.reading, found.message)
        return cls(attempt.id, now, attempt.user, *about, change)


@dataclass(frozen=True, slots=True)
class Correction:
    """A person's word on a failure: it outranks triage on what looks alike."""

    attempt: AttemptId
    time_s: float
    user: str  # whose job it was
    fingerprint: str
    transient: bool
    by: str
    for_all: bool  # an operator's: it holds for all users' jobs, else for those of the same user
    confirmed_by: str = ""  # the operator who made a user's word hold for all

    @property
    def is_of_operator(self) -> bool:
        """Whether an operator stands for it: only then it holds for all, and is taught."""
        return self.for_all or bool(self.confirmed_by)

    def holds_for(self, fingerprint: str, user: str) -> bool:
        return bool(fingerprint) and fingerprint == self.fingerprint and (self.is_of_operator or user == self.user)


class TrainingStore:
    """The learning part of a journal's database. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self.cluster = cluster
        self.outcomes = OutcomeStore(store, cluster)
        self._insert = (postgresql if store.dialect == "postgresql" else sqlite).insert

    # -- readings

    def keep(self, read: Read) -> None:
        """Write a reading down; the first of an attempt stays, with what its last verdict changed to.

        Of a message that was read often enough, of one user or of all, no excerpt is kept: no more of them are taught.
        """
        is_known = bool(read.fingerprint) and self._is_known(read)
        row = {
            **self._of(read.attempt),
            "time_s": read.time_s,
            "user": clean(read.user),
            "fingerprint": read.fingerprint,
            "category": clean(read.category),
            "excerpt": "",
            "packed": None if is_known else zlib.compress(clean(read.reading.excerpt).encode("utf-8", "replace")),
            "causes": json.dumps([cause.name for cause in read.reading.causes]),
            "message": clean(read.message),
            **_columns(read.change),
        }
        insert = self._insert(readings)
        changed = {name: insert.excluded[name] for name in _columns(None)}
        keys = ["cluster", "job_id", "incarnation"]
        with self._store.writing() as db:
            db.execute(insert.on_conflict_do_update(index_elements=keys, set_=changed), row)

    def _is_known(self, read: Read) -> bool:
        kept = (readings.c.fingerprint == read.fingerprint, readings.c.packed.is_not(None))
        query = select(func.count().filter(readings.c.user == clean(read.user)), func.count())
        with self._store.reading() as db:
            mine, every = db.execute(query.where(readings.c.cluster == self.cluster, *kept)).one()
        return mine >= KEPT_ALIKE or every >= KEPT_OF_MESSAGE

    def changes(self, of_user: str = "") -> dict[str, list[ChangedJobs]]:
        """The verdicts that learning changed, by fingerprint; of one user's jobs where `of_user` is named."""
        columns = (readings.c.fingerprint, readings.c.was, readings.c.became, readings.c.changed_by)
        here = [readings.c.cluster == self.cluster, readings.c.was.is_not(None)]
        if of_user:
            here.append(readings.c.user == clean(of_user))
        counts = (func.count(readings.c.job_id.distinct()).label("jobs"), func.min(readings.c.time_s).label("since_s"))
        found: dict[str, list[ChangedJobs]] = {}
        with self._store.reading() as db:
            for row in db.execute(select(*columns, *counts).where(*here).group_by(*columns)):
                change = VerdictChange(Label(row.was), Label(row.became), ChangedBy(row.changed_by))
                found.setdefault(row.fingerprint, []).append(ChangedJobs(change, row.jobs, row.since_s))
        return found

    def latest_of(self, fingerprints: Iterable[str]) -> dict[str, tuple[str, float]]:
        """Of each message its words, and when it was read last."""
        asked = (readings.c.cluster == self.cluster, readings.c.fingerprint.in_(sorted(fingerprints)))
        newest = select(func.max(readings.c.seq)).where(*asked).group_by(readings.c.fingerprint)
        query = select(readings.c.fingerprint, readings.c.message, readings.c.time_s).where(readings.c.seq.in_(newest))
        with self._store.reading() as db:
            return {row.fingerprint: (row.message, row.time_s) for row in db.execute(query)}

    def training_examples(self, causes: Mapping[str, Cause]) -> list[TrainingExample]:
        """All that the site has learnt: what outcomes prove, and what persons said. `causes` are the rules' by name."""
        rows = self._readings()
        proved: dict[AttemptId, bool] = {}
        for trials in self._trials({row.job_id for row in rows}):
            proved |= labels(trials)
        said = {each.attempt: each for each in self.corrections() if each.is_of_operator}
        aside = AsideIndex(self.outcomes.set_aside())
        found = []
        for row in rows:
            if row.packed is None and not row.excerpt:
                continue
            attempt = AttemptId(self.cluster, row.job_id, row.incarnation)
            known = tuple(causes[name] for name in json.loads(row.names) if name in causes)
            about = (attempt, row.time_s, row.user, row.fingerprint, Reading(_excerpt(row), known))
            if attempt in said:
                found.append(TrainingExample(*about, said[attempt].transient, LabelSource.PERSON))
            elif attempt in proved and not aside.holds(row.user, row.fingerprint, row.time_s):
                found.append(TrainingExample(*about, proved[attempt], LabelSource.OUTCOME))
        return found

    def note_outcomes(self, fingerprint: str | None = None) -> None:
        """Write down what retries have proved, of one message or of all that were read lately."""
        columns = (readings.c.job_id, readings.c.fingerprint, readings.c.time_s, readings.c.user, readings.c.message)
        here = [readings.c.cluster == self.cluster, readings.c.fingerprint != ""]
        if fingerprint is not None:
            here.append(readings.c.fingerprint == fingerprint)
        most = MAX_TAUGHT if fingerprint is None else MAX_RECENT
        with self._store.reading() as db:
            rows = db.execute(select(*columns).where(*here).order_by(readings.c.seq.desc()).limit(most)).all()
        read = {(row.job_id, row.fingerprint): row for row in rows}
        found: dict[tuple[str, str], JobOutcome] = {}
        for trials in self._trials({row.job_id for row in rows}):
            proved = labels(trials)
            for trial in trials:
                key = (trial.attempt.job_id, trial.fingerprint)
                if trial.attempt in proved and (row := read.get(key)) is not None:
                    passed = proved[trial.attempt] or (key in found and found[key].passed)
                    found[key] = JobOutcome(*key, row.time_s, row.user, passed, row.message)
        self.outcomes.note(found.values())

    def jobs_like(self, fingerprint: str, user: str, job_id: str) -> int:
        """How many jobs of `user` failed with a message, `job_id` among them; each other user counts as one.

        As far as is remembered. So nobody uses up the probes of others by printing their message.
        """
        here = (readings.c.cluster == self.cluster, readings.c.fingerprint == fingerprint)
        mine = readings.c.user == clean(user)
        own = select(func.count(readings.c.job_id.distinct())).where(*here, mine, readings.c.job_id != clean(job_id))
        others = select(func.count(readings.c.user.distinct())).where(*here, ~mine)
        with self._store.reading() as db:
            return 1 + (db.scalar(own) or 0) + (db.scalar(others) or 0)

    def proven(self) -> list[ProvenVerdict]:
        """The newest verdicts of which the truth is known since: by what retries did, or by a person's word."""
        newest = select(readings.c.job_id, readings.c.time_s, readings.c.incarnation, readings.c.user)
        query = newest.where(readings.c.cluster == self.cluster).order_by(readings.c.seq.desc()).limit(MAX_PROVEN)
        with self._store.reading() as db:
            judged = {AttemptId(self.cluster, row.job_id, row.incarnation): row for row in db.execute(query)}
        truths = {each.attempt: each.transient for each in self.corrections() if each.is_of_operator}
        aside = AsideIndex(self.outcomes.set_aside())
        found = []
        for trials in self._trials({attempt.job_id for attempt in judged}):
            truth = labels(trials) | truths
            found += [
                ProvenVerdict(t.attempt, row.time_s, t.fingerprint, t.p_transient, truth[t.attempt], row.user)
                for t in trials
                if (row := judged.get(t.attempt)) is not None and t.attempt in truth and t.p_transient is not None
                if not aside.holds(row.user, t.fingerprint, row.time_s)
            ]
        return found

    def _readings(self) -> Sequence[Any]:
        query = (
            select(readings, cast(readings.c.causes, Text).label("names"))
            .where(readings.c.cluster == self.cluster)
            .order_by(readings.c.seq.desc())
            .limit(MAX_TAUGHT)
        )
        with self._store.reading() as db:
            return db.execute(query).all()

    def _trials(self, job_ids: Iterable[str]) -> Iterator[list[Trial]]:
        """The attempts of each job, in order."""
        columns = (cast(attempts.c.payload, Text), cast(attempts.c.verdict, Text))
        wanted = sorted(job_ids)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            here = and_(attempts.c.cluster == self.cluster, attempts.c.job_id.in_(some))
            query = select(attempts.c.job_id, *columns).where(here).order_by(attempts.c.job_id, attempts.c.incarnation)
            of_job: dict[str, list[Trial]] = {}
            with self._store.reading() as db:
                for job_id, attempt, verdict in db.execute(query):
                    of_job.setdefault(job_id, []).append(_trial(codec.ATTEMPT.decode(attempt), verdict))
            yield from of_job.values()

    # -- persons

    def correct(self, attempt: AttemptId, transient: bool, by: str, for_all: bool, now: float) -> Correction:
        """Write a person's word on a failed attempt down; the latest counts, but for all an operator's.

        Raises `NotFound`, and `NotPermitted` where an operator has spoken already.
        """
        with self._store.writing() as db:
            found = db.execute(select(readings).where(*self._at(readings, attempt))).one_or_none()
            if found is None:
                where, what = f"job {attempt.job_id}", f"attempt {attempt.incarnation} has no verdict to correct"
                raise NotFound(where, what, "See `perdure why JOBID` for the attempts that were judged")
            if not for_all and self._is_of_operator(db, attempt):
                raise _spoken(attempt)
            said = Correction(attempt, now, found.user, found.fingerprint, transient, clean(by), for_all)
            row = {key: value for key, value in asdict(said).items() if key != "attempt"}
            insert = self._insert(corrections).values(**self._of(attempt), **row)
            changed = {name: insert.excluded[name] for name in row}
            db.execute(insert.on_conflict_do_update(index_elements=["cluster", "job_id", "incarnation"], set_=changed))
        return said

    def confirm(self, attempt: AttemptId, word: str, by: str) -> bool:
        """Let a user's word hold for all, as an operator says who saw `word`. False: no correction was stored.

        Raises `ClusterError` where it is another word by now.
        """
        here = self._at(corrections, attempt)
        with self._store.writing() as db:
            found = db.execute(select(corrections).where(*here)).one_or_none()
            if found is None:
                return False
            if word != word_of(attempt.job_id, attempt.incarnation, found.time_s, found.transient, found.by):
                what, fix = "what was said of it has changed since you looked", "Look again: perdure learn"
                raise ClusterError(f"job {attempt.job_id}", what, fix)
            db.execute(update(corrections).where(*here).values(confirmed_by=clean(by)))
        return True

    def _is_of_operator(self, db: Any, attempt: AttemptId) -> bool:
        query = select(corrections.c.for_all, corrections.c.confirmed_by).where(*self._at(corrections, attempt))
        found = db.execute(query).one_or_none()
        return found is not None and (found.for_all or bool(found.confirmed_by))

    def withdraw(self, attempt: AttemptId, for_all: bool = True) -> bool:
        """Take a correction back. False: no correction was stored. Raises `NotPermitted` as `correct` does."""
        with self._store.writing() as db:
            if not for_all and self._is_of_operator(db, attempt):
                raise _spoken(attempt)
            return db.execute(delete(corrections).where(*self._at(corrections, attempt))).rowcount == 1

    def corrections(self) -> list[Correction]:
        """All that stand, the newest first."""
        query = select(corrections).where(corrections.c.cluster == self.cluster).order_by(corrections.c.time_s.desc())
        with self._store.reading() as db:
            return [
                Correction(
                    AttemptId(self.cluster, row.job_id, row.incarnation),
                    row.time_s, row.user, row.fingerprint, row.transient, row.by, row.for_all, row.confirmed_by,
                )
                for row in db.execute(query)
            ]  # fmt: skip

    # -- training

    def note_round(self, result: RoundResult, digest: str, model: bytes | None, now: float) -> None:
        """Write a training round down, with the model that it led to, if it was adopted."""
        row = {"cluster": self.cluster, "time_s": now, "adopted": result.adopted, "lessons": digest, "model": model}
        with self._store.writing() as db:
            db.execute(terms.insert(), {**row, "payload": json.dumps(asdict(result))})
            newest = select(terms.c.seq).where(terms.c.cluster == self.cluster, terms.c.model.is_not(None))
            kept = newest.order_by(terms.c.seq.desc()).limit(KEPT_MODELS)
            old = and_(terms.c.cluster == self.cluster, terms.c.model.is_not(None), terms.c.seq.not_in(kept))
            db.execute(update(terms).where(old).values(model=None))

    def last_round(self) -> tuple[str, Mapping[str, Any]] | None:
        """The digest of the latest training round's examples, and its result; None before the first."""
        query = select(terms.c.lessons, cast(terms.c.payload, Text)).where(terms.c.cluster == self.cluster)
        with self._store.reading() as db:
            found = db.execute(query.order_by(terms.c.seq.desc()).limit(1)).one_or_none()
        return (found[0], json.loads(found[1])) if found else None

    def rounds(self) -> int:
        """The number of the latest training round; 0 before the first."""
        with self._store.reading() as db:
            return db.scalar(select(func.max(terms.c.seq)).where(terms.c.cluster == self.cluster)) or 0

    def model(self) -> bytes | None:
        """The model that was adopted last; None where none was, or that was taken back."""
        mine = select(terms.c.model).where(terms.c.cluster == self.cluster, terms.c.model.is_not(None))
        with self._store.reading() as db:
            return db.scalar(mine.order_by(terms.c.seq.desc()).limit(1))

    def in_use(self) -> int:
        """The number of the training round whose model is in use; 0: the one that came with Perdure is."""
        mine = (terms.c.cluster == self.cluster, terms.c.model.is_not(None))
        with self._store.reading() as db:
            return db.scalar(select(func.max(terms.c.seq)).where(*mine)) or 0

    def roll_back(self, number: int) -> bool:
        """Forget the model of a training round, so that the one before it counts. False: there is none."""
        here = (terms.c.cluster == self.cluster, terms.c.seq == number, terms.c.model.is_not(None))
        with self._store.writing() as db:
            return db.execute(update(terms).where(*here).values(model=None)).rowcount == 1

    def prune(self) -> int:
        """Delete the oldest readings beyond `MAX_READINGS`, but those of attempts that were corrected; return how many.

        What only looks like a corrected one goes: the correction holds without it, and anybody can print its line.
        """
        kept = select(readings.c.seq).where(readings.c.cluster == self.cluster)
        border = kept.order_by(readings.c.seq.desc()).offset(MAX_READINGS).limit(1)
        with self._store.writing() as db:
            seq = db.scalar(border)
            if seq is None:
                return 0
            same = [corrections.c[name] == readings.c[name] for name in ("cluster", "job_id", "incarnation")]
            said = select(corrections.c.job_id).where(*same).exists()
            old = and_(readings.c.cluster == self.cluster, readings.c.seq <= seq, ~said)
            return db.execute(delete(readings).where(old)).rowcount

    def _of(self, attempt: AttemptId) -> dict[str, Any]:
        return {"cluster": self.cluster, "job_id": clean(attempt.job_id), "incarnation": attempt.incarnation}

    def _at(self, table: Any, attempt: AttemptId) -> list[Any]:
        return [table.c[name] == value for name, value in self._of(attempt).items()]


def _columns(change: VerdictChange | None) -> dict[str, str | None]:
    if change is None:
        return {"was": None, "became": None, "changed_by": None}
    return {"was": change.was.value, "became": change.became.value, "changed_by": change.by.value}


def _excerpt(row: Any) -> str:
    return zlib.decompress(row.packed).decode() if row.packed is not None else str(row.excerpt)


def _spoken(attempt: AttemptId) -> NotPermitted:
    return NotPermitted(f"job {attempt.job_id}", "an operator has said what its failure was", "Ask an operator")


def _trial(attempt: Attempt, verdict_text: str | None) -> Trial:
    verdict = codec.VERDICT.decode(verdict_text) if verdict_text else None
    fingerprint = verdict.fingerprint if verdict else ""
    nobodys = attempt.state in (AttemptState.PREEMPTED, AttemptState.CANCELLED) or fingerprint == WALLTIME_FINGERPRINT
    proves = attempt.state.is_failure and not nobodys
    return Trial(
        attempt.id,
        frozenset(attempt.nodes),
        attempt.elapsed_s,
        attempt.state is AttemptState.COMPLETED,
        proves,
        fingerprint,
        verdict.category if verdict else "",
        verdict.p_transient if verdict and not is_corrected(verdict) else None,
    )


def is_corrected(verdict: Verdict) -> bool:
    """Whether a person's word on a failure that looked alike stands in it for triage's own."""
    return any(line.rule == CORRECTED for line in verdict.evidence)
