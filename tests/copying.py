"""`copy.replace` of Python 3.13."""

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

Value = TypeVar("Value")


def replace(value: Value, /, **changes: Any) -> Value:
    """A copy with some fields changed, of a Struct or of a dataclass."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]  # no Struct: a dataclass
