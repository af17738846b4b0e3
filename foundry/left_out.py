"""The rules as if nobody had read one repository: the wordings that only its logs show are left out.

A rule is a list of wordings. One that matches lines of a single repository may have been written for it, so each log is
judged by rules without the wordings, and by a catalogue without the messages, that no other repository shows. It is the
nearest that read logs come to logs that nobody has read. Words of the grammar and codes that a standard lists stay.

Thresholds are fitted on verdicts of rules without the wordings that the judged repository, or family of the foundry's
programs, alone shows and motivated: those of rules that were written from logs, or from such programs, and not those of
rules that documentation has (`from` in ``rules.toml``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import re2
from msgspec.structs import replace

from perdure.triage import unnamed
from perdure.triage.catalogue import ANY_WORDS, Catalogue, MessageFamily, own_catalogue
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rule import TriageRule, WrittenFrom
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.clean import tidy
from perdure.triage.text.logtext import LogText
from perdure.triage.text.patterns import options
from perdure.triage.verdict import Verdict

MOST_WORDINGS = 150
"""Of one rule; what is left is one wording."""

OF_MESSAGES = frozenset(
    {"python-message", "database", "shell-tool", "build-tool", "git", "pip", "conda", "hub", "nextflow"}
)
"""Families that list messages; others list the codes of a standard, whichever logs show them."""

_FLAGS = re.compile(r"\(\?[a-z]+\)")
_LONG_BYTES = 3000  # of a line: longer ones are data


def wordings(pattern: str) -> list[str]:
    """The alternatives of a pattern, those in its outer groups multiplied out.

    >>> wordings("a(?:b|c)|d")
    ['a(?:b)', 'a(?:c)', 'd']
    """
    flags = found[0] if (found := _FLAGS.match(pattern)) else ""
    todo, done = list(_alternatives(pattern[len(flags) :])), list[str]()
    while todo:
        one = todo.pop(0)
        group = next(_groups(one), None)
        if group is None or len(todo) + len(done) > MOST_WORDINGS:
            done.append(flags + one)
            continue
        start, end = group
        inner = one[start + 3 : end]
        todo = [f"{one[: start + 3]}{each}{one[end:]}" for each in _alternatives(inner)] + todo
    return done


def _marks(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Place, character and depth of each ``(``, ``|`` and ``)`` that is not escaped and in no class."""
    depth, at = 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = _end_of_class(pattern, at)
        elif char in "(|)":
            depth -= char == ")"
            yield at, char, depth
            depth += char == "("
        at += 1


def _end_of_class(pattern: str, at: int) -> int:
    at += 2 if pattern[at + 1 : at + 2] == "^" else 1
    at += pattern[at : at + 1] == "]"
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at


def _alternatives(pattern: str) -> Iterator[str]:
    start = 0
    for at, char, depth in _marks(pattern):
        if char == "|" and depth == 0:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


def _groups(pattern: str) -> Iterator[tuple[int, int]]:
    """Where the outer groups of more than one alternative begin and end; repeated ones are left whole."""
    start = 0
    for at, char, depth in _marks(pattern):
        if depth or char == "|":
            continue
        if char == "(":
            start = at
        elif _is_whole(pattern, start, at) and len(list(_alternatives(pattern[start + 3 : at]))) > 1:
            yield start, at


def _is_whole(pattern: str, start: int, end: int) -> bool:
    return pattern[start : start + 3] == "(?:" and pattern[end + 1 : end + 2] not in tuple("?*+{")


