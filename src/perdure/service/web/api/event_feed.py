"""The newest events, read once for all who listen: a thousand listeners cost the journal as much as one."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastapi.concurrency import run_in_threadpool

from perdure.service.store.queries.events import EventRow
from perdure.service.store.queries.jobs import NOBODY, Owner
from perdure.service.web.api.models import EventItem

KEPT = 4096  # events in memory; who is further behind reads the journal
BATCH = 200


@dataclass(slots=True)
class FeedItem:
    """One event as listeners get it; what it says is made into text once for all who may read the same of it."""

    row: EventRow
    owner: str  # of the job that it is about; "" where it is about none
    _said: dict[bool, str] = field(default_factory=dict)

    def said(self, *, with_log: bool) -> str:
        """The message of a server-sent event."""
        if with_log not in self._said:
            data = json.dumps(EventItem.of(self.row, with_log=with_log).model_dump())
            self._said[with_log] = f"id: {self.row.seq}\nevent: {self.row.kind}\ndata: {data}\n\n"
        return self._said[with_log]


Read = Callable[[int, int], list[EventRow]]
Owners = Callable[[set[str]], Mapping[str, Owner]]


class EventFeed:
    """Belongs to one event loop. While somebody listens, a task reads what is new every `every_s` seconds."""

    def __init__(self, read: Read, newest: Callable[[], int], owners: Owners, every_s: float) -> None:
        self._read, self._newest, self._owners, self._every_s = read, newest, owners, every_s
        self._kept: list[FeedItem] = []
        self._until = 0  # the highest `seq` that was read
        self._since = 0  # everything after this one, up to `_until`, is kept
        self._news = asyncio.Condition()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Begin to listen."""
        self._listeners += 1
        if self._task is None:
            self._until = self._since = await run_in_threadpool(self._newest)
            self._kept = []
            if self._task is None:  # nobody else began meanwhile
                self._task = asyncio.create_task(self._poll())

    def leave(self) -> None:
        """Listen no more. The last one to leave ends the reading."""
        self._listeners -= 1
        if self._listeners == 0 and self._task is not None:
            self._task.cancel()
            self._task = None

    async def after(self, seq: int, patience_s: float) -> list[FeedItem]:
        """What comes after `seq`, at once where there is something; else what came within `patience_s`, or nothing."""
        if seq < self._since:
            return await run_in_threadpool(self._from_journal, seq)
        if self._until <= seq:
            try:
                async with asyncio.timeout(patience_s), self._news:
                    await self._news.wait()
            except TimeoutError:
                return []
        return self._kept[bisect_right(self._kept, seq, key=lambda heard: heard.row.seq) :][:BATCH]

    async def _poll(self) -> None:
        while True:
            new = await run_in_threadpool(self._from_journal, self._until)
            if new:
                self._take(new)
                async with self._news:
                    self._news.notify_all()
            if len(new) < BATCH:
                await asyncio.sleep(self._every_s)

    def _take(self, new: list[FeedItem]) -> None:
        self._kept += new
        self._until = new[-1].row.seq
        if len(self._kept) > 2 * KEPT:
            self._since = self._kept[-KEPT - 1].row.seq
            del self._kept[:-KEPT]

    def _from_journal(self, seq: int) -> list[FeedItem]:
        rows = self._read(seq, BATCH)
        owners = self._owners({row.job_id for row in rows if row.job_id})
        return [FeedItem(row, owners.get(row.job_id, NOBODY).at(row.time_s)) for row in rows]
