"""Single values of a text that anybody may have written: each is of the right kind and bounded, or is left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import re2

from perdure.coordination.wire import MAX_ITEMS, MAX_MANY, MAX_NOTE, MAX_WORD
from perdure.errors import InputError
from perdure.slurm_words.hostlist import expand, is_node_name

LARGEST = 2**63 - 1
_LATEST_S = 1e12  # as `wire` has it
_HUMP = re2.compile(r"([a-z0-9])([A-Z])")
_SHORT_WORD = re2.compile(r"([A-Z])([A-Z][a-z])")  # GPUHealthy
_OTHER = re2.compile(r"[^a-z0-9]+")
_NAME = re2.compile(r"[A-Za-z0-9][A-Za-z0-9._+/\[\]\-]*")


def digest(*facts: object) -> str:
    """A short name made of facts: the same facts, the same name."""
    return hashlib.sha256("\x1f".join(map(str, facts)).encode("utf-8", "replace")).hexdigest()[:32]


def clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def line(value: Any, longest: int = MAX_WORD) -> str:
    """A text on one line without control characters; "" for what is not text."""
    if not isinstance(value, str):
        return ""
    cut = value[: 4 * longest]
    return clipped(" ".join("".join(char if char.isprintable() else " " for char in cut).split()), longest)


def passage(value: Any, longest: int = MAX_NOTE) -> str:
    """A text of several lines, its end kept where it is too long: that is where a traceback says what happened."""
    if not isinstance(value, str):
        return ""
    kept = value if len(value) <= longest else f"…{value[1 - longest :]}"
    return "".join(char if char.isprintable() or char == "\n" else " " for char in kept).strip()


def name(value: Any) -> str:
    """A name of one word, as jobs and programs have: "" for anything else."""
    text = str(value) if is_whole(value) else value
    return text if isinstance(text, str) and len(text) <= MAX_WORD and _NAME.fullmatch(text) else ""


def node(value: Any) -> str:
    """The name of one node, without a trailing dot; "" for what cannot be one."""
    text = value.strip().rstrip(".") if isinstance(value, str) else ""
    return text if len(text) <= MAX_WORD and is_node_name(text) else ""


def nodes(value: Any) -> tuple[str, ...]:
    """The nodes of Slurm's and Flux's short form, ``n[1-2,7]``; () for what is not such a list, and for too many."""
    if not isinstance(value, str) or len(value) > MAX_MANY * 4:
        return ()
    try:
        return expand(value.strip(), MAX_MANY)
    except InputError:
        return ()


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(value: Any, least: int = 0, most: int = LARGEST) -> int | None:
    """A whole number, also one in quotes; None for anything else."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value)
    return value if is_whole(value) and least <= value <= most else None


def instant(value: Any, now: float) -> float | None:
    """Seconds since the epoch of a number, digits, or an ISO 8601 time (UTC where it names no zone).

    Nothing has happened after `now`: clocks of machines differ.
    """
    seconds = _seconds(value)
    return min(seconds, now) if seconds is not None and 0 <= seconds < _LATEST_S else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, str) and len(value) <= 40:
        try:
            return float(value) if value[:1].isdecimal() and not value.count("-") else _of_iso(value)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LATEST_S:
        return float(value) if isfinite(value) else None
    return None


def _of_iso(text: str) -> float:
    read = datetime.fromisoformat(text.replace("_", "T"))
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any, most: int = MAX_ITEMS) -> Sequence[Any]:
    """The first entries of a list, or none."""
    return value[:most] if isinstance(value, list) else ()


def objects(value: Any, most: int = MAX_ITEMS) -> Iterator[Mapping[str, Any]]:
    """The objects among the first entries of a list."""
    return (item for item in items(value, most) if isinstance(item, Mapping))


def dotted_part(value: Any) -> str:
    """A part of a dotted type made of a name: ``KernelDeadlock`` is ``kernel-deadlock``. "" where nothing is left."""
    spaced: str = _HUMP.sub(r"\1-\2", _SHORT_WORD.sub(r"\1-\2", line(value, 60)))
    dashed: str = _OTHER.sub("-", spaced.lower())
    return dashed.strip("-")
