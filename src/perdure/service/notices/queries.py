"""Messages that notify people, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from perdure.model.clean_text import clean
from perdure.service.notices.notice import Message
from perdure.service.notices.outbox import MESSAGE, WAITING, MessageState, begun_of, recently_begun
from perdure.service.notices.rules import Begun, Group, NoticeLimits, PendingMessage, WaitReason, group_of, wait_reason
from perdure.service.store.queries.reader import Page, Reader, as_text, paged, position
from perdure.service.store.schema import messages


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message to one target. Instants are seconds since the epoch."""

    seq: int
    message: Message
    state: str  # service.notices.outbox.MessageState
    due_s: float
    begun_s: float | None
    ended_s: float | None
    tries: int
    error: str


def find_messages(
    reader: Reader, *, state: str = "", target: str = "", cursor: str | None = None, limit: int = 50
) -> Page[MessageRow]:
    """Messages, the latest first; "" stands for any state and any target."""
    m = messages.c
    columns = (m.seq, as_text(m.payload).label("text"), m.state, m.due_s, m.begun_s, m.ended_s, m.tries, m.error)
    query = select(*columns).where(reader.owns(messages), m.seq < position(cursor))
    if state:
        query = query.where(m.state == state)
    if target:
        query = query.where(m.target == clean(target))
    rows = reader.all(query.order_by(m.seq.desc()).limit(limit + 1))
    return paged(rows, [_row(*row) for row in rows], limit)


def _row(seq: int, text: str, *rest: object) -> MessageRow:
    return MessageRow(seq, MESSAGE.decode(text), *rest)  # type: ignore[arg-type]


def wait_reasons(reader: Reader, rows: Sequence[MessageRow], limits: NoticeLimits, now: float) -> dict[int, WaitReason]:
    """What each of `rows` that still gathers waits for, by its `seq`."""
    gathering = [row for row in rows if row.state == MessageState.GATHERING]
    standing = {target: _standing(reader, target, now) for target in {row.message.target for row in gathering}}
    return {
        row.seq: wait_reason(PendingMessage(row.message, row.due_s), *standing[row.message.target], limits, now)
        for row in gathering
    }


def _standing(reader: Reader, target: str, now: float) -> tuple[set[Group], Begun]:
    """The groups of which a message to `target` is on its way, and what was begun within the hour."""
    m = messages.c
    mine = (reader.owns(messages), m.target == clean(target), m.state == MessageState.ON_ITS_WAY.value)
    rows = reader.all(select(as_text(m.payload).label("text")).where(*mine))
    recently = reader.all(recently_begun(reader.cluster, clean(target), now))
    return {group_of(MESSAGE.decode(row.text)) for row in rows}, begun_of(recently)


def counts(reader: Reader) -> dict[str, int]:
    """How many messages are in each state."""
    m = messages.c
    counted = select(m.state, func.count().label("number")).where(m.cluster == reader.cluster)
    return {row.state: row.number for row in reader.all(counted.group_by(m.state))}


def waiting(reader: Reader) -> dict[str, int]:
    """How many messages wait, by target."""
    m = messages.c
    counted = select(m.target, func.count().label("number")).where(m.cluster == reader.cluster, m.state.in_(WAITING))
    return {row.target: row.number for row in reader.all(counted.group_by(m.target))}
