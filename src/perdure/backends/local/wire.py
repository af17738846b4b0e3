"""Frozen dataclasses as JSON and back, checked by their own type hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from perdure.model.actions import Action, Cancel, Down, Drain, Exclude, Extend, Hold, Release, Requeue, Undrain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

ACTIONS: Mapping[str, type[Action]] = {
    "requeue": Requeue,
    "exclude": Exclude,
    "hold": Hold,
    "release": Release,
    "cancel": Cancel,
    "extend": Extend,
    "drain": Drain,
    "down": Down,
    "undrain": Undrain,
}


def encode(record: DataclassInstance) -> dict[str, Any]:
    """The record as JSON-able data, nested records included."""
    return asdict(record)


def decode(cls: type[T], document: object) -> T:
    """Build a `cls` from what `encode` made. Raises `ValueError` naming the field that does not fit."""
    return cast("T", _decode(cls, document, cls.__name__))


def decode_action(document: object) -> Action:
    """Build the action that ``document["kind"]`` names. Raises `ValueError`."""
    kind = str(document.get("kind")) if isinstance(document, dict) else ""
    if kind not in ACTIONS:
        raise ValueError(f"action of kind {kind!r} is none of {', '.join(ACTIONS)}")
    return decode(ACTIONS[kind], document)


def _decode(hint: Any, value: object, where: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None else _decode(next(a for a in args if a is not type(None)), value, where)
    if origin is Literal:
        return _checked(value in args, value, where, f"one of {args}")
    if origin is tuple:
        return _decode_tuple(args, value, where)
    if origin is Mapping or origin is dict:
        _checked(isinstance(value, dict), value, where, "an object")
        return {key: _decode(args[1], item, f"{where}.{key}") for key, item in cast("dict[str, object]", value).items()}
    if is_dataclass(hint):
        return _decode_record(cast("type[DataclassInstance]", hint), value, where)
    if issubclass(hint, Enum):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    return _checked(fits, value, where, f"a value of type {hint.__name__}")


def _decode_tuple(args: tuple[Any, ...], value: object, where: str) -> tuple[object, ...]:
    _checked(isinstance(value, list | tuple), value, where, "a list")
    items = list(cast("list[object]", value))
    hints = [args[0]] * len(items) if args[-1] is Ellipsis else list(args)
    _checked(len(hints) == len(items), value, where, f"a list of {len(hints)}")
    return tuple(_decode(hint, item, where) for hint, item in zip(hints, items, strict=True))


def _decode_record(cls: type[DataclassInstance], value: object, where: str) -> object:
    _checked(isinstance(value, dict), value, where, "an object")
    document, hints = cast("dict[str, object]", value), _hints(cls)
    if unknown := sorted(set(document) - {f.name for f in fields(cls)}):
        raise ValueError(f"{where} has no field {unknown[0]!r}")
    try:
        return cls(**{name: _decode(hints[name], item, f"{where}.{name}") for name, item in document.items()})
    except TypeError as err:
        raise ValueError(f"{where}: {err}") from err


def _checked(fits: bool, value: object, where: str, wanted: str) -> object:
    if not fits:
        raise ValueError(f"{where}: {str(value)[:80]!r} is not {wanted}")
    return value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)
