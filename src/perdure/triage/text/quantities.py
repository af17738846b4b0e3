"""Sizes and times as messages write them, in bytes and seconds."""

from __future__ import annotations

from perdure.triage.text.patterns import capturing

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

SIZE = r"(\d[\d,]{0,22}(?:\.\d{0,9})?) ?-?((?i:[KMGT]i?B|[KMGT]i|[KMG]|bytes?|B))?\b"
"""A number with or without a unit of size, in two groups."""

SIZE_WITH_UNIT = SIZE.replace("bytes?|B))?", "bytes?|B))")
"""The same; a bare number is none."""

DURATION = (
    r"((?:\d{1,7}(?:\.\d{1,9})? ?(?i:milliseconds?|msecs?|ms|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\b "
    r"?)+|(?:\d{1,3}[hms]){1,3}|\d{1,7}(?:\.\d{1,9})?\b)"
)
"""A time to wait, such as 90, 12.5s, 2m30s or 5 minutes, in one group."""

SPAN = rf"(?:((?:\d{{1,3}}-)?\d{{1,4}}:\d\d:\d\d)|{DURATION})"
"""The same, or one as resource managers write it: 1-02:03:04, 26:03:04; in one of two groups."""

_UNITS = {
    "": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": KIB, "m": MIB, "g": GIB, "ki": KIB, "mi": MIB, "gi": GIB, "ti": 1 << 40,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1 << 40,
}  # fmt: skip

_PART = r"(\d+(?:\.\d+)?) ?((?i:m(?:illi)?s(?:ec)?|[hms])?)"


def size_in(pattern: str, line: bytes) -> int | None:
    """The first size that a pattern which holds `SIZE` finds, in bytes; None where it finds none."""
    found = capturing(pattern).search(line)
    if not found:
        return None
    told = [group for group in found.groups() if group is not None]
    return to_bytes(told[0], told[1] if len(told) > 1 else b"")


def to_bytes(number: bytes, unit: bytes | None) -> int:
    """
    >>> to_bytes(b"1,024", b"KiB"), to_bytes(b"64", b"Gi") // GIB
    (1048576, 64)
    """
    return int(float(number.replace(b",", b"")) * _UNITS[(unit or b"").decode().lower()])


def to_seconds(told: bytes) -> float:
    """
    >>> to_seconds(b"2m30s"), to_seconds(b"500 ms"), to_seconds(b"5 minutes"), to_seconds(b"90")
    (150.0, 0.5, 300.0, 90.0)
    >>> to_seconds(b"1-00:01:40"), to_seconds(b"26:00:00")
    (86500.0, 93600.0)
    """
    if b":" in told:
        days, _, clock = told.rpartition(b"-")
        hours, minutes, seconds = map(int, clock.split(b":"))
        return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)
    scale = {b"": 1.0, b"s": 1.0, b"m": 60.0, b"h": 3600.0}
    parts = ((float(found[1]), found[2].lower()) for found in capturing(_PART).finditer(told))
    return sum(number * (1e-3 if len(unit) > 1 else scale[unit]) for number, unit in parts)
