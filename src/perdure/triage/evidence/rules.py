"""The evidence rules, read from TOML and checked: those that come with Perdure, and a site's own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import re2
from msgspec import Meta, Struct

from perdure.errors import ConfigError, InputError
from perdure.model.validation import read
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rule import At, Cause, Force, TriageRule, WrittenFrom
from perdure.triage.text.patterns import options
from perdure.triage.verdict import Bound, CauseRole

Codes = Annotated[
    Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)] | Annotated[str, Meta(min_length=1)],
    Meta(description="a list of whole numbers, like [13, 31], or a pattern"),
]
Errno = Annotated[
    tuple[int, Annotated[str, Meta(min_length=1)]],
    Meta(description='a number and a text, like [112, "Host is down"]'),
]


class CategoryTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table ``[category.NAME]``: what its rules say unless they have their own."""

    says: str = ""
    advice: str = ""
    part_of: str = ""
    bound: Bound = Bound.NOTHING
    infrastructure: bool = False
    wait_s: Annotated[float, Meta(ge=0)] = 0.0


class SoftwareTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table ``[software.NAME]``."""

    see: str = ""


class RuleTable(CategoryTable, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"written_from": "from"}):
    """A table ``[[rule]]`` with what it takes over from its category; the head of ``rules.toml`` explains the keys."""

    name: str
    category: str
    p: Annotated[float, Meta(gt=0, lt=1, description="a chance between 0 and 1, such as 0.05")]
    pattern: str = ""
    at: At = At.ANYWHERE
    software: tuple[str, ...] = ()
    role: CauseRole = CauseRole.ROOT
    force: Force = Force.PLAIN
    warns: bool = False
    hard: bool = False
    see: str = ""
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    errno: tuple[str, ...] = ()
    written_from: WrittenFrom = WrittenFrom.SITE


class RulesFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules."""

    category: dict[str, Any] = {}
    software: dict[str, Any] = {}
    codes: dict[str, Any] = {}
    errno: dict[str, Any] = {}
    rule: Annotated[list[Any], Meta(description="tables, each written [[rule]]")] = []


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What rules refer to by name."""

    categories: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what is said of each
    software: Mapping[str, str] = field(default_factory=dict)  # where the makers describe its messages
    codes: Mapping[str, str] = field(default_factory=dict)  # what patterns call by a name, as a pattern
    errno: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # the C library's errors: number and text

    def __or__(self, other: Vocabulary) -> Vocabulary:
        """Both; what is in both is the other's."""
        return Vocabulary(
            {**self.categories, **other.categories},
            {**self.software, **other.software},
            {**self.codes, **other.codes},
            {**self.errno, **other.errno},
        )


@lru_cache(maxsize=1)
def own_rules() -> RuleBook:
    """The rules that come with Perdure."""
    return _book_of(_own_file(), "rules.toml", Vocabulary())


@lru_cache(maxsize=1)
def own_categories() -> Mapping[str, CategoryTable]:
    """What is said of each category, by its name."""
    return {name: _read(CategoryTable, table, "rules.toml: ") for name, table in _own_file().category.items()}


