"""What systems can say of a failure, by their documentation: `catalogue.toml`, read when a line is first looked up.

The rules come from logs and reasoning about them; the catalogue covers whole families of codes, one pattern each.
It is asked only about lines that no rule decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib import resources
from typing import Annotated, Any

import re2
from msgspec import Meta, Struct

from perdure.model.validation import read
from perdure.triage.text.patterns import options

ANY_WORDS = r"[^\n]{0,80}?"
"""What stands for a * of a key."""

_MAX_MEM = 64 << 20


class WhoseFault(StrEnum):
    """Whose fault a failure is."""

    JOB = "job"  # its code, settings or data
    PEER = "peer"  # another task of it
    TENANT = "tenant"  # another job
    SITE = "site"  # the cluster's software
    HARDWARE = "hardware"
    SERVICE = "service"  # something outside the cluster


class KnownMessage(Struct, frozen=True):
    """What a code or a line means."""

    by: str  # the family that it is of
    speaker: str
    category: str
    p_transient: float
    fault: WhoseFault
    means: str  # half a sentence
    proven: bool = True  # whether it may stop a job by itself
    ends: bool = False  # its program says so as it ends, and goes on after none


class FamilyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table ``[[family]]``; the head of ``catalogue.toml`` explains the keys."""

    name: str
    of: str
    source: str
    pattern: str
    example: str
    codes: dict[str, tuple[str, Annotated[float, Meta(gt=0, lt=1)], WhoseFault, str]]
    near: tuple[str, ...] = ()
    general: bool = False
    ends: bool = False

    @property
    def keys(self) -> Iterator[tuple[str, str]]:
        """Each single code, with the key that it is a part of."""
        return ((code, key) for key in self.codes for code in key.split("|"))

    @property
    def whole(self) -> str:
        """The pattern with its codes, the longest first."""
        codes = sorted((code for code, _ in self.keys), key=lambda code: (-len(code), code))
        return self.pattern.replace("{codes}", "|".join(map(_pattern_of, codes)))


class MessageFamily(Struct, frozen=True, dict=True):
    """A family that lines can be looked up in."""

    table: FamilyTable

    @cached_property
    def pattern(self) -> Any:
        return re2.compile(self.table.whole.encode(), options())

    @cached_property
    def literal(self) -> Mapping[bytes, str]:
        """The key of each code, in lower case."""
        return {code.lower().encode(): key for code, key in self.table.keys}

    def find(self, line: bytes) -> KnownMessage | None:
        """What the line's code means; None where it holds none."""
        if (found := self.pattern.search(line)) is None:
            return None
        category, p, fault, means = self.table.codes[self._key_of(found[1])]
        return KnownMessage(self.table.name, self.table.of, category, p, fault, means, ends=self.table.ends)

    def _key_of(self, code: bytes) -> str:
        if (key := self.literal.get(code.lower())) is not None:
            return key
        wild = (pair for pair in self.table.keys if "*" in pair[0])
        return next(key for each, key in wild if re2.fullmatch(f"(?i){_pattern_of(each)}".encode(), code, options()))


class Catalogue(Struct, frozen=True, dict=True):
    """All families."""

    families: tuple[MessageFamily, ...]

    @cached_property
    def screen(self) -> Any:
        """What stops at every line that a family could match, in either half."""
        bare = "|".join(f"(?:{family.table.whole})" for family in self.families)
        return re2.compile(f"(?m){bare}".encode(), options(_MAX_MEM, never_capture=True))

    def may_know(self, line: bytes) -> bool:
        return self.screen.search(line) is not None

    def find(self, line: bytes, general: bool = False) -> KnownMessage | None:
        """What the first family says that knows the line: of those that name a cause, or of the `general` ones."""
        if not self.may_know(line):
            return None
        found = (family.find(line) for family in self.families if family.table.general is general)
        return next((known for known in found if known is not None), None)


@lru_cache(maxsize=1)
def own_catalogue() -> Catalogue:
    """The catalogue that comes with Perdure."""
    text = (resources.files("perdure.triage") / "catalogue.toml").read_text("utf-8")
    tables = tomllib.loads(text)["family"]
    return Catalogue(tuple(MessageFamily(read(FamilyTable, table, "catalogue.toml: ")) for table in tables))


def _pattern_of(code: str) -> str:
    return ANY_WORDS.join(re2.escape(part) for part in code.split("*"))
