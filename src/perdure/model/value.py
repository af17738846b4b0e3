"""Values at the price of plain objects: frozen dataclasses that are made, and made anew, quickly.

A frozen dataclass sets each field through ``object.__setattr__``: a record of 22 fields takes five times as long to
make as an open one, and the service and its simulation make little else. `quick` and `replace` give that time back, and
nobody can change a value still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

_set = object.__setattr__


def quick(cls: type[T]) -> type[T]:
    """Let instances of a frozen dataclass with slots be made quickly; worth while from three fields on.

    While its fields are set, an instance is of a class of the same layout that is not frozen: nobody else has it yet.
    Raises `TypeError` for a class that is no such dataclass.
    """
    slots = vars(cls).get("__slots__")
    if slots is None or not all(field.init and not field.kw_only for field in _fields(cls)):
        raise TypeError(f"{cls.__name__}: quick is for frozen dataclasses with slots, made from all their fields")
    thawed = type(cls.__name__, (cls.__base__ or object,), {"__slots__": slots, "__setattr__": _set})
    cls.__init__ = _init_of(cls, thawed)  # type: ignore[method-assign]
    return cls


def _init_of(cls: type, thawed: type) -> Callable[..., None]:
    """What `dataclass` writes for a class that is not frozen, between leaving the own class and coming back to it."""
    scope: dict[str, Any] = {"__thawed": thawed, "__set": _set, "__missing": MISSING}  # names that no field has
    takes, makes, sets = ["self"], [], []
    for field in _fields(cls):
        name, default = field.name, f"__default_{field.name}"
        if field.default is not MISSING:
            scope[default] = field.default
            takes.append(f"{name}={default}")
        elif field.default_factory is not MISSING:
            scope[default] = field.default_factory
            takes.append(f"{name}=__missing")
            makes.append(f"if {name} is __missing: {name} = {default}()")
        else:
            takes.append(name)
        sets.append(f"self.{name} = {name}")
    ends = ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    body = (
        "__own = self.__class__",
        "__set(self, '__class__', __thawed)",
        *makes,
        *sets,
        "self.__class__ = __own",
        *ends,
    )
    # As `dataclasses` itself does it: the text holds nothing but names of fields, which Python has taken as such.
    exec(f"def __init__({', '.join(takes)}):\n" + "".join(f"    {line}\n" for line in body), scope)  # noqa: S102
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__, init.__annotations__ = f"{cls.__qualname__}.__init__", vars(cls)["__init__"].__annotations__
    return init


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(value, /, **changed):
        """A copy of a dataclass with some fields changed, as `dataclasses.replace` makes it, in half the time."""
        values_of, places = _layout(type(value))
        values = list(values_of(value))
        for name, given in changed.items():
            values[places[name]] = given
        return type(value)(*values)


@cache
def _layout(cls: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]:
    names = [field.name for field in _fields(cls)]
    values_of = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    return values_of, {name: place for place, name in enumerate(names)}


def _fields(cls: type) -> tuple[Field[Any], ...]:
    return fields(cls)
