"""The statements with which the journal is read and its actions are moved on, built once for all.

Each takes the cluster as parameter ``here``; instants are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from perdure.coordination.chain import MAX_ENDED, MAX_OPEN
from perdure.model.actions import AGAIN_PATTERN, Hold, Release, keys_with_episode
from perdure.model.jobs import AttemptState, JobState
from perdure.service.store.schema import actions, attempts, cases, events, exceptions, handlers, jobs, memory, nodes

MAX_ENDED_ATTEMPTS = 100_000  # attempts whose end is remembered at the start
MAX_UNREPORTED = 10_000  # actions among which one may be whose end nobody was told, whatever the clock did

_HERE: Any = bindparam("here")
_SINCE_S: Any = bindparam("since_s")
_KEY: Any = bindparam("key")


def _words(*values: str) -> list[Any]:
    """Values that are written into the statement as they are."""
    return [literal_column(f"'{value}'") for value in values]


LIVE_ATTEMPTS = _words(*(s.value for s in AttemptState if not s.is_over))
LIVE_JOBS = _words(*(s.value for s in JobState if not s.is_over))


def _payloads(table: Table, *where: Any) -> Select[Any]:
    return select(cast(table.c.payload, Text)).where(table.c.cluster == _HERE, *where)


# -- what the controller remembers

NEWEST_S = select(events.c.time_s).where(events.c.cluster == _HERE).order_by(events.c.seq.desc()).limit(1)
BLINDED_S = NEWEST_S.where(events.c.kind == "sight_changed", events.c.time_s <= bindparam("now"))
LOOKED_S = NEWEST_S.where(
    events.c.kind.in_(_words("job_changed", "attempt_started", "attempt_ended", "node_changed")),
    events.c.time_s <= bindparam("now"),
)
_SIGHTS = events.alias()
_BLINDED = (
    select(_SIGHTS.c.seq)
    .where(_SIGHTS.c.cluster == _HERE, _SIGHTS.c.kind == "sight_changed")
    .order_by(_SIGHTS.c.seq.desc())
    .limit(1)
)
LOOKED_BEFORE_S = LOOKED_S.where(
    events.c.seq < _BLINDED.scalar_subquery(),
    events.c.time_s <= _BLINDED.with_only_columns(_SIGHTS.c.time_s).scalar_subquery(),  # else the clock was ahead
)
FIRST_S = select(events.c.time_s).where(events.c.cluster == _HERE).order_by(events.c.seq).limit(1)
JOBS = _payloads(jobs, or_(jobs.c.state.in_(LIVE_JOBS), jobs.c.changed_s > _SINCE_S))
STORIES = select(jobs.c.job_id, jobs.c.story_s).where(jobs.c.cluster == _HERE, jobs.c.story_s > literal_column("0"))
RUNNING = _payloads(attempts, attempts.c.state.in_(LIVE_ATTEMPTS))
ATTEMPT = _payloads(
    attempts, attempts.c.job_id == bindparam("job_id"), attempts.c.incarnation == bindparam("incarnation")
)
JOB = _payloads(jobs, jobs.c.job_id == bindparam("job_id"))
NODE = _payloads(nodes, nodes.c.name == bindparam("name"))
NODES, CASES, HANDLERS = _payloads(nodes), _payloads(cases), _payloads(handlers)
MEMORY = select(memory.c.name, cast(memory.c.payload, Text)).where(memory.c.cluster == _HERE)
ENDED = (
    select(attempts.c.job_id, attempts.c.incarnation)
    .where(attempts.c.cluster == _HERE, attempts.c.state.not_in(LIVE_ATTEMPTS))
    .order_by(attempts.c.seq.desc())
    .limit(MAX_ENDED_ATTEMPTS)
)
_KEPT = (  # what was open, what still holds jobs back, and what ended recently
    select(exceptions.c.seq, cast(exceptions.c.payload, Text).label("payload"))
    .where(
        exceptions.c.cluster == _HERE,
        or_(exceptions.c.is_open, and_(exceptions.c.of_attempt.is_(False), exceptions.c.time_s > _SINCE_S)),
    )
    .order_by(exceptions.c.is_open.desc(), exceptions.c.seq.desc())
    .limit(MAX_OPEN + MAX_ENDED)
    .subquery()
)
EXCEPTIONS = select(_KEPT.c.payload).order_by(_KEPT.c.seq)  # the oldest first
_RECALLED = select(cast(exceptions.c.payload, Text)).where(exceptions.c.id.in_(bindparam("ids", expanding=True)))

# -- actions

ACTIONS = (
    select(actions, cast(actions.c.payload, Text).label("text"))
    .where(actions.c.cluster == _HERE)
    .order_by(actions.c.seq)
)
ACTION = ACTIONS.where(actions.c.key == _KEY)
IN_STATE = ACTIONS.where(actions.c.state == bindparam("state"))
_NEWEST_ACTION = (
    select(actions.c.seq).where(actions.c.cluster == _HERE).order_by(actions.c.seq.desc()).limit(1).scalar_subquery()
)
UNREPORTED = ACTIONS.where(
    actions.c.state.not_in(_words("planned", "started")),
    or_(
        actions.c.ended_s > _SINCE_S,
        and_(  # a clock set back puts the end far before; of what is older than all events the report may be forgotten
            actions.c.seq > _NEWEST_ACTION - MAX_UNREPORTED,
            actions.c.created_s >= FIRST_S.scalar_subquery(),
        ),
    ),
    ~select(literal(1)).where(events.c.key == literal("action:").concat(actions.c.key)).exists(),
)
BEGUN = (  # all but comments and releases of what Perdure held itself, with whose job it is about
    select(
        actions.c.key,
        actions.c.kind,
        actions.c.node,
        actions.c.started_s,
        cast(actions.c.payload, Text).label("text"),
        func.coalesce(jobs.c.user, literal_column("attempts.payload ->> 'user'")).label("user"),
    )
    .join(jobs, and_(jobs.c.cluster == actions.c.cluster, jobs.c.job_id == actions.c.job_id), isouter=True)
    .join(
        attempts,
        and_(
            attempts.c.cluster == actions.c.cluster,
            attempts.c.job_id == actions.c.job_id,
            attempts.c.incarnation == actions.c.incarnation,
        ),
        isouter=True,
    )
    .where(actions.c.started_s > _SINCE_S, actions.c.by == bindparam("by"), actions.c.cluster == _HERE)
    .where(actions.c.key.not_like(keys_with_episode(Release)), actions.c.kind != literal_column("'comment'"))
)
_RELEASE = actions.alias()
HELD_AFTER = (
    select(actions.c.key)
    .join(_RELEASE, and_(_RELEASE.c.job_id == actions.c.job_id, _RELEASE.c.incarnation == actions.c.incarnation))
    .where(actions.c.cluster == _HERE, actions.c.by == bindparam("by"), actions.c.key.like(keys_with_episode(Hold)))
    .where(_RELEASE.c.cluster == _HERE, _RELEASE.c.key == _KEY, _RELEASE.c.seq < actions.c.seq)
    .where(actions.c.state.in_(_words("planned", "started", "done")))
)
HELD = (  # the kind of the last of Perdure's holds and releases of a waiting job; one job's actions keep their order
    select(actions.c.kind)
    .where(actions.c.cluster == _HERE, actions.c.by == bindparam("by"), actions.c.key.like(keys_with_episode()))
    .where(actions.c.job_id == bindparam("job_id"), actions.c.incarnation == bindparam("incarnation"))
    .where(actions.c.kind.in_(_words("hold", "release")), actions.c.state.in_(_words("started", "done")))
    .order_by(actions.c.seq.desc())
    .limit(1)
)
LIVE = select(func.count()).where(jobs.c.state.in_(LIVE_JOBS), jobs.c.cluster == _HERE)
NODES_OUT = select(func.count()).where(
    nodes.c.cluster == _HERE, nodes.c.state.in_(_words("draining", "drained", "down"))
)
ALL_NODES = select(func.count()).where(nodes.c.cluster == _HERE)
EXTENT = select(*[each.scalar_subquery() for each in (LIVE, ALL_NODES, NODES_OUT)])
PLANNED_AS = (  # the keys under which one action was planned, with their states, the newest first
    select(actions.c.key, actions.c.state, actions.c.by)
    .where(or_(actions.c.key == _KEY, actions.c.key.like(bindparam("again"), escape="/")))
    .order_by(actions.c.seq.desc())
)
MOVE = update(actions).where(actions.c.key == bindparam("at_key"), actions.c.state == bindparam("at_state"))


class Recall:
    """A search for exceptions by many ids at once, compiled once: an id costs little more than its look-up."""

    SIZES = (1, 16, 256)  # ids looked for by one statement; what is left over is filled up with the last one

    def __init__(self, dialect: Dialect) -> None:
        self._sql = {size: self._compiled(size, dialect) for size in self.SIZES}
        self._by_name = dialect.paramstyle == "pyformat"

    @staticmethod
    def _compiled(size: int, dialect: Dialect) -> str:
        statement = _RECALLED.params(ids=[""] * size)
        return str(statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True}))

    def __call__(self, db: Connection, ids: Sequence[str]) -> Iterator[str]:
        """The records of those that are there, as text; of all clusters, for an id is taken once."""
        most = self.SIZES[-1]
        for start in range(0, len(ids), most):
            some = list(ids[start : start + most])
            size = next(size for size in self.SIZES if size >= len(some))
            some += some[-1:] * (size - len(some))
            given = {f"ids_{n}": name for n, name in enumerate(some, 1)} if self._by_name else tuple(some)
            yield from (row[0] for row in db.exec_driver_sql(self._sql[size], given))


def planned_as(key: str) -> dict[str, str]:
    """The parameters of `PLANNED_AS`: a key, and with ``~N`` after it where a person asked again."""
    plain = key.replace("/", "//").replace("%", "/%").replace("_", "/_")
    return {"key": key, "again": plain + AGAIN_PATTERN}
