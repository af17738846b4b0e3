"""What the search for culprits reads from the journal's database, and what it writes there."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from perdure.blame.builders.attempts import AttemptRow
from perdure.blame.builders.topology import NO_SWITCHES, Topology
from perdure.blame.standing import Standing, WindowChange
from perdure.model.clean_text import clean
from perdure.service.store.database import Store
from perdure.service.store.queries import suspects as queries
from perdure.service.store.queries.reader import Reader
from perdure.service.store.queries.suspects import STANDING
from perdure.service.store.schema import suspects

MAX_CLEARED = 500
"""Suspects of the past that are kept, the newest."""


class SuspectStore:
    """The part of a journal's database that is about suspects. Safe to share between threads."""

    def __init__(
        self, store: Store, cluster: str, topology: Topology = NO_SWITCHES, mounts: tuple[str, ...] = ()
    ) -> None:
        """`topology` has the switches above the nodes, `mounts` the file systems, as far as they are known."""
        self._store = store
        self.cluster = cluster
        self._topology, self._mounts = topology, mounts
        self._reader = Reader(store.engine, cluster)
        self._insert = (postgresql if store.dialect == "postgresql" else sqlite).insert

    def ended_since(self, since_s: float) -> list[tuple[str, AttemptRow]]:
        """Attempts that ended after an instant, with their ids: those that passed, and those that were judged."""
        return queries.ended_since(self._reader, since_s, self._topology, self._mounts)

    def standing(self) -> tuple[Standing, ...]:
        """Suspects that are named and not cleared, as last written down."""
        return tuple(row.standing for row in queries.standing(self._reader))

    def note(self, turn: WindowChange, now: float) -> None:
        """Write down what a window changed."""
        with self._store.writing() as db:
            for each in turn.standing:
                if each.named:
                    self._keep(db, each)
            for each in turn.cleared:
                here = (*self._open(), suspects.c.id == self._id(each))
                db.execute(update(suspects).where(*here).values(cleared_s=now))
            over = select(suspects.c.seq).where(suspects.c.cluster == self.cluster, suspects.c.cleared_s.is_not(None))
            old = over.order_by(suspects.c.seq.desc()).offset(MAX_CLEARED).limit(MAX_CLEARED)
            db.execute(delete(suspects).where(suspects.c.seq.in_(db.scalars(old).all())))

    def _keep(self, db: Connection, each: Standing) -> None:
        row = {"id": self._id(each), "cluster": self.cluster, "since_s": each.since_s, "payload": STANDING.encode(each)}
        insert = self._insert(suspects).values(row)
        db.execute(insert.on_conflict_do_update(index_elements=["id"], set_={"payload": insert.excluded.payload}))

    def _open(self) -> tuple[Any, ...]:
        return suspects.c.cluster == self.cluster, suspects.c.cleared_s.is_(None)

    def _id(self, each: Standing) -> str:
        """The same for a suspect as long as it stands, whatever its class comes to be."""
        tier, name = each.first
        return clean(f"{self.cluster}/{tier}/{name}:{each.since_s:.3f}")
