"""Who gets a notice, which notices go together, and when. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta, Struct

from perdure.service.notices.notice import NAMED, Kind, Message, Notice, Severity, first_message

HOUR_S = 3600.0
FIRST_RETRY_S = 5.0
LONGEST_WAIT_S = 900.0  # from one try to the next
MAX_WAITING = 1000  # messages of one target; of personal ones there may be many

_Name = Annotated[str, Meta(min_length=1)]


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """Which notices go to which targets. What is left empty matches all."""

    to: Annotated[tuple[_Name, ...], Meta(min_length=1, description="a list of targets, at least one")]
    kinds: tuple[str, ...] = ()
    users: tuple[_Name, ...] = ()
    partitions: tuple[_Name, ...] = ()
    severity: Severity = Severity.WARNING  # and all above

    def matches(self, notice: Notice) -> bool:
        return (
            (not self.kinds or notice.kind in self.kinds)
            and (not self.users or notice.user in self.users)
            and (not self.partitions or bool(set(self.partitions) & set(notice.partition.split(","))))
            and notice.severity.rank >= self.severity.rank
        )


@dataclass(frozen=True, slots=True)
class NoticeLimits:
    """When messages are sent."""

    group_s: float = 30.0  # that a message waits for more of its kind
    per_hour: int = 30  # messages of one severity begun in any hour, to one target, or to one person by it
    retry_for_s: float = 86_400.0  # after which a message that cannot be delivered is given up


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that is not sent yet. `begun_s` is None while it still takes in notices."""

    message: Message
    due_s: float
    begun_s: float | None = None
    tries: int = 0


Address = tuple[str, str]  # a target, and whose mailbox where it addresses persons


def addresses_of(notice: Notice, rules: Sequence[Rule], personal: Collection[str]) -> Iterator[Address]:
    """Where a notice goes, each address once. A `personal` target is told only of what is somebody's."""
    targets = dict.fromkeys(target for rule in rules if rule.matches(notice) for target in rule.to)
    for target in targets:
        if target not in personal:
            yield target, ""
        elif notice.user:
            yield target, notice.user


Group = tuple[str, str, Kind]  # target, whose, kind: what is told together


def gathered(
    open_: Mapping[Group, Message], notices: Iterable[Notice], rules: Sequence[Rule], personal: Collection[str],
    cluster: str,
) -> dict[Group, Message]:  # fmt: skip
    """The messages that change when `notices` come in; `open_` are those that still take some."""
    changed: dict[Group, Message] = {}
    for notice in notices:
        for target, whose in addresses_of(notice, rules, personal):
            group = (target, whose, notice.kind)
            known = changed.get(group) or open_.get(group)
            changed[group] = joined(known, notice) if known else first_message(cluster, target, whose, notice)
    return changed


def joined(message: Message, notice: Notice) -> Message:
    """A message with one notice more."""
    named = (*message.notices, notice) if len(message.notices) < NAMED else message.notices
    return replace(message, notices=named, count=message.count + 1, last_s=max(message.last_s, notice.time_s))


Begun = Mapping[tuple[str, Severity], Sequence[float]]
"""The instants of the last hour at which messages to one target were begun, by whose they are and their severity."""


def next_to_send(
    waiting: Iterable[PendingMessage], begun: Begun, limits: NoticeLimits, now: float
) -> PendingMessage | None:
    """What one target is to be sent now: the most severe, and of one severity what was begun, then what waits longest.

    While a message of a group is on its way, the next one of that group goes on gathering.
    """
    found = list(waiting)
    on_their_way = {group_of(each.message) for each in found if each.begun_s is not None}
    ready = [
        each
        for each in found
        if _is_due(each.due_s, limits, now)
        and (each.begun_s is not None or _may_begin(each.message, on_their_way, begun, limits, now))
    ]
    return min(ready, key=_turn, default=None)


def _turn(waiting: PendingMessage) -> tuple[int, bool, float, str]:
    message = waiting.message
    return (-message.kind.severity.rank, waiting.begun_s is None, waiting.due_s, message.key)


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a message is not begun yet, in words, and until when; None where no instant is known."""

    why: str
    until_s: float | None = None


def wait_reason(
    waiting: PendingMessage, on_their_way: Collection[Group], begun: Begun, limits: NoticeLimits, now: float
) -> WaitReason:
    """What a message that still gathers waits for; `on_their_way` are the groups of those that were begun."""
    if not _is_due(waiting.due_s, limits, now):
        return WaitReason("waits for more of its kind", waiting.due_s)
    if group_of(waiting.message) in on_their_way:
        return WaitReason("waits until the message before it has arrived")
    recently = _recently(waiting.message, begun, now)
    if len(recently) >= limits.per_hour:
        severity, most = waiting.message.kind.severity, limits.per_hour
        why = f"held: {len(recently)} {severity} messages in the last hour, and notices.per_hour is {most}"
        return WaitReason(why, sorted(recently)[-most] + HOUR_S)
    return WaitReason("is next")


def _is_due(due_s: float, limits: NoticeLimits, now: float) -> bool:
    """An instant further ahead than any wait was written under a clock that has been put right since."""
    return due_s <= now or due_s > now + LONGEST_WAIT_S + limits.group_s


def _may_begin(
    message: Message, on_their_way: Collection[Group], begun: Begun, limits: NoticeLimits, now: float
) -> bool:
    return group_of(message) not in on_their_way and len(_recently(message, begun, now)) < limits.per_hour


def _recently(message: Message, begun: Begun, now: float) -> list[float]:
    """When messages that count against the same limit were begun within the hour."""
    return [at_s for at_s in begun.get((message.whose, message.kind.severity), ()) if now - HOUR_S < at_s <= now]


def group_of(message: Message) -> Group:
    """What is told together."""
    return (message.target, message.whose, message.kind)


def retry_at(tries: int, begun_s: float, limits: NoticeLimits, now: float) -> float | None:
    """When a message is tried again that failed `tries` times; None where it is given up."""
    if now - begun_s >= limits.retry_for_s:
        return None
    return now + min(LONGEST_WAIT_S, FIRST_RETRY_S * 2.0 ** (min(tries, 20) - 1))
