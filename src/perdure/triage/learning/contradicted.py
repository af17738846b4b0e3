"""Whose evidence is set aside without an operator: users whom others contradict on message after message.

Caps let no user weigh more than their share of any one message (`testimony`). Who forges outcomes of many messages can
still sway each that few have seen yet. So a user is named where of at least `LEAST_MESSAGES` messages

- at least `LEAST_OPPOSING` users saw the opposite, `TIMES_OPPOSING` times as many as saw the same, and `LEAST_SHARE`
  of all that others saw is the opposite: a message that passes at random parts users, and is left out;
- this is so without any `WINDOW_DAYS` days in a row: one flaky hour that turns what anybody saw round names nobody;

and others bear them out of few other messages. Two users who work together get nobody named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

LEAST_MESSAGES = 5
LEAST_OPPOSING, TIMES_OPPOSING = 3, 3
LEAST_SHARE = 0.9
WINDOW_DAYS = 2
TIMES_CONTRADICTED = 3
"""So many times as often contradicted as borne out."""

Days = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What one job of a user showed of a message, and on which day, counted from any."""

    message: str
    user: str
    passed: bool
    day: int


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A user whom others contradict, and how often."""

    user: str
    messages: int
    others: int  # the fewest who contradict the user of one of these messages
    borne_out: int  # messages of which others saw the same

    @property
    def says(self) -> str:
        """The reason, for a person.

        >>> Contradicted("eve", 5, 3, 0).says
        'of 5 messages at least 3 other users each saw the opposite'
        """
        borne_out = f", of {self.borne_out} the same" if self.borne_out else ""
        return f"of {self.messages} messages at least {self.others} other users each saw the opposite{borne_out}"


@dataclass(slots=True)
class _DaysSeen:
    """One user's outcomes of one message, by the day of each."""

    passed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def counts(self, without: Days | None) -> tuple[int, int]:
        """How many passed, and failed, outside of the days from the first to the second of `without`."""
        if without is None:
            return len(self.passed), len(self.failed)
        first, last = without
        passed, failed = (sum(not first <= day <= last for day in days) for days in (self.passed, self.failed))
        return passed, failed


_Message = dict[str, _DaysSeen]  # by user


@dataclass(slots=True)
class _AmongOthers:
    """How a user stands among others: messages of which these contradict the user, and of how many they do not."""

    opposed: list[tuple[_Message, int]] = field(default_factory=list)  # with what the user saw: 1 passes, -1 failures
    others: int = 0  # the fewest on one of these
    borne_out: int = 0


def contradicted(found: Iterable[Witnessed]) -> list[Contradicted]:
    """The users whose outcomes are to be set aside, by name."""
    standings: dict[str, _AmongOthers] = {}
    for message in _by_message(found).values():
        _compare(message, standings)
    return [
        Contradicted(user, len(one.opposed), one.others, one.borne_out)
        for user, one in sorted(standings.items())
        if len(one.opposed) >= LEAST_MESSAGES
        and len(one.opposed) > TIMES_CONTRADICTED * one.borne_out
        and _is_of_no_window(user, one.opposed)
    ]


def _by_message(found: Iterable[Witnessed]) -> dict[str, _Message]:
    messages: dict[str, _Message] = {}
    for each in found:
        account = messages.setdefault(each.message, {}).setdefault(each.user, _DaysSeen())
        (account.passed if each.passed else account.failed).append(each.day)
    return messages


def _compare(message: _Message, standings: dict[str, _AmongOthers]) -> None:
    """Note of each user of one message whether others contradict them, or bear them out."""
    sides = _sides(message, None)
    for lean, mine in sides.items():
        others = _opposition(sides, lean)
        agreeing, opposing = len(mine) - 1, len(sides[-lean])
        for user in mine if lean else ():
            standing = standings.setdefault(user, _AmongOthers())
            if others:
                standing.opposed.append((message, lean))
                standing.others = min(standing.others or others, others)
            elif agreeing >= max(1, TIMES_OPPOSING * opposing):
                standing.borne_out += 1


_Sides = Mapping[int, Mapping[str, tuple[int, int]]]  # 1 who saw passes, -1 failures, 0 as many of both: their counts


def _sides(message: _Message, without: Days | None) -> _Sides:
    sides: dict[int, dict[str, tuple[int, int]]] = {1: {}, -1: {}, 0: {}}
    for user, account in message.items():
        passed, failed = account.counts(without)
        if passed or failed:
            sides[(passed > failed) - (passed < failed)][user] = (passed, failed)
    return sides


def _opposition(sides: _Sides, lean: int) -> int:
    """How many users contradict those of one side; 0 where these are too few, or others do not agree."""
    opposing, agreeing = len(sides[-lean]), len(sides[lean]) - 1
    if opposing < max(LEAST_OPPOSING, TIMES_OPPOSING * agreeing) or not lean:
        return 0
    others = [*sides[-lean].values(), *sides[0].values()]
    passed, failed = (sum(counts) for counts in zip(*others, strict=True))
    opposite = failed if lean > 0 else passed
    return opposing if opposite >= LEAST_SHARE * (passed + failed) else 0


def _is_of_no_window(user: str, opposed: Sequence[tuple[_Message, int]]) -> bool:
    """Whether enough messages contradict a user whichever days in a row are left out."""
    accounts = [account for message, _ in opposed for account in message.values()]
    days = {day for account in accounts for day in (*account.passed, *account.failed)}
    for first in sorted(days):
        without, left = (first, first + WINDOW_DAYS - 1), 0
        for message, lean in opposed:
            sides = _sides(message, without)
            left += user in sides[lean] and _opposition(sides, lean) > 0
        if left < LEAST_MESSAGES:
            return False
    return True
