"""The outbox keeps what a plain list of messages would keep, whatever comes, in two clusters of one database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.service.notices import outbox, queries
from perdure.service.notices.notice import Kind, Message, Notice, Severity
from perdure.service.notices.outbox import Outbox, Routing
from perdure.service.notices.rules import FIRST_RETRY_S, HOUR_S, PendingMessage, Rule, gathered, group_of
from perdure.service.store.database import Store
from perdure.service.store.queries.reader import Reader
from tests.copying import replace
from tests.service.notices.three_targets import tell
from tests.service.web_world import site

CLUSTERS, TARGETS, USERS = ("a", "b"), ("ops", "mail", "old"), ("ada", "bob")
SUBJECTS = ("n1", "n2", "n3", "job:7")
ROUTING = Routing(
    (Rule(("ops", "old")), Rule(("mail",), severity=Severity.INFO)), frozenset({"mail"}), 30.0
)  # fmt: skip
MOST, KEPT, KEPT_NOTICES, KEEP_S = 3, 6, 9, 20_000.0
STEPS, SEEDS = 100, range(4)


@dataclass
class PlainMessage:
    """A message and its state."""

    cluster: str
    message: Message
    due_s: float
    state: str = "gathering"
    begun_s: float | None = None
    ended_s: float | None = None
    tries: int = 0
    error: str = ""
    seq: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.state in ("gathering", "on_its_way")

    @property
    def pending(self) -> PendingMessage:
        return PendingMessage(self.message, self.due_s, self.begun_s, self.tries)


class PlainOutbox:
    """The messages and notices of all clusters, in the order in which they came."""

    def __init__(self) -> None:
        self.messages: list[PlainMessage] = []
        self.notices: list[tuple[str, Notice]] = []
        self.read: dict[str, int] = {}
        self.count = Counter[str]()

    def of(self, cluster: str) -> list[PlainMessage]:
        return [each for each in self.messages if each.cluster == cluster]

    def find(self, key: str) -> PlainMessage | None:
        return next((each for each in self.messages if each.message.key == key), None)

    def add(self, cluster: str, new: Sequence[Notice], seq: int | None, now: float) -> int:
        known = {group_of(each.message): each for each in self.of(cluster) if each.state == "gathering"}
        open_ = {group: each.message for group, each in known.items()}
        dropped = 0
        for group, message in gathered(open_, new, ROUTING.rules, ROUTING.personal, cluster).items():
            taken = sum(each.is_waiting and each.message.target == group[0] for each in self.of(cluster))
            room = (2 if message.kind.severity is Severity.CRITICAL else 1) * MOST
            if group in known:
                known[group].message = message
            elif self.find(message.key):
                pass
            elif taken < room:
                self.count["message"] += 1
                made = PlainMessage(cluster, message, now + ROUTING.group_s, seq=self.count["message"])
                self.messages.append(made)
            else:
                dropped += message.count
        self.notices += [(cluster, notice) for notice in new]
        if seq is not None:
            self.read[cluster] = seq
        return dropped

    def begin(self, key: str, now: float) -> PendingMessage | None:
        found = self.find(key)
        if found is None or not found.is_waiting:
            return None
        if found.state == "gathering":
            found.state, found.begun_s = "on_its_way", now
        return found.pending

    def end(self, waiting: PendingMessage, error: str, again_s: float | None, now: float) -> None:
        found = self.find(waiting.message.key)
        if found is None or found.state != "on_its_way":
            return
        found.tries, found.error = waiting.tries + 1, error
        if again_s is not None:
            found.due_s = again_s
        else:
            found.state, found.ended_s = "given_up" if error else "sent", now

    def give_up(self, cluster: str, targets: Sequence[str], now: float) -> int:
        strangers = [each for each in self.of(cluster) if each.is_waiting and each.message.target not in targets]
        for each in strangers:
            each.state, each.ended_s, each.error = "given_up", now, "no such target any more"
        return len(strangers)

    def prune(self, cluster: str, now: float) -> None:
        latest = [each.seq for each in self.of(cluster)][-KEPT:]
        self.messages = [
            each for each in self.messages
            if each.cluster != cluster or each.is_waiting
            or (each.seq in latest and (each.ended_s or 0.0) >= now - KEEP_S)
        ]  # fmt: skip
        mine = [one for one in self.notices if one[0] == cluster][-KEPT_NOTICES:]
        mine = [one for one in mine if one[1].time_s >= now - KEEP_S]
        self.notices = [one for one in self.notices if one[0] != cluster or any(one is each for each in mine)]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_keeps_what_a_plain_list_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for name, value in (("MAX_WAITING", MOST), ("KEEP_MESSAGES", KEPT), ("KEEP_NOTICES", KEPT_NOTICES),
                        ("KEEP_S", KEEP_S)):  # fmt: skip
        monkeypatch.setattr(outbox, name, value)
    rng, plain, store = random.Random(seed), PlainOutbox(), Store.open(tmp_path, "a")
    boxes, now, begun = {cluster: Outbox(store, cluster) for cluster in CLUSTERS}, 1e6, list[PendingMessage]()
    try:
        for step in range(STEPS):
            now += rng.choice((1.0, 40.0, 1000.0))
            cluster = rng.choice(CLUSTERS)
            box, mine = boxes[cluster], plain.of(cluster)
            match rng.choice(("add", "add", "add", "begin", "begin", "end", "end", "end", "prune", "give up")):
                case "add":
                    new = [_notice(rng, now, at) for at in range(rng.randrange(4))]
                    seq = rng.choice((None, step))
                    assert box.add(new, seq, ROUTING, now) == plain.add(cluster, new, seq, now)
                case "begin":
                    key = rng.choice([*(each.message.key for each in mine[-8:]), "none"])
                    found = box.begin(key, now)
                    assert found == plain.begin(key, now)
                    begun += [found] if found else []
                case "end" if begun:
                    waiting, error = rng.choice(begun[-4:]), rng.choice(("", "", "it says 503", "gone"))
                    again_s = now + 60.0 if error == "it says 503" else None
                    whose = boxes[waiting.message.cluster]
                    if error:
                        whose.failed(waiting, error, again_s, now)
                    else:
                        whose.sent(waiting, now)
                    plain.end(waiting, error, again_s, now)
                case "prune":
                    box.prune(now)
                    plain.prune(cluster, now)
                case "give up":
                    targets = rng.choice((TARGETS, TARGETS[:2]))
                    assert box.give_up_strangers(targets, now) == plain.give_up(cluster, targets, now)
            for each in CLUSTERS:
                _check(boxes[each], Reader(store.engine, each), plain, now)
    finally:
        store.close()


def _notice(rng: random.Random, now: float, at: int) -> Notice:
    kind = rng.choice((Kind.NODE_DOWN, Kind.NODE_BACK, Kind.SUSPECT, Kind.PERSON_NEEDED, Kind.JOB_RETRIED))
    subject = rng.choice(SUBJECTS)
    return Notice(kind, subject, now - rng.choice((0.0, at)), subject, rng.choice((*USERS, "")))


def _check(box: Outbox, reader: Reader, plain: PlainOutbox, now: float) -> None:
    mine = plain.of(box.cluster)
    told = {notice.subject: notice.kind for cluster, notice in plain.notices if cluster == box.cluster}
    assert box.told([*SUBJECTS, "nothing"]) == told
    assert box.read_until() == plain.read.get(box.cluster)
    for target in TARGETS:
        own = [each for each in mine if each.message.target == target]
        assert box.waiting(target) == [each.pending for each in own if each.is_waiting]
        recent: dict[tuple[str, Severity], list[float]] = {}
        for each in own:
            if each.begun_s is not None and each.begun_s > now - HOUR_S:
                whose = each.message.whose, each.message.kind.severity
                recent.setdefault(whose, []).append(each.begun_s)
        assert {whose: sorted(at_s) for whose, at_s in box.begun(target, now).items()} == _sorted(recent)
        rows = queries.find_messages(reader, target=target, limit=200).items
        assert [
            (row.message, row.state, row.due_s, row.begun_s, row.ended_s, row.tries, row.error) for row in rows
        ] == [
            (e.message, e.state, e.due_s, e.begun_s, e.ended_s, e.tries, e.error) for e in reversed(own)
        ]  # fmt: skip
    assert queries.counts(reader) == Counter(each.state for each in mine)
    assert queries.waiting(reader) == Counter(each.message.target for each in mine if each.is_waiting)


def _sorted(recent: dict[tuple[str, Severity], list[float]]) -> dict[tuple[str, Severity], list[float]]:
    return {whose: sorted(at_s) for whose, at_s in recent.items()}


def test_a_place_that_is_forgotten_is_that_cluster_s_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "a")
    try:
        boxes = [Outbox(store, cluster) for cluster in CLUSTERS]
        for seq, box in enumerate(boxes):
            box.add([], seq, ROUTING, 0.0)
        assert [box.read_until() for box in boxes] == [0, 1]
        boxes[0].forget_place()
        assert [box.read_until() for box in boxes] == [None, 1]
    finally:
        store.close()


def test_a_message_that_arrived_keeps_no_error(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "a")
    try:
        box = Outbox(store, "a")
        box.add([Notice(Kind.NODE_DOWN, "n1", 5.0, "node n1")], None, replace(ROUTING, group_s=0.0), 5.0)
        waiting = box.begin(box.waiting("ops")[0].message.key, 6.0)
        assert waiting is not None
        box.failed(waiting, "it says 503", 9.0, 7.0)
        (again,) = [each for each in box.waiting("ops") if each.tries]
        box.sent(again, 10.0)
        row = queries.find_messages(Reader(store.engine, "a"), target="ops").items[0]
        assert (row.state, row.error, row.tries, row.ended_s) == ("sent", "", 2, 10.0)
    finally:
        store.close()


def test_what_failed_once_is_tried_again_after_the_first_wait(tmp_path: Path) -> None:
    world = site(tmp_path).world
    tell(world, tmp_path)
    (late,) = Outbox(world.journal.store, world.cluster).waiting("phone")
    assert (late.tries, late.due_s) == (1, world.now + FIRST_RETRY_S)
