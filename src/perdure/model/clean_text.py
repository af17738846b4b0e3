"""Texts of anybody, as databases and answers take them: NULs and half characters become U+FFFD."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

T = TypeVar("T")

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """`text` as every database takes it: NULs and lone surrogates replaced, paired surrogates joined.

    >>> clean("a\\0b\\ud800c")
    'a\ufffdb\ufffdc'
    """
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", REPLACEMENT)


def sendable(value: T) -> T:
    """`value` as an answer can hold it: the same, or `cleaned` where it holds half a character.

    Raises `RecursionError` for what is nested very deeply.
    """
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return cast("T", cleaned(value))
    return value


def cleaned(value: Any) -> Any:
    """`value` with `clean` done to every text in it."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (tuple, list, frozenset)):
        return type(value)(map(cleaned, value))
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, Struct):
        return type(value)(**{name: cleaned(getattr(value, name)) for name in value.__struct_fields__})
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: cleaned(getattr(value, field.name)) for field in fields(value)})
    return value
