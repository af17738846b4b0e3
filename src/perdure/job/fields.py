"""Fields of a JSON object that somebody else has written, each checked for its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from perdure.errors import InputError

MAX_TEXT = 1000  # characters of one text
LARGEST = 2**63 - 1  # what every database holds


@dataclass(frozen=True, slots=True)
class Fields:
    """An object and where it comes from. Each reading raises `InputError` where the field is of another kind."""

    source: str
    data: Mapping[str, Any]

    def text(self, name: str, default: str = "") -> str:
        value = self.data.get(name, default)
        if not isinstance(value, str):
            self._refuse(name, "a text")
        return _clean(value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.data.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._refuse(name, "a list of texts")
        return tuple(_clean(each) for each in value)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            self._refuse(name, "a number")
        return float(value)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
            self._refuse(name, "a whole number")
        return value

    def maybe_number(self, name: str) -> float | None:
        return None if self.data.get(name) is None else self.number(name)

    def maybe_whole(self, name: str) -> int | None:
        return None if self.data.get(name) is None else self.whole(name)

    def yes(self, name: str, *, default: bool = False) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            self._refuse(name, "true or false")
        return value

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        what = f"{name} is {str(self.data.get(name))[:80]!r}, not {wanted}"
        raise InputError(self.source, what, "It is written by perdure exec or perdure agent; remove it")


def _clean(text: str) -> str:
    """Cut, and without halves of characters, which cannot be written anywhere."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
