"""The statements with which the journal writes rows down, built once for a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Table,
    and_,
    bindparam,
    case,
    delete,
    false,
    literal_column,
    null,
    or_,
    update,
)

from perdure.model.actions import planned_again
from perdure.model.clean_text import clean
from perdure.model.jobs import SAME_SUBMIT_S
from perdure.service.core.messages import PERDURE, Act
from perdure.service.store import reads, rows
from perdure.service.store.rows import Row, Rows
from perdure.service.store.schema import actions, attempts, cases, events, exceptions, handlers, jobs, memory, nodes

PLANNED, STARTED = "planned", "started"  # as in `journal.ActionState`
IN_VAIN = ("refused", "superseded", "expired")

_NOT_INSERTED = {"seq", "verdict"}
_NEVER_LESS = ("saved_gpu_h", "limit_gpu_h")  # their sums are counters
_OF_NO_FAILURE = {  # what is known of failures alone, for all others; once known, it stays
    "of_attempt": false(),
    "decision": literal_column("''"),
    "reason": literal_column("''"),
    "decided": null(),
    "wasted_gpu_h": literal_column("0.0"),
    "saved_gpu_h": literal_column("0.0"),
    "limit_gpu_h": literal_column("0.0"),
    "limited": false(),
}


class Writes:
    """Writes a batch inside the caller's transaction. Facts and actions that are known stay as they are."""

    def __init__(self, dialect: Dialect) -> None:
        insert = _insert_of(dialect)
        first_word = attempts.c.state.in_(reads.LIVE_ATTEMPTS)  # on how an attempt ended: that counts
        self._event = _Bulk(insert(events).on_conflict_do_nothing(index_elements=["key"]), dialect)
        self._job = _Bulk(_upsert_job(insert(jobs), dialect), dialect)
        key = ("cluster", "job_id", "incarnation")
        self._attempt = _Bulk(_upsert(insert(attempts), *key, where=first_word), dialect)
        self._node = _Bulk(_upsert(insert(nodes), "cluster", "name"), dialect)
        self._case = _Bulk(_upsert(insert(cases), "cluster", "job_id"), dialect)
        self._memory = _Bulk(_upsert(insert(memory), "cluster", "name"), dialect)
        self._handler = _Bulk(_upsert(insert(handlers), "cluster", "id"), dialect)
        not_less = literal_column("excluded.said") >= exceptions.c.said  # verdicts are only ever appended
        of_failure, of_none = insert(exceptions), insert(exceptions).values(_OF_NO_FAILURE)
        self._exceptions = {
            True: _Bulk(_upsert(of_failure, "id", greatest=_NEVER_LESS, where=not_less), dialect),
            False: _Bulk(_upsert(of_none, "id", but=_OF_NO_FAILURE, where=not_less), dialect),
        }
        self._action = insert(actions).on_conflict_do_nothing(index_elements=["key"]).inline()
        self._verdict = update(attempts).where(*_at(attempts, *key)).values(verdict=bindparam("verdict"))
        self._drop_job = delete(jobs).where(*_at(jobs, "cluster", "job_id"))
        self._drop_node = delete(nodes).where(*_at(nodes, "cluster", "name"))
        self._close_case = delete(cases).where(*_at(cases, "cluster", "job_id"))
        self._leave = delete(handlers).where(*_at(handlers, "cluster", "id"))
        self._forget = delete(memory).where(*_at(memory, "cluster", "name"))

    def all(self, db: Connection, batch: Rows) -> None:
        """Attempts come before their verdicts; else the order does not matter."""
        self._event(db, batch.events)
        self._job(db, batch.jobs)
        self._attempt(db, batch.attempts)
        self._node(db, batch.nodes)
        self._case(db, batch.cases)
        self._memory(db, batch.memory)
        self._handler(db, batch.handlers)
        for statement, values in (
            (self._verdict, batch.verdicts),
            (self._drop_job, batch.gone_jobs),
            (self._drop_node, batch.gone_nodes),
            (self._close_case, batch.closed_cases),
            (self._forget, batch.forgotten),
            (self._leave, batch.left_handlers),
        ):
            if values:
                db.execute(statement, values)
        for of_attempt, some in groupby(batch.exceptions, itemgetter("of_attempt")):
            self._exceptions[of_attempt](db, list(some))
        for act, created_s in batch.actions:
            self._plan(db, act, created_s, batch.cluster)

    def _plan(self, db: Connection, act: Act, created_s: float, cluster: str) -> None:
        """Plan an action once.

        A person may ask again for one that has ended, and Perdure for one that only a person asked for and that failed:
        it gets a key of its own.
        """
        key = clean(act.action.key)
        if (
            act.by == PERDURE
            and db.execute(self._action, rows.action_row(act, key, PLANNED, created_s, cluster)).rowcount
        ):
            return
        earlier = list(db.execute(reads.PLANNED_AS, reads.planned_as(key)))
        if any(state in (PLANNED, STARTED) for _, state, _ in earlier):
            return
        if act.by == PERDURE and any(by == PERDURE or state not in IN_VAIN for _, state, by in earlier):
            return
        key = planned_again(key, len(earlier) + 1)
        db.execute(self._action, rows.action_row(act, key, PLANNED, created_s, cluster))


