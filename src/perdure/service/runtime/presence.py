"""Who lives and who has what, by PostgreSQL's own locks: a controller has one as long as it is connected."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from perdure.errors import StateError
from perdure.service.store.database import lock_key, reading_engine

_LOCKS = text(
    "SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_OF_ONE_NUMBER, _OF_TWO_NUMBERS = 1, 2  # pg_locks.objsubid: how the key of a lock was given
_LOW = 2**32 - 1


@dataclass(frozen=True, slots=True)
class LockSight:
    """The locks of controllers and clusters at one instant."""

    controllers: int  # with the same list of clusters, this one among them
    rank: int  # of this one among them, from 0
    held: frozenset[str]  # clusters that anybody serves


class Presence:
    """This controller's lock. Used by one thread; a connection that broke is made again."""

    def __init__(self, url: str) -> None:
        """`url` is that of a `Store.engine`."""
        self._engine: Engine = reading_engine(url)
        self._db: Connection | None = None
        self._group = 0
        self._mine = secrets.randbelow(2**31)

    def look(self, names: Sequence[str]) -> LockSight:
        """See who lives. Raises `StateError` where the database does not answer."""
        try:
            return self._look(names)
        except SQLAlchemyError as err:
            self.close()
            said = " ".join(str(getattr(err, "orig", None) or err).split())
            raise StateError("the journal", f"cannot be reached: {said}", "See that its database runs") from err

    def close(self) -> None:
        """Give the lock back."""
        if self._db is not None:
            self._db.invalidate()
            self._db.close()
            self._db = None

    def _look(self, names: Sequence[str]) -> LockSight:
        group = lock_key("controllers of " + "\n".join(names)) % 2**31
        if group != self._group:
            self.close()
        if self._db is None:
            self._db, self._group = self._engine.connect(), group
            self._db.execute(text("SELECT pg_advisory_lock(:group, :mine)"), {"group": group, "mine": self._mine})
        locks = {tuple(row) for row in self._db.execute(_LOCKS)}
        self._db.rollback()  # what is locked stays so; no transaction stays open
        peers = sorted(number for kind, number, form in locks if form == _OF_TWO_NUMBERS and kind == group)
        held = frozenset(name for name in names if _as_seen(name) in locks)
        return LockSight(len(peers), peers.index(self._mine), held)


def _as_seen(cluster: str) -> tuple[int, int, int]:
    """The lock of a cluster as pg_locks shows it: the two halves of its key."""
    key = lock_key(cluster) % 2**64
    return key >> 32, key & _LOW, _OF_ONE_NUMBER
