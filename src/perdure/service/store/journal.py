"""The journal: what happened, what was decided, what was asked for, and the results.

What `record`, `begin` and `finish` acknowledge survives a kill and a power cut. All that the controller knows can be
read back from here, and an action is planned, begun and ended at most once, unless what was done does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, Select, and_, delete, select
from sqlalchemy import Row as Fetched

from perdure.coordination.chain import restored
from perdure.coordination.chain_state import Chain
from perdure.coordination.record import ExceptionRecord
from perdure.errors import NotFound
from perdure.model.actions import Action, NodeAction, OutcomeStatus
from perdure.model.clean_text import clean
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job, JobState
from perdure.model.nodes import Node
from perdure.model.observation import Known
from perdure.retry.history import Fleet
from perdure.service.core.case import Case, ControllerState
from perdure.service.core.controller import fleet_of
from perdure.service.core.messages import PERDURE, Effect
from perdure.service.store import codec, reads, rows
from perdure.service.store.database import Store
from perdure.service.store.rows import rows_of
from perdure.service.store.schema import actions, attempts, cases, events, exceptions, jobs
from perdure.service.store.writes import Writes

DAY_S = 86400.0
RECENT_S = 3600.0  # a job that ended this long before the last event may still be reported
NOT_AS_LEFT = "the job is not as it was left"
AGAIN_S = 900.0  # what did not hold may be carried out again for this long

_OVER_JOBS = [s.value for s in JobState if s.is_over]
_MEMORY: dict[str, codec.Codec[Any]] = {
    rows.SPENT: codec.SPENT,
    rows.UNSEEN: codec.UNSEEN,
    rows.MANAGER: codec.MANAGER,
}


class ActionState(StrEnum):
    """The state of an action."""

    PLANNED = "planned"
    STARTED = "started"  # handed to the resource manager, no answer yet
    DONE = "done"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"  # not begun in time
    SHADOW = "shadow"  # decided, and never meant to be carried out
    WITHHELD = "withheld"  # a person kept it from being begun

    @property
    def is_over(self) -> bool:
        return self not in (ActionState.PLANNED, ActionState.STARTED)

    @classmethod
    def of(cls, status: OutcomeStatus) -> ActionState:
        return cls(status.value)


_ENDED = [state.value for state in ActionState if state.is_over]


class ActionRow(Struct, frozen=True):
    """An action and its standing. `key` is the action's own, with ``~N`` after it where a person asked again."""

    key: str
    action: Action
    by: str
    reason: str
    state: ActionState
    detail: str
    created_s: float
    expires_s: float
    started_s: float | None = None
    ended_s: float | None = None
    exception_id: str = ""

    @property
    def attempt(self) -> AttemptId | None:
        return rows.subject_of(self.action)

    @property
    def automatic(self) -> bool:
        """True where Perdure, and no person, asked for it."""
        return self.by == PERDURE

    @property
    def orderer(self) -> str:
        """The person who asked for it; "" where Perdure did."""
        return "" if self.automatic else self.by

    def begun(self) -> ActionRow:
        """The same once it was begun."""
        return replace(self, state=ActionState.STARTED, detail="")


class Charge(NamedTuple):
    """One of Perdure's own actions: the instant at which it counts in the caps, its kind, and whose job it is about."""

    at_s: float
    kind: str
    user: str = ""
    node: str = ""  # or which node


