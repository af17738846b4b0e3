"""The evidence rules: read from TOML, checked, and matched against a log at the speed of one automaton.

Two passes. The *screen*, one pattern made of all rules, runs over whole blocks and finds the few lines that
could matter; on those the anchored rules decide, all at once, through `re2.Set`.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import re2

from perdure.errors import ConfigError
from perdure.triage.clean import (
    ADVICE,
    MAX_LINE_BYTES,
    PIECE,
    SURVIVED,
    LogText,
    blocks,
    decode,
    without_bars,
    without_prefix,
)
from perdure.triage.verdict import Bound, Role

Kind = TypeVar("Kind", bound=StrEnum)


class At(StrEnum):
    """Where in a cleaned line a pattern must stand."""

    ANYWHERE = "anywhere"
    START = "start"
    WHOLE = "whole"
    EXCEPTION = "exception"  # at the start, after a module path if there is one


class Force(StrEnum):
    """Which of several roots is believed."""

    DECISIVE = "decisive"  # the resource manager's own word
    PLAIN = "plain"
    GENERIC = "generic"  # yields to any plain root
    FAINT = "faint"  # yields to cascades as well: scripts print such lines and go on


@dataclass(frozen=True, slots=True)
class Cause:
    """What it means that a rule matched, or that a fact holds."""

    name: str
    category: str
    p_transient: float
    role: Role = Role.ROOT
    force: Force = Force.PLAIN
    says: str = ""  # half a sentence for a person
    advice: str = ""
    bound: Bound = Bound.NOTHING
    infrastructure: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and what it means."""

    cause: Cause
    pattern: str
    at: At = At.ANYWHERE
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()

    @property
    def anchored(self) -> str:
        before = "" if self.at is At.ANYWHERE else r"^\s*"
        if self.at is At.EXCEPTION:
            before += r"(?:[\[(<]?(?:ERROR|CRITICAL|FATAL|E)[\])>]?:? +(?:\S+ )?(?:[-|] )?)?(?:[A-Za-z_][\w.]*\.)?"
        return f"{before}(?:{self.pattern})" + (r"\s*$" if self.at is At.WHOLE else "")


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a rule matched."""

    cause: Cause
    line: int
    text: str  # cleaned, for a person
    order: int  # place among all hits of the log


@dataclass(frozen=True)
class RuleBook:
    """Rules in the order of their rank: within one line the earlier wins."""

    rules: tuple[Rule, ...]

    @cached_property
    def screen(self) -> Any:
        bare = "|".join(f"(?:{rule.pattern})" for rule in self.rules)
        return re2.compile(f"(?m){bare}".encode(), _options())

    @cached_property
    def _set(self) -> Any:
        rules = re2.Set.SearchSet(_options())
        for pattern in (*(rule.anchored for rule in self.rules), SURVIVED, ADVICE):
            rules.Add(pattern.encode())
        rules.Compile()
        return rules

    def match(self, line: bytes) -> Rule | None:
        """The first rule that matches a cleaned line, or None.

        A line of mere advice matches none. One that tells of a failure which was dealt with confirms at most.
        """
        found = self._set.Match(line) or ()
        first, advice = min(found, default=len(self.rules)), len(self.rules) + 1
        if first >= len(self.rules) or advice in found:
            return None
        rule = self.rules[first]
        if advice - 1 in found and rule.cause.force is not Force.DECISIVE:
            return replace(rule, cause=replace(rule.cause, role=Role.CONFIRMATION))
        return rule

    def hits(self, text: LogText, keep: int = 48) -> list[Hit]:
        """All lines that a rule matches, in order; of each rule the first `keep` and the last `keep` at most."""
        first: dict[str, list[tuple[int, Cause, int, bytes]]] = {}
        last: dict[str, deque[tuple[int, Cause, int, bytes]]] = {}
        for order, (rule, line, piece) in enumerate(self._matches(text)):
            name = rule.cause.name
            early = first.setdefault(name, [])
            if len(early) < keep:
                early.append((order, rule.cause, line, piece))
            else:
                last.setdefault(name, deque(maxlen=keep)).append((order, rule.cause, line, piece))
        kept = sorted(chain(*first.values(), *last.values()), key=lambda found: found[0])
        return [Hit(cause, line, decode(piece).strip(), order) for order, cause, line, piece in kept]

    def _matches(self, text: LogText) -> Iterator[tuple[Rule, int, bytes]]:
        """Yield `(rule, line number, cleaned line)` for each line that a rule matches."""
        known: dict[bytes, tuple[Rule, bytes] | None] = {}
        for window in text.windows:
            for first_line, block in blocks(window):
                for line, piece in _candidates(self.screen, first_line, block):
                    if piece not in known:
                        if len(known) >= 4096:
                            known.clear()
                        cleaned = without_prefix(without_bars(piece))
                        rule = self.match(cleaned)
                        known[piece] = (rule, cleaned) if rule is not None else None
                    if (found := known[piece]) is not None:
                        yield found[0], line, found[1]


def _candidates(screen: Any, first_line: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number, raw piece)` for each line, or piece of an over-long one, that the screen stops at."""
    position, line, redrawn = 0, first_line, PIECE in block
    while found := screen.search(block, position):
        at = found.start()
        line += block.count(b"\n", position, at)
        nearest = max(0, at - MAX_LINE_BYTES // 2)
        start = max(block.rfind(b"\n", nearest, at) + 1, nearest)
        end = block.find(b"\n", at, at + MAX_LINE_BYTES // 2)
        if end < 0:
            end = min(len(block), at + MAX_LINE_BYTES // 2)
        if redrawn:
            start = max(start, block.rfind(PIECE, nearest, at) + 1)
            redraw = block.find(PIECE, at, end)
            end = end if redraw < 0 else redraw
        yield line, block[start:end]
        position = max(end, at + 1)


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 64 << 20
    return options


# ---------------------------------------------------------------- reading


@lru_cache(maxsize=1)
def own_rules() -> RuleBook:
    """The rules that come with Perdure."""
    source = resources.files("perdure.triage") / "rules.toml"
    return read_rules(source.read_text("utf-8"), "rules.toml")


def with_site_rules(path: Path) -> RuleBook:
    """The own rules, preceded by a site's file of the same form; a name in both means the site's."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), f"cannot be read ({err})", "Name a TOML file of rules") from err
    categories = _categories(_own_document(), "rules.toml")
    site = read_rules(text, str(path), categories)
    names = {rule.cause.name for rule in site.rules}
    return RuleBook((*site.rules, *(rule for rule in own_rules().rules if rule.cause.name not in names)))


def read_rules(text: str, source: str, categories: Mapping[str, Mapping[str, Any]] | None = None) -> RuleBook:
    """Read rules from TOML. Raises `ConfigError` that names the file, the rule and what to mend."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(source, f"not TOML ({err})", "Mend the line that is named") from err
    known = {**(categories or {}), **_categories(document, source)}
    if unknown := sorted(set(document) - {"category", "rule"}):
        raise ConfigError(source, f"unknown table {unknown[0]!r}", "Use [category.NAME] and [[rule]]")
    rules = tuple(_rule(entry, number, source, known) for number, entry in enumerate(document.get("rule", []), 1))
    _check_names(rules, source)
    book = RuleBook(rules)
    if rules:
        _check_screen(book, source)
    return book


def _own_document() -> dict[str, Any]:
    return tomllib.loads((resources.files("perdure.triage") / "rules.toml").read_text("utf-8"))


def _categories(document: Mapping[str, Any], source: str) -> dict[str, Mapping[str, Any]]:
    allowed = {"says", "advice", "bound", "infrastructure", "wait_s"}
    tables = document.get("category", {})
    for name, table in tables.items():
        if unknown := sorted(set(table) - allowed):
            mend = f"Use {', '.join(sorted(allowed))}"
            raise ConfigError(source, f"category {name!r}: unknown key {unknown[0]!r}", mend)
    return dict(tables)


_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str, "pattern": str, "at": str, "category": str, "role": str, "force": str, "p": (int, float),
    "says": str, "advice": str, "bound": str, "infrastructure": bool, "wait_s": (int, float), "yes": list, "no": list,
}  # fmt: skip


def _rule(entry: Mapping[str, Any], number: int, source: str, categories: Mapping[str, Mapping[str, Any]]) -> Rule:
    where = f"{source}: rule {entry.get('name', number)!r}"
    for key, value in entry.items():
        if key not in _KEYS:
            raise ConfigError(where, f"unknown key {key!r}", f"Use {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]) or (isinstance(value, bool) and _KEYS[key] is not bool):
            raise ConfigError(where, f"{key} = {value!r} has the wrong type", "See the head of the shipped rules.toml")
    for key in ("name", "pattern", "category", "p"):
        if key not in entry:
            raise ConfigError(where, f"{key!r} is missing", "Each rule has name, pattern, category and p")
    if entry["category"] not in categories:
        mend = f"Use one of {', '.join(sorted(categories))}, or add [category.{entry['category']}]"
        raise ConfigError(where, f"unknown category {entry['category']!r}", mend)
    if not 0.0 < entry["p"] < 1.0:
        raise ConfigError(where, f"p = {entry['p']} is not between 0 and 1", "Give a probability, such as 0.05")
    if "^" in _outside_classes(entry["pattern"]):
        raise ConfigError(where, "the pattern holds ^", 'Leave it out and say at = "start"')
    merged = {**categories[entry["category"]], **entry}
    cause = Cause(
        entry["name"],
        entry["category"],
        float(entry["p"]),
        _choice(Role, merged.get("role", "root"), "role", where),
        _choice(Force, merged.get("force", "plain"), "force", where),
        str(merged.get("says", "")),
        str(merged.get("advice", "")),
        _choice(Bound, merged.get("bound", "nothing"), "bound", where),
        bool(merged.get("infrastructure", False)),
        float(merged.get("wait_s", 0.0)),
    )
    at = _choice(At, entry.get("at", "anywhere"), "at", where)
    rule = Rule(cause, entry["pattern"], at, tuple(entry.get("yes", ())), tuple(entry.get("no", ())))
    try:
        re2.compile(rule.anchored.encode(), _options())
    except re2.error as err:
        reason = err.args[0].decode() if isinstance(err.args[0], bytes) else err.args[0]
        mend = "Look-around and back-references do not exist there"
        raise ConfigError(where, f"the pattern is not re2 ({reason})", mend) from err
    return rule


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


def _check_names(rules: Iterable[Rule], source: str) -> None:
    seen: set[str] = set()
    for rule in rules:
        if rule.cause.name in seen:
            where = f"{source}: rule {rule.cause.name!r}"
            raise ConfigError(where, "the name is used twice", "Give each rule its own name")
        seen.add(rule.cause.name)


def _check_screen(book: RuleBook, source: str) -> None:
    """A pattern that matches nothing at all would stop the screen at every byte."""
    for rule in book.rules:
        if book.screen.search(b"") and re2.search(rule.pattern.encode(), b"", _options()):
            where = f"{source}: rule {rule.cause.name!r}"
            raise ConfigError(where, "the pattern matches an empty line", "Name words that only the failure has")
