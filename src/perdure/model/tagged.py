"""Values that JSON tells apart by their field ``kind``, the name of the class in small letters: `job_gone`."""

from __future__ import annotations

import re

from msgspec import Struct

_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def _kind_of(class_name: str) -> str:
    return _INNER_CAPITAL.sub("_", class_name).lower()


class Tagged(Struct, frozen=True, tag_field="kind", tag=_kind_of):
    """One kind of value of several that may be in the same place."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)
