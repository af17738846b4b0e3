"""Values that somebody else wrote, read as typed ones: what cannot be used is said in words, with its place and a fix.

Bounds are next to the fields, in `msgspec.Meta`; its `description` says in words what may be there, where the
type does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from perdure.errors import InputError

_PLACE = re.compile(r"`\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")  # of [...], an entry of a table, the name is not said
_UNKNOWN = re.compile(r"unknown field `(.*)`")
_TOO_LONG = re.compile(r"of length <= (\d+)")
_BAD_KEY = re.compile(r"enum value '(.*)' - at `key` in ")
_MISSING = re.compile(r"missing required field `(.*)`")

Hook = Callable[[type, Any], Any]

_type_info = cache(inspect.type_info)  # slow, and what is refused is of few kinds


def read(kind: Any, value: object, where: str, hook: Hook | None = None, *, strict: bool = True) -> Any:
    """`value` as a `kind`; `hook` and `strict` as in `msgspec.convert`.

    Raises `InputError` whose place is `where` and the field below it, and what the hook raises.
    """
    try:
        found = msgspec.convert(value, kind, dec_hook=hook, strict=strict)
    except msgspec.ValidationError as err:
        if isinstance(err.__cause__, ValueError):  # of the hook
            raise err.__cause__ from None
        raise _refusal(kind, value, where, str(err)) from err
    except UnicodeEncodeError as err:  # of half a character, as JSON can hold one
        raise InputError(where, f"{err.object[:60]!a} is not known", "Use names in UTF-8") from err
    if isinstance(found, float) and not math.isfinite(found):
        raise InputError(where, f"{shown(value)} is out of range", f"Give {in_words(kind)}")
    return found


def in_words(kind: Any) -> str:
    """What may be there."""
    return _words(_type_info(kind))


def shown(value: object) -> str:
    """The value, short enough for one line."""
    try:
        words = repr(value)
    except ValueError:  # a whole number with too many digits to be shown
        return "that number"
    return words if len(words) <= 60 else f"{words[:57]}..."


def _refusal(kind: Any, value: Any, where: str, said: str) -> InputError:
    info, place = _type_info(kind), _PLACE.search(said)
    if place:
        said = said[: place.start()]
        for name, number in _STEP.findall(place[1]):
            info, value = _below(_plain(info), value, name, number)
            where = _at(where, name) if name else f"{where}[{number}]"
    if found := _BAD_KEY.search(said):
        return _wrong(where, found[1], getattr(_plain(info), "key_type", info))
    if found := _UNKNOWN.search(said):
        return InputError(_at(where, found[1][:80]), "is not known", f"Use one of: {', '.join(_names(_plain(info)))}")
    if found := _MISSING.search(said):
        info, _ = _below(_plain(info), {found[1]: None}, found[1], "")
        return InputError(_at(where, found[1]), "is missing", f"Give {_words(info)}")
    if found := _TOO_LONG.search(said):
        unit = "characters" if isinstance(value, str) else "entries"
        return InputError(where, f"has {len(value)} {unit}", f"Keep it to {found[1]}")
    if "` >" in said or "` <" in said or "out of range" in said:
        return InputError(where, f"{shown(value)} is out of range", f"Give {_words(info)}")
    return _wrong(where, value, info)


def _wrong(where: str, value: object, info: inspect.Type) -> InputError:
    return InputError(where, f"{shown(value)} is not {_words(info)}", f"Give {_words(info)}")


def _at(where: str, name: str) -> str:
    return f"{where}{'' if where.endswith(' ') else '.'}{name}" if where else name


def _below(info: inspect.Type, value: Any, name: str, number: str) -> tuple[inspect.Type, Any]:
    """The type and the value of a field, or of an entry of a list."""
    if isinstance(info, inspect.StructType | inspect.DataclassType) and name:
        return next(each.type for each in info.fields if each.encode_name == name), value[name]
    if isinstance(info, inspect.TupleType):
        return info.item_types[int(number)], value[int(number)]
    assert isinstance(info, inspect.ListType | inspect.VarTupleType), info
    return info.item_type, value[int(number)]


def _plain(info: inspect.Type) -> inspect.Type:
    """The type itself, of one that is described or that may be left out."""
    if isinstance(info, inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, inspect.UnionType):
        return next(each for each in map(_plain, info.types) if not isinstance(each, inspect.NoneType))
    return info


def _names(info: inspect.Type) -> Iterator[str]:
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        yield from (each.encode_name for each in info.fields)


def _words(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata) and (info.extra_json_schema or {}).get("description"):
        return str((info.extra_json_schema or {})["description"])
    match _plain(info):
        case inspect.IntType(ge=low, le=high):
            return f"a whole number{_range(low, high)}"
        case inspect.FloatType(ge=low, le=high):
            return f"a number{_range(low, high)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(max_length=most):
            return "a text in quotes" + (f" of at most {most} characters" if most is not None else "")
        case inspect.EnumType(cls=cls):
            return _either([repr(str(member)) for member in cls if str(member)])
        case inspect.LiteralType(values=values):
            return _either(list(map(repr, values)))
        case inspect.DictType(value_type=below):
            return f"a table, each entry {_words(below)}"
        case inspect.ListType(max_length=most) | inspect.VarTupleType(max_length=most):
            return "a list of names" + (f", at most {most}" if most is not None else "")
        case inspect.CustomType(cls=cls):
            return f"a {cls.__name__.lower()}"
        case _:
            return "a table"


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f" of at least {low:g}"
    return f" from {low or 0:g} to {high:g}"
