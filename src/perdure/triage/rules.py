"""The evidence rules, read from TOML and checked: those that come with Perdure, and a site's own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import re2

from perdure.errors import ConfigError
from perdure.triage.matching import RuleBook
from perdure.triage.patterns import options
from perdure.triage.rule import At, Cause, Force, TriageRule
from perdure.triage.verdict import Bound, CauseRole

Kind = TypeVar("Kind", bound=StrEnum)


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
    return read_rules(_own_text(), "rules.toml")


def with_site_rules(path: Path) -> RuleBook:
    """The own rules, preceded by a site's file of the same form; a name in both means the site's."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), f"cannot be read ({err})", "Name a TOML file of rules") from err
    site = read_rules(text, str(path), _vocabulary(tomllib.loads(_own_text()), "rules.toml"))
    names = {rule.cause.name for rule in site.rules}
    return RuleBook((*site.rules, *(rule for rule in own_rules().rules if rule.cause.name not in names)))


def read_rules(text: str, source: str, known: Vocabulary | None = None) -> RuleBook:
    """Read rules from TOML. Raises `ConfigError` that names the file, the rule and what to fix."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(source, f"not TOML ({err})", "Fix the line that is named") from err
    if unknown := sorted(set(document) - {"category", "software", "codes", "errno", "rule"}):
        fix = "Use [category.NAME], [software.NAME], [codes], [errno] and [[rule]]"
        raise ConfigError(source, f"unknown table {unknown[0]!r}", fix)
    words = (known or Vocabulary()) | _vocabulary(document, source)
    rules = tuple(_rule(entry, number, source, words) for number, entry in enumerate(document.get("rule", []), 1))
    _check_names(rules, source)
    book = RuleBook(rules)
    if rules:
        _check_screen(book, source)
    return book


def _own_text() -> str:
    return (resources.files("perdure.triage") / "rules.toml").read_text("utf-8")


def _vocabulary(document: Mapping[str, Any], source: str) -> Vocabulary:
    """The tables of a file that are not rules, checked."""
    categories = dict(_tables(document, source, "category", {"says", "advice", "bound", "infrastructure", "wait_s"}))
    software = {name: str(table.get("see", "")) for name, table in _tables(document, source, "software", {"see"})}
    codes = {name: _code(name, value, source) for name, value in document.get("codes", {}).items()}
    errno = {name: _errno(name, value, source) for name, value in document.get("errno", {}).items()}
    return Vocabulary(categories, software, codes, errno)


def _code(name: str, value: object, source: str) -> str:
    """The pattern that a list of numbers stands for, or that is written out."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, list) or not value or not all(type(n) is int and n >= 0 for n in value):
        fix = "Write it like [13, 31], or as a pattern"
        raise ConfigError(source, f"codes {name!r} is not a list of whole numbers", fix)
    return "|".join(map(str, value))


def _errno(name: str, value: object, source: str) -> tuple[int, str]:
    match value:
        case [int(number), str(text)] if text:
            return number, text
    raise ConfigError(source, f"errno {name!r} is not a number and a text", 'Write it like [112, "Host is down"]')


def _tables(
    document: Mapping[str, Any], source: str, kind: str, allowed: set[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, table in document.get(kind, {}).items():
        if unknown := sorted(set(table) - allowed):
            fix = f"Use {', '.join(sorted(allowed))}"
            raise ConfigError(source, f"{kind} {name!r}: unknown key {unknown[0]!r}", fix)
        yield name, table


_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str, "pattern": str, "at": str, "category": str, "software": list, "role": str, "force": str,
    "p": (int, float), "says": str, "advice": str, "bound": str, "infrastructure": bool, "wait_s": (int, float),
    "warns": bool, "hard": bool, "see": str, "yes": list, "no": list, "errno": list,
}  # fmt: skip


def _rule(entry: Mapping[str, Any], number: int, source: str, known: Vocabulary) -> TriageRule:
    where = f"{source}: rule {entry.get('name', number)!r}"
    _check_entry(entry, where, known)
    merged = {**known.categories[entry["category"]], **entry}
    at = _choice(At, entry.get("at", "anywhere"), "at", where)
    cause = Cause(
        entry["name"],
        entry["category"],
        float(entry["p"]),
        _choice(CauseRole, merged.get("role", "root"), "role", where),
        _choice(Force, merged.get("force", "plain"), "force", where),
        str(merged.get("says", "")),
        str(merged.get("advice", "")),
        _choice(Bound, merged.get("bound", "nothing"), "bound", where),
        bool(merged.get("infrastructure", False)),
        float(merged.get("wait_s", 0.0)),
        bool(entry.get("hard", False)),
        at is At.KERNEL,
    )
    software = tuple(entry.get("software", ()))
    see = entry.get("see") or next((known.software[name] for name in software if known.software[name]), "")
    pattern = _with_codes(entry.get("pattern", ""), known.codes, where)
    pattern = _with_errno(pattern, entry.get("errno", ()), known, where)
    yes, no = tuple(entry.get("yes", ())), tuple(entry.get("no", ()))
    rule = TriageRule(cause, pattern, at, yes, no, software, entry.get("warns", False), see)
    try:
        re2.compile(rule.anchored.encode(), options())
    except re2.error as err:
        reason = err.args[0].decode() if isinstance(err.args[0], bytes) else err.args[0]
        fix = "Look-around and back-references do not exist there"
        raise ConfigError(where, f"the pattern is not re2 ({reason})", fix) from err
    return rule


def _check_entry(entry: Mapping[str, Any], where: str, known: Vocabulary) -> None:
    for key, value in entry.items():
        if key not in _KEYS:
            raise ConfigError(where, f"unknown key {key!r}", f"Use {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]) or (isinstance(value, bool) and _KEYS[key] is not bool):
            raise ConfigError(where, f"{key} = {value!r} has the wrong type", "See the head of the shipped rules.toml")
    for key in ("name", "category", "p", *(() if entry.get("errno") else ("pattern",))):
        if key not in entry:
            raise ConfigError(where, f"{key!r} is missing", "Each rule has name, pattern or errno, category and p")
    if entry["category"] not in known.categories:
        fix = f"Use one of {', '.join(sorted(known.categories))}, or add [category.{entry['category']}]"
        raise ConfigError(where, f"unknown category {entry['category']!r}", fix)
    if strange := [name for name in entry.get("software", ()) if name not in known.software]:
        fix = f"Use one of {', '.join(sorted(known.software))}, or add [software.NAME]"
        raise ConfigError(where, f"unknown software {strange[0]!r}", fix)
    if not 0.0 < entry["p"] < 1.0:
        raise ConfigError(where, f"p = {entry['p']} is not between 0 and 1", "Give a probability, such as 0.05")
    if entry.get("hard") and entry.get("at") not in (At.KERNEL, At.RUNTIME):
        raise ConfigError(where, "hard needs a form", 'Say at = "kernel" or at = "runtime"')
    if "^" in _outside_classes(entry.get("pattern", "")):
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


def _choice(kind: type[Kind], value: str, key: str, where: str) -> Kind:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(where, f"{key} = {value!r} is unknown", f"Use one of {', '.join(kind)}") from None


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
