"""`copy.replace` of Python 3.13."""

import dataclasses

from msgspec import Struct, structs


def replace(value, /, **changes):
    """A copy with some fields changed, of a Struct or of a dataclass."""
    of_its_kind = structs.replace if isinstance(value, Struct) else dataclasses.replace
    return of_its_kind(value, **changes)
