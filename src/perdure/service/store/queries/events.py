"""The journal's events, in the order in which they were written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from perdure.service.store.packed import unpack
from perdure.service.store.queries.reader import Page, Reader
from perdure.service.store.schema import events


@dataclass(frozen=True, slots=True)
class EventRow:
    """One fact. `seq` grows, and is the place to go on from."""

    seq: int
    time_s: float
    kind: str
    job_id: str
    payload: Mapping[str, Any]


def events_after(reader: Reader, seq: int, limit: int) -> Page[EventRow]:
    """Events with a higher `seq`, the oldest first. The cursor is always given: more may come."""
    query = (
        select(events.c.seq, events.c.time_s, events.c.kind, events.c.job_id, events.c.payload)
        .where(reader.owns(events), events.c.seq > seq)
        .order_by(events.c.seq)
        .limit(limit)
    )
    items = tuple(
        EventRow(row.seq, row.time_s, row.kind, row.job_id, json.loads(unpack(row.payload)))
        for row in reader.all(query)
    )
    return Page(items, str(items[-1].seq if items else seq))


def newest(reader: Reader) -> int:
    """The highest `seq` of the cluster, 0 where nothing has happened."""
    row = reader.first(newest_of(reader))
    return int(row.seq) if row else 0


def newest_of(reader: Reader) -> Select[tuple[int]]:
    """The same as a question. The maximum of a cluster's rows alone would be searched for in all of them."""
    return select(events.c.seq).where(reader.owns(events)).order_by(events.c.seq.desc()).limit(1)
