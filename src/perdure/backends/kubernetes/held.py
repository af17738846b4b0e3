"""Objects as they were last seen, those that are gone with them."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from perdure.backends.kubernetes.objects import Document


class HeldObject(Struct, frozen=True):
    """An object as it was last seen."""

    document: Document
    gone_s: float | None = None  # when it was seen to be gone


@dataclass(frozen=True, slots=True)
class MirrorView:
    """All objects of a kind at one instant, those that are gone since not long ago with them."""

    objects: tuple[HeldObject, ...] = ()
    trouble: str = ""  # why they may be old


NOTHING_HELD = MirrorView()