def with_site_rules(path: Path) -> RuleBook:
    """The own rules, preceded by a site's file of the same form; a name in both means the site's."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), f"cannot be read ({err})", "Name a TOML file of rules") from err
    site = read_rules(text, str(path), _own_vocabulary())
    names = {rule.cause.name for rule in site.rules}
    return RuleBook((*site.rules, *(rule for rule in own_rules().rules if rule.cause.name not in names)))


def read_rules(text: str, source: str, known: Vocabulary | None = None) -> RuleBook:
    """Read rules from TOML. Raises `ConfigError` that names the file, the rule and what to fix."""
    return _book_of(_file_of(text, source), source, known or Vocabulary())


def _file_of(text: str, source: str) -> RulesFile:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(source, f"not TOML ({err})", "Fix the line that is named") from err
    file: RulesFile = _read(RulesFile, document, f"{source}: ")
    return file


def _book_of(file: RulesFile, source: str, known: Vocabulary) -> RuleBook:
    words = known | _vocabulary(file, source)
    rules = tuple(_rule(entry, number, source, words) for number, entry in enumerate(file.rule, 1))
    _check_names(rules, source)
    book = RuleBook(rules)
    if rules:
        _check_screen(book, source)
    return book


@lru_cache(maxsize=1)
def _own_file() -> RulesFile:
    return _file_of((resources.files("perdure.triage") / "rules.toml").read_text("utf-8"), "rules.toml")


def _own_vocabulary() -> Vocabulary:
    return _vocabulary(_own_file(), "rules.toml")


def _vocabulary(file: RulesFile, source: str) -> Vocabulary:
    """The tables of a file that are not rules, checked."""
    for name, table in file.category.items():
        _read(CategoryTable, table, f"{source}: category {name!r}")
    software = {
        name: _read(SoftwareTable, each, f"{source}: software {name!r}") for name, each in file.software.items()
    }
    codes = {name: _read(Codes, each, f"{source}: codes {name!r}") for name, each in file.codes.items()}
    errno = {name: _read(Errno, each, f"{source}: errno {name!r}") for name, each in file.errno.items()}
    return Vocabulary(
        file.category,
        {name: each.see for name, each in software.items()},
        {name: each if isinstance(each, str) else "|".join(map(str, each)) for name, each in codes.items()},
        errno,
    )


def _read(kind: Any, value: object, where: str) -> Any:
    try:
        return read(kind, value, where)
    except InputError as err:
        raise ConfigError(err.where, err.what, err.fix) from err


def _rule(entry: Any, number: int, source: str, known: Vocabulary) -> TriageRule:
    named = entry if isinstance(entry, dict) else {}
    where = f"{source}: rule {named.get('name', number)!r}"
    category = named.get("category", "")
    inherited = known.categories.get(category, {}) if isinstance(category, str) else {}
    table: RuleTable = _read(RuleTable, {**inherited, **entry} if named else entry, where)
    _check_rule(table, where, known)
    cause = Cause(
        table.name,
        table.category,
        table.p,
        table.role,
        table.force,
        table.says,
        table.advice,
        table.bound,
        table.infrastructure,
        table.wait_s,
        table.hard,
        table.at is At.KERNEL,
        table.part_of,
    )
    see = table.see or next((known.software[name] for name in table.software if known.software[name]), "")
    pattern = _with_errno(_with_codes(table.pattern, known.codes, where), table.errno, known, where)
    rule = TriageRule(
        cause, pattern, table.at, table.yes, table.no, table.software, table.warns, see, table.written_from
    )
    try:
        re2.compile(rule.anchored.encode(), options())
    except re2.error as err:
        reason = err.args[0].decode() if isinstance(err.args[0], bytes) else err.args[0]
        fix = "Look-around and back-references do not exist there"
        raise ConfigError(where, f"the pattern is not re2 ({reason})", fix) from err
    return rule


def _check_rule(table: RuleTable, where: str, known: Vocabulary) -> None:
    """Raises `ConfigError` for what no type says: names that are not there, and keys that do not go together."""
    if not table.pattern and not table.errno:
        raise ConfigError(where, "'pattern' is missing", "Give it, or errno in its place")
    if table.category not in known.categories:
        fix = f"Use one of {', '.join(sorted(known.categories))}, or add [category.{table.category}]"
        raise ConfigError(where, f"unknown category {table.category!r}", fix)
    if strange := [name for name in table.software if name not in known.software]:
        fix = f"Use one of {', '.join(sorted(known.software))}, or add [software.NAME]"
        raise ConfigError(where, f"unknown software {strange[0]!r}", fix)
    if table.hard and table.at not in (At.KERNEL, At.RUNTIME):
        raise ConfigError(where, "hard needs a form", 'Say at = "kernel" or at = "runtime"')
    if "^" in _outside_classes(table.pattern):
        raise ConfigError(where, "the pattern holds ^", 'Leave it out and say at = "start"')


def _with_errno(pattern: str, names: Sequence[str], known: Vocabulary, where: str) -> str:
    """The pattern, or one of the errors of the C library: by its name, its number as Python tells it, or its text."""
    if strange := [name for name in names if name not in known.errno]:
        raise ConfigError(where, f"unknown errno {strange[0]!r}", "Add it to [errno]")
    errors = [(name, *known.errno[name]) for name in names]
    forms = (rf"\b{name}\b|\[Errno {number}\]|(?i:\b{text}\b)" for name, number, text in errors)
    return "|".join([*forms, *([pattern] if pattern else [])])


def _with_codes(pattern: str, codes: Mapping[str, str], where: str) -> str:
    """The pattern with each {{name}} replaced by what it stands for."""
    before, *rest = pattern.split("{{")
    for part in rest:
        name, closed, after = part.partition("}}")
        if not closed or name not in codes:
            raise ConfigError(
                where, f"unknown codes {name!r}", f"Use one of {', '.join(sorted(codes))}, or add [codes]"
            )
        before += codes[name] + after
    return before


def _outside_classes(pattern: str) -> str:
    """The pattern without escapes and character classes."""
    plain: list[str] = []
    depth = escaped = False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "[" and not depth:
            depth = True
        elif char == "]" and depth:
            depth = False
        elif not depth:
            plain.append(char)
    return "".join(plain)


def _check_names(rules: Iterable[TriageRule], source: str) -> None:
    seen: set[str] = set()
    for rule in rules:
        if rule.cause.name in seen:
            where = f"{source}: rule {rule.cause.name!r}"
            raise ConfigError(where, "the name is used twice", "Give each rule its own name")
        seen.add(rule.cause.name)


def _check_screen(book: RuleBook, source: str) -> None:
    """A pattern that matches nothing at all would stop the screen at every byte."""
    for rule in book.rules:
        if book.screen.search(b"") and re2.search(rule.pattern.encode(), b"", options()):
            where = f"{source}: rule {rule.cause.name!r}"
            raise ConfigError(where, "the pattern matches an empty line", "Name words that only the failure has")
