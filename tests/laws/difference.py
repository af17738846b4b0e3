"""Where two large values differ, in one line: what a failed law says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct


def must_equal(one: Any, other: Any) -> None:
    if found := difference(one, other):
        raise AssertionError(found)


def difference(one: Any, other: Any, where: str = "") -> str:
    """The first place in which they differ, and both as they are there; "" where they are equal."""
    if one is other or one == other:
        return ""
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(one, Struct) and type(one) is type(other):
        pairs = [(f".{name}", getattr(one, name), getattr(other, name)) for name in one.__struct_fields__]
    elif is_dataclass(one) and type(one) is type(other):
        pairs = [(f".{each.name}", getattr(one, each.name), getattr(other, each.name)) for each in fields(one)]
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        pairs = [(f"[{key}]", one.get(key), other.get(key)) for key in {**one, **other}]
    elif isinstance(one, tuple | list) and isinstance(other, tuple | list) and len(one) == len(other):
        pairs = [(f"[{at}]", *pair) for at, pair in enumerate(zip(one, other, strict=True))]
    found = (difference(left, right, f"{where}{name}") for name, left, right in pairs)
    return next((each for each in found if each), f"{where}: {one!r:.1500} and {other!r:.1500}")
