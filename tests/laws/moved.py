"""The same value with other names, or at another time: what laws of renaming and of shifted clocks are made of.

It goes through any Struct, dataclass or collection by its fields, so a new one is moved by itself. A new field that
counts seconds is refused until it is told here whether it says when something is, or how long it takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from msgspec import Struct

INSTANTS = frozenset({
    "time_s", "submit_s", "eligible_s", "start_s", "end_s", "since_s", "until_s", "deadline_s", "expires_s",
    "written_s", "said_s", "now",
    "created_s", "intended_s", "submitted_s", "started_s", "ends_s", "ended_s", "planned_s", "missed_s", "retry_at_s",
    "plan_at_s", "again_at", "looked_s", "begin_s", "came_s", "ran_s", "at_s", "first_s", "last_s", "due_s", "begun_s",
    "boot_s", "daemon_start_s", "preempt_s",
})  # fmt: skip
DURATIONS = frozenset({"walltime_s", "before_s", "elapsed_s", "delay_s", "wait_s", "answer_s", "window_s"})
INSTANTS_IN = frozenset({"missing", "ended", "spent", "stories"})
"""Fields that are mappings to instants."""
_WORD = re.compile(r"[A-Za-z0-9_]+")
_IN_TEXT = re.compile(r"\b1[56]\d{8}(?:\.\d+)?\b")  # an instant, as keys have them


class Moved:
    """Gives a value as it would be with each word of its texts renamed, and with all its instants `shift_s` later.

    An instant of 0 is none.
    """

    def __init__(
        self, rename: Callable[[str], str] = lambda word: word, shift_s: float = 0.0, more: Collection[str] = ()
    ) -> None:
        """`more` are fields that are instants here."""
        self._rename, self._shift_s, self._more = rename, shift_s, more
        self._texts: dict[str, str] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # by id: what was moved, which keeps the id, and what it came to

    def __call__(self, value: Any, field: str = "") -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self._text(value)
        if isinstance(value, float | int) and not isinstance(value, bool | Enum):
            return value + type(value)(self._shift_s) if value and self._is_instant(field) else value
        if value is None or isinstance(value, bool | bytes | Enum):
            return value
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._made(value, field))
        return known[1]

    def _made(self, value: Any, field: str) -> Any:
        if isinstance(value, Struct):
            return type(value)(**{name: self(getattr(value, name), name) for name in value.__struct_fields__})
        if is_dataclass(value):
            made: Callable[..., Any] = type(value)
            return made(**{each.name: self(getattr(value, each.name), each.name) for each in fields(value)})
        if isinstance(value, Mapping):
            return {self(key): self(each, field) for key, each in value.items()}
        assert isinstance(value, tuple | list | frozenset), f"{type(value).__name__} is nothing that can be moved"
        return type(value)(self(each, field) for each in value)

    def _text(self, text: str) -> str:
        if text not in self._texts:
            moved = _IN_TEXT.sub(self._later, text) if self._shift_s else text
            self._texts[text] = _WORD.sub(lambda word: self._rename(word[0]), moved)
        return self._texts[text]

    def _later(self, found: re.Match[str]) -> str:
        return f"{float(found[0]) + self._shift_s:.{len(found[0].partition('.')[2])}f}"

    def _is_instant(self, field: str) -> bool:
        known = field in INSTANTS or field in DURATIONS or not field.endswith("_s")
        assert known, f"{field}: say in tests.laws.moved whether it is an instant or a time that something takes"
        return field in INSTANTS or field in INSTANTS_IN or field in self._more
