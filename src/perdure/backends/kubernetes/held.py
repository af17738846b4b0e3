"""Objects as they were last seen, those that are gone with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct, field

from perdure.backends.kubernetes.objects import Document

T = TypeVar("T")


class HeldObject(Struct, frozen=True):
    """An object as it was last seen."""

    document: Document
    gone_s: float | None = None  # when it was seen to be gone
    _known: dict[Callable[[Document], Any], Any] = field(default_factory=dict)

    def once(self, read: Callable[[Document], T]) -> T:
        """What a pure function gives for the document. It runs once: each look asks of all objects, and few change."""
        if read not in self._known:
            self._known[read] = read(self.document)
        found: T = self._known[read]
        return found


@dataclass(frozen=True, slots=True)
class MirrorView:
    """All objects of a kind at one instant, those that are gone since not long ago with them."""

    objects: tuple[HeldObject, ...] = ()
    trouble: str = ""  # why they may be old


NOTHING_HELD = MirrorView()
