"""Records of the embedded cluster as JSON and back, checked by their own types."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from perdure.errors import InputError
from perdure.model.actions import KINDS, Action, Comment

T = TypeVar("T", bound=msgspec.Struct)

ACTIONS = {kind: action for kind, action in KINDS.items() if action is not Comment}  # there is no field for one


def encode(record: msgspec.Struct) -> dict[str, Any]:
    """The record as data that JSON can hold, nested records included."""
    return dict(msgspec.to_builtins(record))


def decode(cls: type[T], document: object) -> T:
    """Build a `cls` from what `encode` made. Raises `ValueError` naming the field that does not fit."""
    known = {*cls.__struct_fields__, cls.__struct_config__.tag_field}
    if isinstance(document, dict) and (unknown := sorted(document.keys() - known)):
        raise ValueError(f"{cls.__name__} has no field {unknown[0]!r}")
    try:
        return msgspec.convert(document, cls)
    except msgspec.ValidationError as err:
        if isinstance(err.__cause__, InputError):  # what the record itself says of its values
            raise err.__cause__ from None
        raise ValueError(str(err).replace("`$", f"`{cls.__name__}")) from err


def decode_action(document: object) -> Action:
    """Build the action that ``document["kind"]`` names. Raises `ValueError`."""
    kind = str(document.get("kind")) if isinstance(document, dict) else ""
    if kind not in ACTIONS:
        raise ValueError(f"action of kind {kind!r} is not one of {', '.join(ACTIONS)}")
    return decode(ACTIONS[kind], document)
