"""What was said of waiting jobs, in the journal's database, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, bindparam, delete, func, insert, select, update

from perdure.model.clean_text import clean
from perdure.service.store.codec import encode
from perdure.service.store.database import Store
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import attempts, wait_promises
from perdure.waits.calibration import Promise

KEEP_S = 30 * 86_400.0
MOST = 20_000  # that are kept, the newest
MOST_GONE = 2_000  # that are removed in one step
EARLY_S = 1.0  # a start instant is in whole seconds
_WAITS = msgspec.json.Decoder(tuple[float, ...])
_p = wait_promises.c


class PromiseStore:
    """The part of a journal's database that is about promised starts. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self.cluster = cluster
        self._reader = Reader(store.engine, cluster)

    def promised_since(self, instant_s: float) -> frozenset[str]:
        """The jobs that were promised something from an instant on."""
        rows = self._reader.all(
            select(_p.job_id).where(self._own, _p.asked_s >= instant_s, of_this_job(wait_promises)).distinct()
        )
        return frozenset(row.job_id for row in rows)

    def note(self, promises: Iterable[Promise], now_s: float) -> None:
        """Write promises down, with the starts that came of earlier ones; forget what is old, or too much."""
        new: list[dict[str, Any]] = [
            {
                "cluster": self.cluster,
                "job_id": clean(one.job_id),
                "asked_s": one.asked_s,
                "wait_s": encode(one.wait_s),
                "raw_s": encode(one.raw_s),
                "kind": clean(one.kind),
            }
            for one in promises
        ]
        started = self._started()
        with self._store.writing() as db:
            if started:
                of_row = update(wait_promises).where(_p.seq == bindparam("row"))
                db.execute(of_row.values(start_s=bindparam("started_s")), started)
            if new:
                db.execute(insert(wait_promises), new)
            old = select(_p.seq).where(self._own, _p.asked_s < now_s - KEEP_S).limit(MOST_GONE)
            db.execute(delete(wait_promises).where(_p.seq.in_(db.scalars(old).all())))
            rest = select(_p.seq).where(self._own).order_by(_p.seq.desc()).offset(MOST).limit(MOST_GONE)
            db.execute(delete(wait_promises).where(_p.seq.in_(db.scalars(rest).all())))

    def kept(self) -> list[Promise]:
        """Promises whose job has started."""
        return self._read(_p.start_s.is_not(None))

    def open_of(self, job_ids: Collection[str]) -> list[Promise]:
        """Promises to some jobs that have not started since."""
        return [
            one for one in self._read(and_(_p.start_s.is_(None), of_this_job(wait_promises))) if one.job_id in job_ids
        ]

    @property
    def _own(self) -> ColumnElement[bool]:
        return _p.cluster == self.cluster

    def _read(self, which: ColumnElement[bool]) -> list[Promise]:
        texts = as_text(_p.wait_s).label("waits"), as_text(_p.raw_s).label("raw")
        columns = (_p.job_id, _p.asked_s, _p.start_s, _p.kind, *texts)
        rows = self._reader.all(select(*columns).where(self._own, which).order_by(_p.seq))
        return [
            Promise(row.job_id, row.asked_s, _WAITS.decode(row.waits), row.start_s, _raw(row.raw), row.kind)
            for row in rows
        ]

    def _started(self) -> list[dict[str, Any]]:
        """Rows of promises whose job has started since, each with its first start."""
        a = attempts.c
        same = and_(a.cluster == _p.cluster, a.job_id == _p.job_id, a.start_s >= _p.asked_s - EARLY_S)
        query = select(_p.seq, func.min(a.start_s).label("start_s")).join_from(wait_promises, attempts, same)
        still = self._own, _p.start_s.is_(None), of_this_job(wait_promises), of_this_job(attempts)
        rows = self._reader.all(query.where(*still).group_by(_p.seq))
        return [{"row": row.seq, "started_s": row.start_s} for row in rows]


def _raw(text: str | None) -> tuple[float, ...]:
    """A row that an older version wrote has none."""
    return _WAITS.decode(text) if text else ()
