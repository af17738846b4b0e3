"""A line of failure in words that no rule and no table knows, taken apart: who speaks, what went wrong, and with what.

A failure is reported with few words: something was *refused, timed out, not found, full, mismatched*, and it was a
*file, server, GPU, shape, argument*. Each pair of such words has a meaning (`grammar.toml`), so that wording that
nobody has seen is still read. It says less than a rule, so its chances are set with more care.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib import resources
from typing import Annotated

import re2
from msgspec import Meta, Struct

from perdure.model.validation import read
from perdure.triage.catalogue import KnownMessage, WhoseFault
from perdure.triage.text.patterns import capturing, compiled, options

BY = "grammar"
"""What the evidence of a line that was read so is called."""

PASSING = 0.5
"""What passes a retry as often as so is believed to pass; what does more rarely is a reason to stop."""

MAX_BYTES = 600
"""This much of a line's beginning is read: the message is there, then what it quotes."""

_MAX_MEM = 64 << 20

_CLASS = r"^\s*(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Failure|Fault|Exit|Interrupt))(?:: |:?\s*$)"
_PROGRAM = r"^\s*(?:\[[^\]]{1,60}\]:? ?)*([A-Za-z][\w.+/-]{1,40})(?:\[\d+\])?: "
_PATH = r"((?:^|[\s'\"(=])(?:~|\.{1,2}|/(?:mnt/)?[\w-]+)?)(?:/[\w+@%,-][\w.+@%,-]*)*/[\w+@%,-]+((?:\.[\w-]{1,8})?)\b"
_AT_PATH = r"(?:^|[\s'\"(=:])/[\w.+@%,-]+/[\w.+@%,-]"
"""An absolute path: a database or repository that is missing there is a file, and no service."""

_WORD = r"[A-Z]?[a-z]+|[A-Z]+"
_MARK = (
    r"(?i)\b(?:err(?:or)?|fatal|fail(?:ed|ure|s)?|exception|critical|panic|abort(?:ed|ing)?|cannot|can't|could not"
    r"|couldn't|unable|severe|alert|emerg|fault|refused|denied|lost|invalid|illegal|died|exceeded)\b|(?-i:[a-z]Error\b)"
    r"|Exception\b|\*\*\*|!!!"
)
"""Words without which a line asserts no failure."""


Meaning = tuple[str, Annotated[float, Meta(gt=0, lt=1)], WhoseFault]
"""Category, chance that a retry passes, whose fault."""


class WordTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"of_class": "class"}):
    """A table ``[[kind]]`` or ``[[thing]]``; the head of ``grammar.toml`` explains the keys."""

    name: str
    says: str
    words: tuple[str, ...]
    of_class: str = ""

    @property
    def pattern(self) -> str:
        return "(?i)" + "|".join(self.words)


class ProvenTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[proven]``; the head of ``grammar.toml`` explains the keys."""

    classes: tuple[str, ...]
    categories: tuple[str, ...]
    either_way: tuple[str, ...]
    vague: tuple[str, ...]


class GrammarFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of words."""

    proven: ProvenTable

    kind: tuple[WordTable, ...]
    thing: tuple[WordTable, ...]
    meaning: dict[str, dict[str, Meaning]]
    raised: dict[str, dict[str, Meaning]]


class Parsed(Struct, frozen=True):
    """What a line tells."""

    speaker: str  # a program, a class of exception or a part of a machine; "" where it does not say
    kind: str  # of error
    thing: str  # that it is about; "" where it does not say


