"""Random values of any type of the product, by its annotations.

What a field holds depends on the number of the case and on the field's place alone: a field that is added changes no
other. Names come from few, so that they meet; instants lie within a day of `NOW`, some at the edges of what is asked.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import NODEFAULT, Struct
from scipy.sparse import issparse

NOW = 1_600_000_000.0
AGO_S = (0.0, 1.0, 59.0, 60.0, 300.0, 600.0, 899.0, 900.0, 901.0, 1800.0, 3599.0, 3600.0, 3601.0, 40_000.0, 86_400.0)
NODES = ("n1", "n2", "n3", "n10")
NAMES: Mapping[str, Sequence[str]] = {
    "cluster": ("c",),
    "job_id": ("7", "7_1", "8"),
    "user": ("ada", "bob"),
    "users": ("ada", "bob"),
    "node": NODES,
    "nodes": NODES,
    "failed_nodes": NODES,
    "excluded": NODES,
    "required": NODES,
    "avoided": NODES,
    "exclude": NODES,
    "lift": NODES,
    "reserved": NODES,
    "set_down": NODES,
    "usable": ("", "a", "b"),
    "members": ("", "a", "b"),
    "partition": ("a", "b", "a,b", ""),
    "partitions": ("a", "b"),
    "fingerprint": ("f", "u", "", "walltime-told"),
    "category": ("net", "unknown", "import", "fs", "gpu", "launcher", "preempt"),
    "hardware": ("", "", "Xid 79 on n1"),
    "exit_code": (),
    "text": ("", "a line of n1", "step 10 of 20", "RuntimeError: shapes"),
    "type": ("job.net", "storage.down"),
    "troubles": NODES,
    "resource": ("", "pfs:/scratch"),
    "warning": ("", "", "--signal=USR1@60"),
    "dependency": ("", "", "afterok:7", "afterany:8(unfulfilled)?after:7_1+5", "singleton", "aftercorr:7_*(failed)"),
    "task_list": ("", "2-4,9", "0-98:2", "1,3,..."),
}
NUMBERS: Mapping[str, Sequence[float]] = {
    "exit_code": (0, 1, 75, 78, 143),
    "signal": (0, 0, 0, 9, 15),
    "p_transient": (0.0, 0.03, 0.2, 0.5, 0.85, 1.0),
    "incarnation": (1, 2, 3),
    "walltime_s": (600.0, 3600.0, 86_400.0),
    "wait_s": (0.0, 0.0, 60.0),
    "memory_s": (3600.0, 86_400.0),
    "width": (12, 20, 44, 80, 120),
}
SPANS = ("walltime_s", "wait_s", "delay_s", "elapsed_s", "memory_s", "window_s", "length_s", "back_off_s")
MANY_FIELDS = 12
NO_DEFAULT = (NODEFAULT, MISSING)


class NotDrawn(Exception):
    """Nothing is known of how to draw this."""


class MakesNoSense(NotDrawn):
    """A value refuses the fields that were drawn for it; those of another case may fit."""


class Drawn:
    """Draws the values of one case."""

    def __init__(
        self,
        case: str,
        fitting: Mapping[type, Callable[[Any, random.Random], Any]],
        making: Mapping[type, Callable[[random.Random], Any]] = types.MappingProxyType({}),
    ) -> None:
        """`fitting` puts fields right that make no sense together, `making` draws values that refuse most fields."""
        self._case, self._fitting, self._making = case, fitting, making

    def __call__(self, kind: Any, place: str, name: str = "") -> Any:
        """A value of this type. `place` says which of the case, `name` is the field's."""
        rng = random.Random(f"{self._case} {place}")
        origin, given = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self(given[0], place, name)
        if origin is Literal:
            return rng.choice(given)
        if origin in (Union, types.UnionType):
            some = [each for each in given if each is not type(None)]
            return None if len(some) < len(given) and rng.random() < 0.4 else self(rng.choice(some), place, name)
        if origin is not None:
            return self._several(rng, origin, given, place, name)
        if isinstance(kind, type):
            return self._one(rng, kind, place, name)
        raise NotDrawn(kind)

    def _several(self, rng: random.Random, origin: Any, given: tuple[Any, ...], place: str, name: str) -> Any:
        if origin is tuple and (len(given) != 2 or given[1] is not Ellipsis):
            return tuple(self(each, f"{place}.{at}", name) for at, each in enumerate(given))
        many = rng.choice((0, 1, 1, 2, 3))
        if issubclass(origin, Mapping):
            keys = dict.fromkeys(self(given[0], f"{place}.{at}", name) for at in range(many))
            return {key: self(given[1], f"{place}[{key}]", name) for key in keys}
        if not issubclass(origin, Iterable) or origin is Iterator:
            raise NotDrawn(origin)
        items = [self(given[0], f"{place}.{at}", name) for at in range(many)]
        if issubclass(origin, AbstractSet):
            return frozenset(items)
        if given[0] is str and origin is not list:
            items = list(dict.fromkeys(items))
        if items and all(hasattr(each, "time_s") for each in items):
            items.sort(key=lambda each: each.time_s)
        return list(items) if origin is list else tuple(items)

    def _one(self, rng: random.Random, kind: type, place: str, name: str) -> Any:
        if issubclass(kind, Enum):
            return rng.choice(list(kind))
        if kind is bool:
            return rng.random() < 0.5
        if kind in (int, float):
            return kind(self._number(rng, kind, name))
        if kind is str:
            return rng.choice(NAMES.get(name) or ("", name, f"another {name}"))
        if kind in self._making:
            return self._making[kind](rng)
        if issubclass(kind, Struct) or is_dataclass(kind):
            made = self._made(kind, place)
            fit = self._fitting.get(kind)
            return fit(made, rng) if fit else made
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = _hints(kind)
            return kind(**{name: self(hints[name], f"{place}.{name}", name) for name in kind._fields})
        raise NotDrawn(kind)

    def _number(self, rng: random.Random, kind: type, name: str) -> float:
        if name in NUMBERS:
            return rng.choice(NUMBERS[name])
        if name == "now":
            return NOW
        if name.endswith("_s") and name not in SPANS:
            return NOW - rng.choice(AGO_S)
        if name.endswith("_s"):
            return rng.choice(AGO_S)
        return rng.randrange(9) if kind is int else rng.choice((0.0, 0.25, 0.5, 1.0, 2.0))

    def _made(self, kind: Any, place: str) -> Any:
        hints, given, every = _hints(kind), {}, list(_fields(kind))
        usual = 0.6 if len(every) < MANY_FIELDS else 0.85
        for name, has_default in every:
            rng = random.Random(f"{self._case} {place} {name}?")
            if not has_default or rng.random() > usual:
                given[name] = self(hints[name], f"{place}.{name}", name)
        try:
            return kind(**given)
        except (ValueError, TypeError) as err:  # it says itself what makes no sense
            raise MakesNoSense(kind) from err


