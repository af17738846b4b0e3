"""The time that a log line says of itself, in the forms that loggers, launchers and kernels write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from perdure.triage.text.patterns import capturing, compiled

LOOKED_AT_BYTES = 100  # a time is near the start of its line
DAY_S = 86400.0
_ANY_YEAR = 2000  # a leap year, for dates that name none


class Form(StrEnum):
    """What seconds count from."""

    DATE = "date"  # 1970
    DAY_OF_YEAR = "day of the year"  # a year that nobody named
    TIME_OF_DAY = "time of day"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A point in time as one line writes it."""

    form: Form
    seconds: float


def comparable(stamps: Sequence[Stamp]) -> list[float]:
    """Seconds that can be compared; where a stamp has no date, times of day, midnight bridged.

    >>> comparable([Stamp(Form.TIME_OF_DAY, 86_390.0), Stamp(Form.TIME_OF_DAY, 5.0)])
    [86390.0, 86405.0]
    """
    if len({stamp.form for stamp in stamps}) < 2 and Form.TIME_OF_DAY not in {stamp.form for stamp in stamps}:
        return [stamp.seconds for stamp in stamps]
    times = [stamp.seconds % DAY_S for stamp in stamps]
    if max(times) - min(times) <= DAY_S / 2:
        return times
    return [time + DAY_S if time < DAY_S / 2 else time for time in times]


def may_hold_time(data: bytes) -> bool:
    """False where no line of a stretch has a time that `stamp_of` finds."""
    return compiled(_ANY).search(data) is not None


def stamp_of(line: bytes) -> Stamp | None:
    """The first time near the start of a line; None where it has none. Time zones are taken for the same.

    >>> stamp_of(b"[rank3]: 2025-01-02 03:04:05,500 ERROR x")
    Stamp(form=<Form.DATE: 'date'>, seconds=1735787045.5)
    """
    head = line[:LOOKED_AT_BYTES]
    if compiled(_ANY).search(head) is None:
        return None
    found = capturing(_ANY).search(head)
    try:
        return _READERS[found.lastgroup.decode()](found.group().decode())
    except ValueError:  # such as the 31st of February
        return None


_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ANY = (
    rf"(?P<iso>\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK})"
    rf"|(?P<us>\b\d\d/\d\d/\d{{4}} {_CLOCK})"
    rf"|(?P<short>\b\d\d/\d\d/\d\d {_CLOCK})"
    rf"|(?P<syslog>\b(?:{'|'.join(_MONTHS)}) [ \d]\d {_CLOCK}(?: \d{{4}}\b)?)"
    rf"|(?P<glog>\b[DIWEF]\d{{4}} {_CLOCK})"
    rf"|(?P<clock>\b{_CLOCK}\b)"
)


def _clock_s(text: str) -> float:
    hours, minutes, seconds = text.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _date_s(year: int, month: int, day: int, clock: str) -> float:
    return datetime(year, month, day, tzinfo=UTC).timestamp() + _clock_s(clock)


def _iso(text: str) -> Stamp:
    return Stamp(Form.DATE, _date_s(int(text[:4]), int(text[5:7]), int(text[8:10]), text[11:]))


def _us(text: str) -> Stamp:
    return Stamp(Form.DATE, _date_s(int(text[6:10]), int(text[:2]), int(text[3:5]), text[11:]))


def _short(text: str) -> Stamp:  # of log4j: yy/MM/dd
    return Stamp(Form.DATE, _date_s(2000 + int(text[:2]), int(text[3:5]), int(text[6:8]), text[9:]))


def _syslog(text: str) -> Stamp:
    month, day, clock, *year = text.split()
    number = _MONTHS.index(month) + 1
    if year:
        return Stamp(Form.DATE, _date_s(int(year[0]), number, int(day), clock))
    return Stamp(Form.DAY_OF_YEAR, _date_s(_ANY_YEAR, number, int(day), clock))


def _glog(text: str) -> Stamp:
    return Stamp(Form.DAY_OF_YEAR, _date_s(_ANY_YEAR, int(text[1:3]), int(text[3:5]), text[6:]))


def _clock(text: str) -> Stamp:
    return Stamp(Form.TIME_OF_DAY, _clock_s(text))


_READERS: dict[str, Callable[[str], Stamp]] = {
    "iso": _iso, "us": _us, "short": _short, "syslog": _syslog, "glog": _glog, "clock": _clock,
}  # fmt: skip
