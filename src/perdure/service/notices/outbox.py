"""The outbox: what there were notices of, and their messages, kept in the journal's database until they are sent.

A notice and the message that carries it are written in one transaction, together with how far the events were read.
A message is written down as begun before it is sent, and from then on never changes: a service that is killed in
between sends the same text with the same key once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, delete, func, insert, select, update

from perdure.model.clean_text import clean
from perdure.service.notices.notice import Kind, Message, Notice, Severity
from perdure.service.notices.rules import HOUR_S, MAX_WAITING, Begun, PendingMessage, Rule, gathered, group_of
from perdure.service.store.codec import Codec
from perdure.service.store.database import Store
from perdure.service.store.queries.reader import as_text
from perdure.service.store.schema import messages, notices, notices_read

KEEP_S = 30 * 86_400.0
KEEP_MESSAGES, KEEP_NOTICES = 5_000, 50_000
_BATCH = 500  # values in one question

MESSAGE: Codec[Message] = Codec(Message)


class MessageState(StrEnum):
    """The state of a message."""

    GATHERING = "gathering"  # more notices may be added
    ON_ITS_WAY = "on_its_way"  # begun: tried until it arrives
    SENT = "sent"
    GIVEN_UP = "given_up"


_COLUMNS = (as_text(messages.c.payload).label("text"), messages.c.due_s, messages.c.begun_s, messages.c.tries)
WAITING = (MessageState.GATHERING.value, MessageState.ON_ITS_WAY.value)


@dataclass(frozen=True, slots=True)
class Routing:
    """Who is told, and what is told together."""

    rules: Sequence[Rule]
    personal: frozenset[str]
    group_s: float


class Outbox:
    """The outbox of one cluster. Safe to share between threads."""

    def __init__(self, store: Store, cluster: str) -> None:
        self.cluster = cluster
        self._store = store

    # -- what comes in

    def read_until(self) -> int | None:
        """The event up to which notices were made; None where none were ever."""
        with self._store.reading() as db:
            seq: int | None = db.scalar(select(notices_read.c.seq).where(notices_read.c.cluster == self.cluster))
            return seq

    def told(self, subjects: Iterable[str]) -> dict[str, Kind]:
        """The kind of the latest notice about each of these; nothing where there was none."""
        wanted, found = [clean(subject) for subject in subjects], dict[str, Kind]()
        with self._store.reading() as db:
            for part in _parts(wanted):
                mine = (notices.c.cluster == self.cluster, notices.c.subject.in_(part))
                latest = select(func.max(notices.c.seq)).where(*mine).group_by(notices.c.subject)
                rows = db.execute(select(notices.c.subject, notices.c.kind).where(notices.c.seq.in_(latest)))
                found |= {row.subject: Kind(row.kind) for row in rows}
        return found

    def add(self, new: Sequence[Notice], seq: int | None, routing: Routing, now: float) -> int:
        """Take in notices that follow from the events up to `seq`; how many of them found no room.

        None leaves the place where it is.
        """
        with self._store.writing() as db:
            dropped = self._gather(db, new, routing, now) if new else 0
            rows = [self._notice_row(each) for each in new]
            if rows:
                db.execute(insert(notices), rows)
            if seq is not None:
                self._move_to(db, seq)
        return dropped

    def forget_place(self) -> None:
        """Begin again with what happens from now on."""
        if self.read_until() is not None:
            with self._store.writing() as db:
                db.execute(delete(notices_read).where(notices_read.c.cluster == self.cluster))

    def _gather(self, db: Connection, new: Sequence[Notice], routing: Routing, now: float) -> int:
        mine = (messages.c.cluster == self.cluster, messages.c.state == MessageState.GATHERING.value)
        rows = db.execute(select(as_text(messages.c.payload).label("text")).where(*mine))
        open_ = {group_of(message): message for message in (MESSAGE.decode(row.text) for row in rows)}
        changed = gathered(open_, new, routing.rules, routing.personal, self.cluster)
        room, dropped = self._room(db, {group[0] for group in changed}), 0
        for group, message in changed.items():
            if group in open_:
                values = {"payload": MESSAGE.encode(message)}
                db.execute(update(messages).where(messages.c.key == message.key).values(values))
            elif self._is_known(db, message.key):
                pass  # the same fact, told before
            elif room[message.target] + _extra_room(message) > 0:
                room[message.target] -= 1
                db.execute(insert(messages).values(self._row(message, now + routing.group_s)))
            else:
                dropped += message.count
        return dropped

    def _is_known(self, db: Connection, key: str) -> bool:
        return db.scalar(select(messages.c.seq).where(messages.c.key == key)) is not None

    def _room(self, db: Connection, targets: set[str]) -> dict[str, int]:
        """How many more messages may wait for each target."""
        mine = (messages.c.cluster == self.cluster, messages.c.state.in_(WAITING))
        counted = select(messages.c.target, func.count().label("n")).where(*mine).group_by(messages.c.target)
        taken = {row.target: row.n for row in db.execute(counted)}
        return {target: MAX_WAITING - taken.get(target, 0) for target in targets}

    def _row(self, message: Message, due_s: float) -> dict[str, Any]:
        return {
            "key": message.key, "cluster": self.cluster, "target": message.target, "whose": clean(message.whose),
            "state": MessageState.GATHERING.value, "due_s": due_s, "tries": 0, "error": "",
            "payload": MESSAGE.encode(message),
        }  # fmt: skip

    def _notice_row(self, notice: Notice) -> dict[str, Any]:
        return {
            "cluster": self.cluster, "subject": clean(notice.subject), "kind": notice.kind.value,
            "time_s": notice.time_s,
        }  # fmt: skip

    def _move_to(self, db: Connection, seq: int) -> None:
        mine = notices_read.c.cluster == self.cluster
        if not db.execute(update(notices_read).where(mine).values(seq=seq)).rowcount:
            db.execute(insert(notices_read).values(cluster=self.cluster, seq=seq))

    # -- what goes out

    def waiting(self, target: str) -> list[PendingMessage]:
        """What a target has not been sent yet."""
        mine = (messages.c.cluster == self.cluster, messages.c.state.in_(WAITING), messages.c.target == target)
        with self._store.reading() as db:
            rows = db.execute(select(*_COLUMNS).where(*mine).order_by(messages.c.seq)).all()
        return [PendingMessage(MESSAGE.decode(row.text), row.due_s, row.begun_s, row.tries) for row in rows]

    def begun(self, target: str, now: float) -> Begun:
        """When messages to a target were begun within the last hour."""
        with self._store.reading() as db:
            return begun_of(db.execute(recently_begun(self.cluster, target, now)))

    def begin(self, key: str, now: float) -> PendingMessage | None:
        """Write down that a message is about to be sent, and with what; None where it is not waiting any more."""
        with self._store.writing() as db:
            gathering = (messages.c.key == key, messages.c.state == MessageState.GATHERING.value)
            db.execute(update(messages).where(*gathering).values(state=MessageState.ON_ITS_WAY.value, begun_s=now))
            mine = (messages.c.key == key, messages.c.state == MessageState.ON_ITS_WAY.value)
            row = db.execute(select(*_COLUMNS).where(*mine)).first()
        return PendingMessage(MESSAGE.decode(row.text), row.due_s, row.begun_s, row.tries) if row else None

    def sent(self, waiting: PendingMessage, now: float) -> None:
        """Write down that a message arrived."""
        self._end(waiting, state=MessageState.SENT.value, tries=waiting.tries + 1, ended_s=now, error="")

    def failed(self, waiting: PendingMessage, error: str, again_s: float | None, now: float) -> None:
        """Write down that a try failed, and when the next one is; None: the message is given up."""
        values: dict[str, Any] = {"tries": waiting.tries + 1, "error": clean(error)}
        if again_s is None:
            self._end(waiting, state=MessageState.GIVEN_UP.value, ended_s=now, **values)
        else:
            self._end(waiting, due_s=again_s, **values)

    def _end(self, waiting: PendingMessage, **values: Any) -> None:
        mine = (messages.c.key == waiting.message.key, messages.c.state == MessageState.ON_ITS_WAY.value)
        with self._store.writing() as db:
            db.execute(update(messages).where(*mine).values(**values))

    def give_up_strangers(self, targets: Iterable[str], now: float) -> int:
        """Give up what waits for targets that the settings do not name any more; how many messages that is."""
        mine = (
            messages.c.cluster == self.cluster,
            messages.c.state.in_(WAITING),
            messages.c.target.not_in([*targets]),
        )
        with self._store.writing() as db:
            values = {"state": MessageState.GIVEN_UP.value, "ended_s": now, "error": "no such target any more"}
            return db.execute(update(messages).where(*mine).values(values)).rowcount

    # -- retention

    def prune(self, now: float) -> None:
        """Forget what ended long ago, or beyond what is kept."""
        over = messages.c.state.not_in(WAITING)
        with self._store.writing() as db:
            self._keep(db, messages, KEEP_MESSAGES, over, over & (messages.c.ended_s < now - KEEP_S))
            self._keep(db, notices, KEEP_NOTICES, notices.c.seq > 0, notices.c.time_s < now - KEEP_S)

    def _keep(self, db: Connection, table: Table, most: int, over: Any, old: Any) -> None:
        mine = table.c.cluster == self.cluster
        edge = db.scalar(select(table.c.seq).where(mine).order_by(table.c.seq.desc()).offset(most).limit(1)) or 0
        db.execute(delete(table).where(mine, old | (over & (table.c.seq <= edge))))


def recently_begun(cluster: str, target: str, now: float) -> Select[Any]:
    """Asks for the messages to a target that were begun within the last hour."""
    mine = (messages.c.cluster == cluster, messages.c.target == target, messages.c.begun_s > now - HOUR_S)
    return select(as_text(messages.c.payload).label("text"), messages.c.begun_s).where(*mine)


def begun_of(rows: Iterable[Row[Any]]) -> Begun:
    """What `recently_begun` found, as the limits count it."""
    found = dict[tuple[str, Severity], list[float]]()
    for row in rows:
        message = MESSAGE.decode(row.text)
        found.setdefault((message.whose, message.kind.severity), []).append(row.begun_s)
    return found


def _extra_room(message: Message) -> int:
    """What is critical still finds room where other messages have taken all of it."""
    return MAX_WAITING if message.kind.severity is Severity.CRITICAL else 0


def _parts(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[at : at + _BATCH] for at in range(0, len(values), _BATCH))
