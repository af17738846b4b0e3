"""Notices: who got which, and what could not be delivered."""

from __future__ import annotations

from fastapi import APIRouter

from perdure.service.notices import queries as notices
from perdure.service.notices.outbox import MessageState
from perdure.service.notices.queries import MessageRow
from perdure.service.notices.rules import WaitReason
from perdure.service.web.api.models import Item, Listing
from perdure.service.web.api.params import Cursor, Limit
from perdure.service.web.state import Here, Operator

router = APIRouter(tags=["notices"])


class MessageItem(Item):
    """A message to a target: of how many notices of one kind, and the first few they are about.

    `state` is gathering, on_its_way, sent or given_up; `error` says why the last try failed. `waits_for` says what one
    that is not over waits for, and `until_s` until when, where that is known.
    """

    key: str
    target: str
    kind: str
    severity: str
    title: str
    count: int
    about: list[str]
    first_s: float
    last_s: float
    state: str
    due_s: float
    begun_s: float | None
    ended_s: float | None
    tries: int
    error: str
    waits_for: str
    until_s: float | None

    @classmethod
    def of(cls, row: MessageRow, wait: WaitReason | None) -> MessageItem:
        message = row.message
        if row.state == MessageState.ON_ITS_WAY and row.tries:
            wait = WaitReason("waits to be tried again", row.due_s)
        return cls.of_parts(
            message,
            row,
            severity=message.kind.severity,
            about=[notice.name for notice in message.notices],
            waits_for=wait.why if wait else "",
            until_s=wait.until_s if wait else None,
        )


@router.get("/notices")
def list_notices(
    web: Here,
    identity: Operator,  # noqa: ARG001
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[MessageItem]:
    """Messages that tell people of what happened, the latest first. For operators: they name all users' jobs."""
    page = notices.find_messages(web.reader, cursor=cursor, limit=limit)
    waits = notices.wait_reasons(web.reader, page.items, web.settings.notices, web.now())
    return Listing(items=[MessageItem.of(row, waits.get(row.seq)) for row in page.items], next_cursor=page.next_cursor)
