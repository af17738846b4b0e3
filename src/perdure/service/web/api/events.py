"""The journal's events: page by page, or as a stream that can be taken up again where it broke off."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from perdure.errors import PerdureError, TooMany
from perdure.service.access.auth import Identity
from perdure.service.store.queries import events, jobs
from perdure.service.store.queries.events import EventRow
from perdure.service.web.api.event_feed import EventFeed, FeedItem
from perdure.service.web.api.models import EventItem, Listing
from perdure.service.web.api.params import Limit, OfJob, Word
from perdure.service.web.roles import is_still_known, operator
from perdure.service.web.state import Here, Viewer, WebState

router = APIRouter(tags=["events"])

HEARTBEAT_S = 15.0
PATIENCE_S = 1.0  # a stream looks this often whether it is to end
MAX_SEQ = 2**62
_SEQ = re.compile("[0-9]{1,18}")
Seq = Annotated[int, Query(ge=0, le=MAX_SEQ, description="Only events of a higher `seq`")]


@router.get("/events")
def list_events(web: Here, identity: Viewer, after: Seq = 0, limit: Limit = 100) -> Listing[EventItem]:
    """Events after a place, the oldest first. `next_cursor` is the place to go on from; it is never null."""
    page = events.events_after(web.reader, after, limit)
    return Listing(items=_items(web, identity, page.items), next_cursor=page.next_cursor)


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events"}},
)
async def stream(
    request: Request,
    web: Here,
    identity: Viewer,
    after: Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="Not given: only what is new")] = None,
    kind: Annotated[list[Word] | None, Query(description="Only events of this kind; repeatable")] = None,
    job_id: OfJob = "",
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The last `seq` that was seen: the stream goes on after it"),
    ] = None,
) -> StreamingResponse:
    """Events as they are written down, each with its `seq` as id. `Last-Event-ID` takes a broken stream up again.

    An id without an event comes first, and now and then where there is nothing to tell: the place reached.
    """
    listeners: Listeners = request.app.state.listeners
    if last_event_id and _SEQ.fullmatch(last_event_id):
        start = int(last_event_id)
    else:
        start = after if after is not None else await run_in_threadpool(events.newest, web.reader)
    wanted = Wanted(identity, frozenset(kind or ()), job_id)
    told = _stream(wanted, start, listeners, lambda: is_still_known(request, identity))
    await anext(told)  # takes a place here, where there may be none; once begun it gives it back whatever happens
    return StreamingResponse(told, media_type="text/event-stream")


@dataclass(eq=False, slots=True)
class ListenerSlot:
    """One listener's."""

    user: str
    is_taken_back: bool = False


class Listeners:
    """Who listens at one time, to what, and whether they are to be sent home.

    Where there is no place left, who has few gets one of the user who has most.
    """

    def __init__(self, most: int, tail: EventFeed) -> None:
        self._most = most
        self._places: defaultdict[str, list[ListenerSlot]] = defaultdict(list)
        self.tail = tail
        self.closing = False

    @property
    def here(self) -> int:
        """How many listen."""
        return sum(map(len, self._places.values()))

    async def enter(self, user: str) -> ListenerSlot:
        """Raises `TooMany`."""
        here = self.here
        if here >= self._most:
            most = max(self._places.values(), key=len, default=[])
            if len(most) <= len(self._places.get(user, ())) + 1:
                raise TooMany("events", f"{here} listen already", "Close one, or ask /api/v1/events now and then")
            most.pop().is_taken_back = True
        place = ListenerSlot(user)
        self._places[user].append(place)
        try:
            await self.tail.enter()
        except BaseException:
            self.leave(place)
            raise
        return place

    def leave(self, place: ListenerSlot) -> None:
        if not place.is_taken_back:
            self._places[place.user].remove(place)
        if not self._places.get(place.user):
            self._places.pop(place.user, None)
        self.tail.leave()

    def close(self) -> None:
        """End all streams soon, so that a server can stop without waiting for them."""
        self.closing = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one listener wants to hear, and may."""

    identity: Identity
    kinds: frozenset[str] = frozenset()
    job_id: str = ""

    def text_of(self, heard: FeedItem) -> str:
        """The message; "" where it is not for this listener."""
        row = heard.row
        if (self.kinds and row.kind not in self.kinds) or (self.job_id and row.job_id != self.job_id):
            return ""
        return heard.said(with_log=not row.job_id or self.identity.may_read_logs_of(heard.owner))


async def _stream(wanted: Wanted, seq: int, listeners: Listeners, may_stay: Callable[[], bool]) -> AsyncIterator[str]:
    quiet_s, asked_s = 0.0, time.monotonic()
    place = await listeners.enter(wanted.identity.user)
    try:
        yield ""
        yield f"id: {seq}\n\n"  # no event, but the place to go on from where the stream breaks before the first
        while not (listeners.closing or place.is_taken_back):
            heard = await listeners.tail.after(seq, PATIENCE_S)
            if time.monotonic() - asked_s >= PATIENCE_S:
                if not may_stay():
                    return
                asked_s = time.monotonic()
            said = "".join(map(wanted.text_of, heard))
            seq = heard[-1].row.seq if heard else seq
            quiet_s = 0.0 if said else quiet_s + (0.0 if heard else PATIENCE_S)
            if said:
                yield said
            elif quiet_s >= HEARTBEAT_S:
                quiet_s = 0.0
                yield f"id: {seq}\n\n"
    except PerdureError as err:
        yield f"event: problem\ndata: {json.dumps(str(err))}\n\n"
    finally:
        listeners.leave(place)


def _items(web: WebState, identity: Identity, rows: tuple[EventRow, ...]) -> list[EventItem]:
    """Viewers get what programs and logs said of their own jobs alone."""
    if identity.role.covers(operator.role):
        return [EventItem.of(row, with_log=True) for row in rows]
    owners = jobs.owners_of(web.reader, {row.job_id for row in rows if row.job_id})
    said_to = ((row, owners.get(row.job_id, jobs.NOBODY).at(row.time_s)) for row in rows)
    return [EventItem.of(row, with_log=identity.may_read_logs_of(owner)) for row, owner in said_to]