class LeftOut:
    """Which wordings and messages each repository shows."""

    def __init__(self, repositories: Sequence[str], logs: Sequence[bytes]) -> None:
        self.rules = own_rules().rules
        self.wordings = [wordings(rule.pattern) if rule.pattern else [] for rule in self.rules]
        self._compiled: dict[tuple[int, int], Any] = {}
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, rule in enumerate(self.rules):
            self._places[rule.cause.name].append(place)
        self.shown: dict[str, set[tuple[Any, Any]]] = defaultdict(set)
        for repository, log in zip(repositories, logs, strict=True):
            self.shown[repository] |= {*self._wordings_of(log), *_messages_of(log)}
        self.by = Counter(each for shown in self.shown.values() for each in shown)

    def judge(self, repository: str, log: bytes) -> Verdict:
        """The verdict of rules and catalogue without what `repository` alone shows."""
        alone = {each for each in self.shown[repository] if self.by[each] == 1}
        catalogue = _without(alone)
        with patch.object(unnamed, "own_catalogue", lambda: catalogue):
            return judge(log, rules=RuleBook(tuple(self._left(alone))))

    def without_motivated_by(self, group: str, source: WrittenFrom) -> RuleBook:
        """The rules without the wordings that `group` alone shows, of rules that were written from `source`."""
        places = {each for each in self.shown[group] if self.by[each] == 1 and isinstance(each[0], int)}
        alone = {each for each in places if self.rules[each[0]].written_from is source}
        return RuleBook(tuple(self._left(alone))) if alone else own_rules()

    def _wordings_of(self, log: bytes) -> Iterator[tuple[int, int]]:
        for hit in own_rules().hits(LogText.of(log)):
            for place in self._places[hit.cause.name]:
                for number in range(len(self.wordings[place])):
                    if self._pattern(place, number).search(hit.text.encode()):
                        yield place, number

    def _pattern(self, place: int, number: int) -> Any:
        if (place, number) not in self._compiled:
            anchored = replace(self.rules[place], pattern=self.wordings[place][number]).anchored
            self._compiled[place, number] = re2.compile(anchored.encode(), options())
        return self._compiled[place, number]

    def _left(self, alone: set[tuple[Any, Any]]) -> Iterator[TriageRule]:
        for place, rule in enumerate(self.rules):
            kept = [each for number, each in enumerate(self.wordings[place]) if (place, number) not in alone]
            if len(kept) == len(self.wordings[place]):
                yield rule
            elif kept:
                flags = found[0] if (found := _FLAGS.match(kept[0])) else ""
                yield replace(rule, pattern=flags + "|".join(each[len(flags) :] for each in kept))


def _messages_of(log: bytes) -> Iterator[tuple[str, str]]:
    catalogue = own_catalogue()
    for line in {tidy(raw) for raw in log.split(b"\n")}:
        if len(line) > _LONG_BYTES or not catalogue.may_know(line):
            continue
        for family in catalogue.families:
            if family.table.name in OF_MESSAGES and (found := family.pattern.search(line)):
                yield from ((family.table.name, code) for code, _ in family.table.keys if _is(code, found[1]))


def _is(code: str, words: bytes) -> bool:
    pattern = ANY_WORDS.join(re2.escape(part) for part in code.split("*"))
    return re2.fullmatch(f"(?i){pattern}".encode(), words, options()) is not None


def _without(alone: set[tuple[Any, Any]]) -> Catalogue:
    return Catalogue(tuple(_family_without(family, alone) for family in own_catalogue().families))


def _family_without(family: MessageFamily, alone: set[tuple[Any, Any]]) -> MessageFamily:
    table = family.table
    dropped = {code for name, code in alone if name == table.name}
    if not dropped:
        return family
    codes = {"|".join(c for c in key.split("|") if c not in dropped): said for key, said in table.codes.items()}
    return MessageFamily(replace(table, codes={key: said for key, said in codes.items() if key}))


def judged_left_out(records: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The verdict on each record as if nobody had read its repository."""
    repositories = [record["source"].split("@")[0] for record in records]
    logs = [record["text"].encode("utf-8", "replace") for record in records]
    rules = LeftOut(repositories, logs)
    return [rules.judge(repository, log) for repository, log in zip(repositories, logs, strict=True)]
