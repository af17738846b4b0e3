"""Records of the embedded cluster as JSON and back, checked by their own types."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from perdure.errors import InputError
from perdure.model.actions import KINDS, Action, Comment
from perdure.model.validation import read

T = TypeVar("T", bound=msgspec.Struct)

ACTIONS = {kind: action for kind, action in KINDS.items() if action is not Comment}  # there is no field for one


def encode(record: msgspec.Struct) -> dict[str, Any]:
    """The record as data that JSON can hold, nested records included."""
    return dict(msgspec.to_builtins(record))


def decode(cls: type[T], document: object, called: str = "") -> T:
    """Build a `cls` from what `encode` made. Raises `InputError` naming the field that does not fit.

    `called` is what its sender calls it, where that is not the name of the class.
    """
    called = called or cls.__name__
    known = {*cls.__struct_fields__, cls.__struct_config__.tag_field}
    if isinstance(document, dict) and (unknown := sorted(document.keys() - known)):
        raise InputError(f"{called}.{unknown[0]}", "is not known", f"Use one of: {', '.join(cls.__struct_fields__)}")
    found: T = read(cls, document, called)
    return found


def decode_action(document: object) -> Action:
    """Build the action that ``document["kind"]`` names. Raises `InputError`."""
    kind = str(document.get("kind")) if isinstance(document, dict) else ""
    if kind not in ACTIONS:
        raise InputError("kind", f"{kind!r} is not an action", f"Use one of: {', '.join(ACTIONS)}")
    return decode(ACTIONS[kind], document)