class _Bulk:
    """An INSERT of many rows, compiled once: a row costs little more than with the driver's own `executemany`."""

    def __init__(self, statement: Any, dialect: Dialect) -> None:
        names = [column.name for column in statement.table.c if column.name not in _NOT_INSERTED]
        compiled = statement.inline().compile(dialect=dialect, column_keys=names)
        self._sql = str(compiled)
        self._tuple_of = itemgetter(*compiled.positiontup) if compiled.positiontup else None

    def __call__(self, db: Connection, values: list[Row]) -> None:
        if values:
            by_place = self._tuple_of
            db.exec_driver_sql(self._sql, values if by_place is None else [by_place(row) for row in values])


def _at(table: Table, *names: str) -> list[Any]:
    """The row whose columns have the values of the parameters ``at_NAME``."""
    return [table.c[name] == bindparam(f"at_{name}") for name in names]


def _insert_of(dialect: Dialect) -> Any:
    """The dialect's own INSERT, which knows ON CONFLICT."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert

        return insert
    from sqlalchemy.dialects.postgresql import insert as insert_postgresql

    return insert_postgresql


def _upsert_job(statement: Any, dialect: Dialect) -> Any:
    """Insert a job, or overwrite what is known of it. One that begins again goes to the end, and its story starts here.

    The same is said by `perdure.model.jobs.begins_anew`.
    """
    new = statement.excluded
    restarts: Any = literal_column("COALESCE(CAST(excluded.payload ->> 'restarts' AS INTEGER), 0)")
    is_later = new.submit_s > jobs.c.submit_s + literal_column(str(SAME_SUBMIT_S))
    is_new = and_(is_later, or_(new.user != jobs.c.user, restarts == literal_column("0")))
    last = "(SELECT max(seq) + 1 FROM jobs)"
    if dialect.name == "postgresql":
        last = "nextval(pg_get_serial_sequence('jobs', 'seq'))"
    more = {
        "seq": case((is_new, literal_column(last)), else_=jobs.c.seq),
        "story_s": case((is_new, new.submit_s), else_=jobs.c.story_s),
        "story_known_s": case((is_new, new.changed_s), else_=jobs.c.story_known_s),
    }
    return _upsert(statement, "cluster", "job_id", more=more)


def _upsert(
    statement: Any,
    *key: str,
    where: Any = None,
    greatest: Iterable[str] = (),
    but: Iterable[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Any:
    """Insert, or overwrite the row of the same key, all `but` some columns, where `where` holds of it.

    Those in `greatest` never go down; `more` says what others become.
    """
    table, left_alone = statement.table, {*key, *_NOT_INSERTED, *but}
    changed = {c.name: statement.excluded[c.name] for c in table.c if c.name not in left_alone}
    for name in greatest:
        old, new = table.c[name], statement.excluded[name]
        changed[name] = case((new > old, new), else_=old)
    changed |= more or {}
    return statement.on_conflict_do_update(index_elements=key, set_=changed, where=where).inline()
