"""Actions: what was asked for, by whom, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import func, or_, select

from perdure.errors import NotFound
from perdure.model.actions import Action
from perdure.model.clean_text import clean
from perdure.service.store import codec
from perdure.service.store.queries.order import ALWAYS, SortOrder, Within, in_order, of_jobs
from perdure.service.store.queries.reader import Page, Reader, as_text, paged
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import actions

MAX_OF_JOB = 100
MAX_LOOKED_AT = 5_000  # actions, the latest, looked through for those on a node
OPPOSED = ("requeue", "hold", "release", "cancel", "drain", "down", "undrain")
HOLD_OR_LET_GO = ("hold", "release", "requeue")
SORTED_BY = {
    "action": actions.c.kind,
    "state": actions.c.state,
    "by": actions.c.by,
    "job": actions.c.job_id,
    "decided": actions.c.created_s,
}


@dataclass(frozen=True, slots=True)
class ListedAction:
    """One action on its way. Instants are seconds since the epoch."""

    key: str
    kind: str
    state: str  # the executor's word
    by: str
    reason: str
    detail: str
    job_id: str
    node: str
    exception_id: str
    created_s: float
    expires_s: float
    started_s: float | None
    ended_s: float | None
    action: Action


_AS_WRITTEN = tuple(each.name for each in fields(ListedAction) if each.name != "action")


def find_actions(
    reader: Reader,
    *,
    states: Iterable[str] = (),
    kind: str = "",
    job_id: str = "",
    user: str = "",
    partition: str = "",
    decided: Within = ALWAYS,
    order: SortOrder | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[ListedAction]:
    """Actions, the latest first; `user` and `partition` are those of the job."""
    query = select(*_columns()).where(*decided.of(actions.c.created_s)).limit(limit + 1)
    query = in_order(query, actions, cursor, order, SORTED_BY)
    query = query.where(*of_jobs(reader, actions.c.job_id, user, partition))
    if wanted := list(states):
        query = query.where(actions.c.state.in_(wanted))
    if kind:
        query = query.where(actions.c.kind == clean(kind))
    if job_id:
        of_job = (actions.c.cluster == reader.cluster, actions.c.job_id == clean(job_id))
        query = query.where(*of_job, of_this_job(actions))
    else:
        query = query.where(reader.owns(actions))
    rows = reader.all(query)
    return paged(rows, [_row(row) for row in rows], limit)


def actions_of(reader: Reader, job_id: str) -> tuple[ListedAction, ...]:
    """The actions on one job, the latest first."""
    return find_actions(reader, job_id=job_id, limit=MAX_OF_JOB).items


def actions_on_nodes(reader: Reader, names: Iterable[str], limit: int = MAX_OF_JOB) -> tuple[ListedAction, ...]:
    """The latest actions on these nodes, the latest first."""
    latest = select(actions.c.seq).where(reader.owns(actions)).order_by(actions.c.seq.desc()).limit(MAX_LOOKED_AT)
    query = select(*_columns()).where(actions.c.seq.in_(latest), actions.c.node.in_([clean(n) for n in names]))
    return tuple(_row(row) for row in reader.all(query.order_by(actions.c.seq.desc()).limit(limit)))


def action(reader: Reader, key: str) -> ListedAction:
    """One action. Raises `NotFound`."""
    row = reader.first(select(*_columns()).where(actions.c.key == clean(key)))
    if row is None:
        raise NotFound(key[:120], "no such action is known", "List the known ones: perdure actions")
    return _row(row)


def actions_by_key(reader: Reader, keys: Iterable[str]) -> tuple[ListedAction, ...]:
    """Those of these actions that are known, in the order in which they were planned."""
    wanted = [clean(key) for key in keys]
    if not wanted:
        return ()
    query = select(*_columns()).where(actions.c.key.in_(wanted)).order_by(actions.c.seq)
    return tuple(_row(row) for row in reader.all(query))


def actions_for(reader: Reader, job_ids: Iterable[str]) -> dict[str, ListedAction]:
    """The latest action of each exception of these jobs, by exception id."""
    query = select(*_columns()).where(actions.c.cluster == reader.cluster, actions.c.job_id.in_(list(job_ids)))
    return {row.exception_id: _row(row) for row in reader.all(query.order_by(actions.c.seq))}


def holding(reader: Reader, job_ids: Sequence[str]) -> tuple[ListedAction, ...]:
    """What was or is being done to hold these jobs (this many at most), and to release them, the oldest first."""
    some = [clean(each) for each in job_ids[:MAX_LOOKED_AT]]
    of_these = (actions.c.cluster == reader.cluster, actions.c.job_id.in_(some))
    query = select(*_columns()).where(*of_these, of_this_job(actions), actions.c.kind.in_(HOLD_OR_LET_GO))
    return tuple(_row(row) for row in reader.all(query.order_by(actions.c.seq)))


def latest_done(reader: Reader, nodes: Iterable[str], job_ids: Iterable[str]) -> frozenset[str]:
    """Keys of the latest action that was done on each of these nodes and jobs, of those that take one another back."""
    a = actions.c
    done = select(func.max(a.seq)).where(reader.owns(actions), a.state == "done", a.kind.in_(OPPOSED))
    of_nodes = done.where(a.node.in_([clean(name) for name in nodes])).group_by(a.node)
    of_jobs = done.where(a.node == "", a.job_id.in_([clean(i) for i in job_ids])).group_by(a.job_id)
    query = select(a.key).where(or_(a.seq.in_(of_nodes), a.seq.in_(of_jobs)))
    return frozenset(row.key for row in reader.all(query))


def counts(
    reader: Reader, *, job_id: str = "", user: str = "", partition: str = "", decided: Within = ALWAYS
) -> dict[str, int]:
    """How many actions are in each state, of those that `find_actions` finds."""
    query = select(actions.c.state, func.count()).where(reader.owns(actions), *decided.of(actions.c.created_s))
    query = query.where(*of_jobs(reader, actions.c.job_id, user, partition))
    if job_id:
        query = query.where(actions.c.job_id == clean(job_id), of_this_job(actions))
    return {row[0]: row[1] for row in reader.all(query.group_by(actions.c.state))}


def _columns() -> tuple[Any, ...]:
    return (actions.c.seq, *(actions.c[name] for name in _AS_WRITTEN), as_text(actions.c.payload).label("payload"))


def _row(row: Any) -> ListedAction:
    told = {name: getattr(row, name) for name in _AS_WRITTEN}
    return ListedAction(**told, action=codec.ACTION.decode(row.payload))
