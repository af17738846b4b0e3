"""All clusters of a database, each with a schema of its own: who has it, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import Engine, Select, column, literal, select, table, text, union_all

from perdure.service.core.standing import ClusterStanding
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import owners

LATE_S = 180.0
_NOTHING = ClusterStanding()
_READ = msgspec.json.Decoder(ClusterStanding)


class ClusterState(StrEnum):
    """How a cluster is served."""

    WATCHED = "watched"
    SILENT = "silent"  # its resource manager does not answer
    LATE = "late"  # not looked at for long
    FREE = "free"  # nobody serves it


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster as the database shows it."""

    name: str
    state: ClusterState
    owner: str = ""  # "host:pid" of the one that had it last
    looked_s: float | None = None
    standing: ClusterStanding = _NOTHING


def find_clusters(engine: Engine, names: Sequence[str], held: frozenset[str], now: float) -> tuple[ClusterRow, ...]:
    """The clusters of these names; `held` are those that anybody serves now. Raises `StateError`."""
    reader = Reader(engine, "")
    made = {
        row.name for row in reader.all(text("SELECT schemaname AS name FROM pg_tables WHERE tablename = 'owners'"))
    }  # of a cluster that nobody has served yet there is none
    parts = [_owner_in(name) for name in names if name in made]
    known = {row.cluster: row for row in reader.all(union_all(*parts))} if parts else {}
    found = []
    for name in names:
        row = known.get(name)
        standing = _READ.decode(row.standing) if row is not None and row.standing else _NOTHING
        looked_s = row.looked_s if row is not None else None
        state = _state(looked_s, now, is_held=name in held, is_silent=standing.is_silent)
        found.append(ClusterRow(name, state, row.owner if row is not None else "", looked_s, standing))
    return tuple(found)


def _owner_in(schema: str) -> Select[Any]:
    there = table("owners", *(column(each.name, each.type) for each in owners.c), schema=schema)
    return select(
        literal(schema).label("cluster"), there.c.owner, there.c.looked_s, as_text(there.c.standing).label("standing")
    ).where(there.c.cluster == schema)


def _state(looked_s: float | None, now: float, *, is_held: bool, is_silent: bool) -> ClusterState:
    if not is_held:
        return ClusterState.FREE
    if is_silent:
        return ClusterState.SILENT
    return ClusterState.LATE if looked_s is None or now - looked_s > LATE_S else ClusterState.WATCHED