class Journal:
    """The journal of one cluster. Safe to share between threads; one service has it open at a time."""

    def __init__(self, store: Store, cluster: str) -> None:
        self.cluster = cluster
        self._store = store
        self._write = Writes(store.engine.dialect)
        self._recall = reads.Recall(store.engine.dialect)

    @classmethod
    def open(cls, where: str | Path, cluster: str) -> Self:
        """Open the journal in a state directory, a ``*.db`` file or a PostgreSQL database (by URL).

        Raises as `Store.open` does.
        """
        return cls(Store.open(where, cluster), cluster)

    @property
    def store(self) -> Store:
        """The database itself, for what else is kept in it."""
        return self._store

    @property
    def engine(self) -> Engine:
        """For reading; its connections refuse to write."""
        return self._store.engine

    @property
    def where(self) -> str:
        """Path or URL, without a password."""
        return self._store.where

    def close(self) -> None:
        self._store.close()

    # -- what the controller asked for

    def record(self, effects: Iterable[Effect], before: ControllerState, after: ControllerState) -> None:
        """Write down the effects of one or more steps and what they changed of the state, as a whole or not at all.

        Facts known by their key, and actions planned already, are left as they are; so doing it twice is harmless.
        """
        batch = rows_of(effects, before, after)
        if batch:
            with self._store.writing() as db:
                self._write.all(db, batch)

    def restore(self) -> ControllerState:
        """The controller's state as the journal knows it."""
        with self._store.reading() as db:
            newest_s, remembered = self._newest_s(db), self._remembered(db)
            found_jobs = self._all(db, reads.JOBS, codec.JOB, since_s=newest_s - RECENT_S)
            known = Known(
                jobs={job.job_id: job for job in found_jobs},
                running={attempt.id: attempt for attempt in self._all(db, reads.RUNNING, codec.ATTEMPT)},
                ended=dict.fromkeys(self._ended_ids(db), newest_s),
                nodes={node.name: node for node in self._all(db, reads.NODES, codec.NODE)},
                unseen=remembered.get(rows.UNSEEN, {}),
                stories={row.job_id: row.story_s for row in db.execute(reads.STORIES, {"here": self.cluster})},
            )
            found = {case_.job.job_id: case_ for case_ in self._all(db, reads.CASES, codec.CASE)}
            chain = self._chain(db, found, remembered, newest_s)
            return ControllerState(self.cluster, known, found, _fleet(remembered, known), chain)

    def _chain(
        self, db: Connection, found: Mapping[str, Case], remembered: Mapping[str, Any], newest_s: float
    ) -> Chain:
        """What was open, what still holds jobs back, and what ended recently: equal faults are folded into it."""
        records = self._all(db, reads.EXCEPTIONS, codec.EXCEPTION, since_s=newest_s - DAY_S)
        of_cases = [
            case.failure.record for case in found.values() if case.failure and case.failure.record.state.is_over
        ]
        spent = {n.removeprefix(rows.BUDGET): at_s for n, at_s in remembered.items() if n.startswith(rows.BUDGET)}
        return restored((*of_cases, *records), self._all(db, reads.HANDLERS, codec.REGISTRATION), spent)

    def _all(self, db: Connection, statement: Select[Any], kind: codec.Codec[Any], **values: Any) -> list[Any]:
        return [kind.decode(text) for text in db.scalars(statement, {"here": self.cluster, **values})]

    def _ended_ids(self, db: Connection) -> frozenset[AttemptId]:
        found = db.execute(reads.ENDED, {"here": self.cluster})
        return frozenset(AttemptId(self.cluster, job_id, incarnation) for job_id, incarnation in found)

    def _remembered(self, db: Connection) -> dict[str, Any]:
        found = db.execute(reads.MEMORY, {"here": self.cluster})
        return {name: _memory_of(name).decode(text) for name, text in found}

    def _newest_s(self, db: Connection) -> float:
        return db.scalar(reads.NEWEST_S, {"here": self.cluster}) or 0.0

    def manager(self, name: str) -> str:
        """The name of the resource manager whose jobs these are: the one that was given here first."""
        with self._store.reading() as db:
            known: str = self._remembered(db).get(rows.MANAGER, "")
        if not known:
            batch = rows.Rows(self.cluster)
            rows.remember(batch, rows.MANAGER, codec.MANAGER.encode(name))
            with self._store.writing() as db:
                self._write.all(db, batch)
        return known or name

    def seen_until_s(self, now: float) -> float | None:
        """Until when the cluster is known to have been seen; a service that was down looks back to here.

        What programs and people said meanwhile says nothing of that. The clock may have been wrong at the last look,
        or when the cluster went out of sight, which came after it: so the latest look counts that is not later than
        that. It certainly was wrong for what was written down at an instant after `now`. None where it never was seen.
        """
        with self._store.reading() as db:
            blind = bool(self._remembered(db).get(rows.UNSEEN))
            values = {"here": self.cluster, "now": now}
            statements = (reads.LOOKED_BEFORE_S, reads.BLINDED_S) if blind else (reads.LOOKED_S,)
            found: Iterator[float | None] = (db.scalar(each, values) for each in statements)
            return min((instant_s for instant_s in found if instant_s is not None), default=None)

    def first_event_s(self) -> float | None:
        """When the oldest fact happened that is still kept; None in a new journal."""
        with self._store.reading() as db:
            first_s: float | None = db.scalar(reads.FIRST_S, {"here": self.cluster})
            return first_s

    def attempt(self, attempt: AttemptId) -> Attempt | None:
        """An attempt as last written down."""
        mine = {"job_id": attempt.job_id, "incarnation": attempt.incarnation}
        with self._store.reading() as db:
            return next(iter(self._all(db, reads.ATTEMPT, codec.ATTEMPT, **mine)), None)

    def recall(self, ids: Sequence[str]) -> dict[str, ExceptionRecord]:
        """Those of these exceptions that are written down, by id."""
        with self._store.reading() as db:
            found = [codec.EXCEPTION.decode(text) for text in self._recall(db, ids)]
        return {record.id: record for record in found}

    # -- actions

    def action(self, key: str) -> ActionRow | None:
        """One action by its key."""
        return next(iter(self._actions(reads.ACTION, key=key)), None)

    def latest_key(self, action: Action) -> str:
        """The key under which `action` was planned last. Raises `NotFound` where it never was."""
        with self._store.reading() as db:
            key = db.scalar(reads.PLANNED_AS, reads.planned_as(clean(action.key)))
        if key is None:
            raise NotFound(action.key, "no such action", "See `perdure actions` for the keys")
        return str(key)

    def planned(self) -> list[ActionRow]:
        """Actions that wait to be carried out, in the order in which they were decided."""
        return self._actions(reads.IN_STATE, state=ActionState.PLANNED.value)

    def open_intents(self) -> list[ActionRow]:
        """Actions that were begun, and of which nobody has heard since."""
        return self._actions(reads.IN_STATE, state=ActionState.STARTED.value)

    def charges(self, since_s: float) -> dict[str, Charge]:
        """Perdure's own actions that were begun after `since_s`, by key, but for releases of its own holds.

        It outlives a restart.
        """
        values = {"since_s": since_s, "by": PERDURE, "here": self.cluster}
        with self._store.reading() as db:
            found = list(db.execute(reads.BEGUN, values))
        return {row.key: Charge(_counts_at(row), row.kind, row.user or "", row.node) for row in found}

    def holds(self, attempt: AttemptId) -> bool:
        """Whether Perdure's last hold of a waiting job, or what is known of it, came after its last release."""
        values = {"here": self.cluster, "by": PERDURE, "job_id": clean(attempt.job_id)}
        with self._store.reading() as db:
            last = db.scalar(reads.HELD, {**values, "incarnation": attempt.incarnation})
        return last == "hold"

    def held_after(self, release: str) -> list[str]:
        """The keys of Perdure's holds of waiting jobs that were planned after this release of the same job."""
        with self._store.reading() as db:
            return list(db.scalars(reads.HELD_AFTER, {"here": self.cluster, "by": PERDURE, "key": clean(release)}))

    def job_of(self, action: Action) -> Job | None:
        """The job that an action is about, as last written down."""
        if isinstance(action, NodeAction):
            return None
        with self._store.reading() as db:
            return next(iter(self._all(db, reads.JOB, codec.JOB, job_id=action.attempt.job_id)), None)

    def node_of(self, action: Action) -> Node | None:
        """The node that an action is about, as last written down."""
        return self.node(action.node) if isinstance(action, NodeAction) else None

    def node(self, name: str) -> Node | None:
        """A node as last written down."""
        with self._store.reading() as db:
            return next(iter(self._all(db, reads.NODE, codec.NODE, name=name)), None)

    def extent(self) -> tuple[int, int, int]:
        """How many jobs are not over, how many nodes there are, and how many of these take no new work."""
        with self._store.reading() as db:
            ((live_jobs, all_nodes, nodes_out),) = db.execute(reads.EXTENT, {"here": self.cluster})
        return live_jobs, all_nodes, nodes_out

    def change(self, row: ActionRow) -> bool:
        """Write down that a planned action is to be carried out in another way."""
        return self._move(row.key, ActionState.PLANNED, ActionState.PLANNED, payload=codec.ACTION.encode(row.action))

    def postpone(self, row: ActionRow, expires_s: float) -> ActionRow:
        """Postpone the expiry of a planned action."""
        self._move(row.key, ActionState.PLANNED, ActionState.PLANNED, expires_s=expires_s)
        return replace(row, expires_s=expires_s)

    def begin(self, key: str, now: float) -> bool:
        """Write down that a planned action is about to be carried out. False: it is not planned any more."""
        return self._move(key, ActionState.PLANNED, ActionState.STARTED, started_s=now, detail="")

    def hand_back(self, key: str, detail: str) -> bool:
        """Plan an action again that was begun and, as is now known, not carried out."""
        return self._move(key, ActionState.STARTED, ActionState.PLANNED, started_s=None, detail=detail)

    def doubt(self, key: str, seen_s: float) -> bool:
        """Look up again the result of an action that was done before `seen_s`. False: no such action."""
        row = self.action(key)
        if row is None or row.state is not ActionState.DONE or (row.ended_s or math.inf) >= seen_s:
            return False
        values = {"ended_s": None, "expires_s": seen_s + AGAIN_S, "detail": NOT_AS_LEFT}
        return self._move(key, ActionState.DONE, ActionState.STARTED, **values)

    def finish(self, row: ActionRow, state: ActionState, detail: str, now: float) -> ActionEnded | None:
        """Write down the end of a planned or begun action. None where it has ended already."""
        if not self._move(row.key, row.state, state, ended_s=now, detail=detail):
            return None
        return ActionEnded(now, row.key, row.attempt, state.value, detail, row.orderer)

    def withhold(self, key: str, by: str, now: float) -> bool:
        """Keep a planned action from ever being begun. False: it is not planned any more."""
        return self._move(key, ActionState.PLANNED, ActionState.WITHHELD, ended_s=now, detail=f"withheld by {by}")

    def note(self, row: ActionRow, detail: str) -> None:
        """Say why a planned or begun action waits. Written only where it says something new."""
        if detail != row.detail:
            self._move(row.key, row.state, row.state, detail=detail)

    def unreported(self) -> list[ActionEnded]:
        """Ends of actions that the controller has not heard of: the service died between the two."""
        with self._store.reading() as db:
            since_s = self._newest_s(db) - RECENT_S
        ended = self._actions(reads.UNREPORTED, since_s=since_s)
        return [ActionEnded(r.ended_s or 0.0, r.key, r.attempt, r.state.value, r.detail, r.orderer) for r in ended]

    def _move(self, key: str, old: ActionState, new: ActionState, **values: Any) -> bool:
        """Change an action's state if it is still `old`, durably."""
        if "detail" in values:
            values["detail"] = clean(values["detail"])
        values |= {"at_key": key, "at_state": old.value, "state": new.value}
        with self._store.writing() as db:
            return db.execute(reads.MOVE, values).rowcount == 1

    def _actions(self, statement: Select[Any] = reads.ACTIONS, **values: Any) -> list[ActionRow]:
        with self._store.reading() as db:
            return [_action_row(found) for found in db.execute(statement, {"here": self.cluster, **values})]

    # -- retention

    def prune(self, now: float, keep_days: float = 30.0, limit: int = 1000) -> int:
        """Forget up to `limit` rows a table that are settled and older than `keep_days`; return how many went.

        Small steps: nobody waits long for the writer. Call it again until it returns 0.
        """
        before_s = now - keep_days * DAY_S
        case_of = select(cases.c.job_id).where(cases.c.cluster == self.cluster)
        oldest = select(events.c.seq, events.c.time_s).where(events.c.cluster == self.cluster)
        window = oldest.order_by(events.c.seq).limit(limit).subquery()
        in_force = select(exceptions.c.id).where(exceptions.c.cluster == self.cluster, exceptions.c.is_open)
        is_over = actions.c.exception_id.not_in(in_force)  # what was held must be known when it is released
        settled = [
            (actions, and_(actions.c.state.in_(_ENDED), actions.c.ended_s < before_s, is_over)),
            (
                exceptions,
                and_(exceptions.c.time_s < before_s, ~exceptions.c.is_open, exceptions.c.job_id.not_in(case_of)),
            ),
            (attempts, and_(attempts.c.end_s < before_s, attempts.c.state.not_in(reads.LIVE_ATTEMPTS))),
            (jobs, and_(jobs.c.state.in_(_OVER_JOBS), jobs.c.changed_s < before_s, jobs.c.job_id.not_in(case_of))),
        ]
        gone = 0
        for table, condition in settled:
            chosen = select(table.c.seq).where(table.c.cluster == self.cluster, condition).limit(limit)
            with self._store.writing() as db:
                gone += db.execute(delete(table).where(table.c.seq.in_(chosen))).rowcount
        with self._store.writing() as db:
            chosen = select(window.c.seq).where(window.c.time_s < before_s)
            gone += db.execute(delete(events).where(events.c.seq.in_(chosen))).rowcount
        return gone


def _memory_of(name: str) -> codec.Codec[Any]:
    """How what is remembered under a name is written."""
    if name.startswith(rows.BUDGET):
        return codec.INSTANTS
    return _MEMORY.get(name, codec.TROUBLES)


def _fleet(remembered: dict[str, Any], known: Known) -> Fleet:
    """What was remembered of nodes and budgets, and what was up and live at the last look."""
    troubles = {n.removeprefix(rows.TROUBLE): t for n, t in remembered.items() if n.startswith(rows.TROUBLE)}
    return fleet_of(known, Fleet(troubles=troubles, spent=remembered.get(rows.SPENT, ())))


def _counts_at(found: Fetched[Any]) -> float:
    return float(codec.ACTION.decode(found.text).counts_at(found.started_s))


def _action_row(found: Fetched[Any]) -> ActionRow:
    return ActionRow(
        key=found.key,
        action=codec.ACTION.decode(found.text),
        by=found.by,
        reason=found.reason,
        state=ActionState(found.state),
        detail=found.detail,
        created_s=found.created_s,
        expires_s=found.expires_s,
        started_s=found.started_s,
        ended_s=found.ended_s,
        exception_id=found.exception_id,
    )