_hints = cache(get_type_hints)
_struct_fields = cache(msgspec.structs.fields)


def _fields(kind: Any) -> Iterator[tuple[str, bool]]:
    if issubclass(kind, Struct):
        for each in msgspec.structs.fields(kind):
            yield each.name, each.default is not NODEFAULT or each.default_factory is not NODEFAULT
    else:
        for field in fields(kind):
            if field.init:
                yield field.name, field.default is not MISSING or field.default_factory is not MISSING


def in_words(value: Any) -> str:
    """A value as text that is the same on any machine; fields that have their default are left out."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value - NOW:+.9g}s" if abs(value - NOW) < 1e8 else f"{value:.9g}"
    if isinstance(value, Struct):
        held = {each.name: (getattr(value, each.name), each.default) for each in _struct_fields(type(value))}
        return _named(type(value), held)
    if is_dataclass(value) and not isinstance(value, type):
        return _named(type(value), {each.name: (getattr(value, each.name), each.default) for each in fields(value)})
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{in_words(key)}: {in_words(each)}" for key, each in value.items()) + "}"
    if isinstance(value, AbstractSet):
        return "{" + ", ".join(sorted(in_words(each) for each in value)) + "}"
    if isinstance(value, np.ndarray) and not value.ndim:
        return in_words(value.item())
    if issparse(value):
        return in_words(value.toarray())
    if isinstance(value, Iterator):
        return in_words(list(value))
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return "(" + ", ".join(in_words(each) for each in value) + ")"
    return repr(value)


def _named(kind: type, held: Mapping[str, tuple[Any, Any]]) -> str:
    told = (f"{name}={in_words(value)}" for name, (value, default) in held.items() if _is_told(value, default))
    return f"{kind.__name__}({', '.join(told)})"


def _is_told(value: Any, default: Any) -> bool:
    return any(default is each for each in NO_DEFAULT) or type(value) is not type(default) or bool(value != default)