class Grammar(Struct, frozen=True, dict=True):
    """The words, compiled."""

    file: GrammarFile

    def parse(self, line: bytes, asserted: bool = False) -> Parsed | None:
        """Take a tidied line apart; None where it reports no error in words that are known.

        `asserted`: something else says that it reports a failure.

        >>> own_grammar().parse(b"OSError: could not reach the catalogue server")
        Parsed(speaker='OSError', kind='unreachable', thing='service')
        >>> own_grammar().parse(b"epoch 3 finished") is None
        True
        """
        line = line[:MAX_BYTES]
        raised = capturing(_CLASS).search(line)
        if raised is None and not asserted and not self.alarms(line):
            return None
        name, message = (raised[1], line[raised.end() :]) if raised else (b"", line)
        kind = self._kinds.first(_in_full(message)) or self._kinds_of_class.first_of_name(name)
        if not kind:
            return None
        thing = self._things.first(_without_names(message)) or self._things.first_of_name(_words_of(name))
        if kind == "missing" and thing == "service" and compiled(_AT_PATH).search(message):
            thing = "file"
        program = raised or capturing(_PROGRAM).search(line)
        return Parsed(program[1].decode("latin-1") if program else "", kind, thing)

    def alarms(self, line: bytes) -> bool:
        """Whether a line has a word of failure."""
        return compiled(_MARK).search(line[:MAX_BYTES]) is not None

    def means(self, parsed: Parsed) -> KnownMessage:
        """What a line that was taken apart says of the cause."""
        of_kind = self.file.meaning[parsed.kind]
        meaning = of_kind.get(parsed.thing, of_kind[""])
        category, p, fault = self._of_classes.get(parsed.speaker, {}).get(meaning[0], meaning)
        said = self._kinds.says[parsed.kind]
        thing = f" ({self._things.says[parsed.thing]})" if parsed.thing else ""
        return KnownMessage(BY, parsed.speaker, category, p, fault, said + thing, self._is_proven(parsed, category, p))

    def _is_proven(self, parsed: Parsed, category: str, p: float) -> bool:
        """Whether such readings were right often enough on lines that were read as if nobody had seen them."""
        proven = self.file.proven
        stops = p < PASSING
        is_told = category not in proven.either_way and parsed.kind not in proven.vague
        return is_told and not (stops and parsed.speaker not in proven.classes and category not in proven.categories)

    @cached_property
    def _kinds(self) -> _Words:
        return _Words(self.file.kind, [each.pattern for each in self.file.kind])

    @cached_property
    def _things(self) -> _Words:
        return _Words(self.file.thing, [each.pattern for each in self.file.thing])

    @cached_property
    def _of_classes(self) -> dict[str, dict[str, Meaning]]:
        """By the name of a class of exceptions, what it makes of a category."""
        return {name: found for names, found in self.file.raised.items() for name in names.split("|")}

    @cached_property
    def _kinds_of_class(self) -> _Words:
        told = [each for each in self.file.kind if each.of_class]
        return _Words(told, [each.of_class for each in told])


class _Words:
    """Words in their order, all looked for at once."""

    def __init__(self, tables: Sequence[WordTable], patterns: Sequence[str]) -> None:
        self.says = {each.name: each.says for each in tables}
        self._names = [each.name for each in tables]
        self._set = re2.Set.SearchSet(options(_MAX_MEM, never_capture=True))
        for pattern in patterns:
            self._set.Add(pattern.encode())
        self._set.Compile()
        self.first_of_name = lru_cache(maxsize=256)(self.first)  # a storm of errors has few classes

    def first(self, text: bytes) -> str:
        """The name of the first whose words the text holds; "" where it holds none."""
        found = self._set.Match(text) if text else None
        return self._names[min(found)] if found else ""


def _in_full(message: bytes) -> bytes:
    """The message, and again with "wasn't" written in full: a kind's words may be either."""
    return message + b"\n" + message.replace(b"n't", b" not") if b"n't" in message else message


@lru_cache(maxsize=256)
def _words_of(name: bytes) -> bytes:
    """The words that the name of a class is made of."""
    return b" ".join(compiled(_WORD).findall(name))


def _without_names(message: bytes) -> bytes:
    """The message without what a user called files and directories; how a path begins and ends is kept.

    >>> _without_names(b"cannot open '/scratch/data/images/x.h5'")
    b"cannot open '/scratch/.h5'"
    """
    return bytes(capturing(_PATH).sub(rb"\1/\2", message)) if b"/" in message else message


@lru_cache(maxsize=1)
def own_grammar() -> Grammar:
    """The grammar that comes with Perdure."""
    text = (resources.files("perdure.triage") / "grammar.toml").read_text("utf-8")
    return Grammar(read(GrammarFile, tomllib.loads(text), "grammar.toml: "))
