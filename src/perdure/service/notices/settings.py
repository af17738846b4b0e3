"""What may be set of notices: the targets, the rules, and the limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints
from urllib.parse import urlsplit

from msgspec import Meta

from perdure.errors import ConfigError
from perdure.service.notices.channels.mail import Mail
from perdure.service.notices.channels.protocol import Channel
from perdure.service.notices.channels.registry import CHANNELS
from perdure.service.notices.notice import Kind, Severity
from perdure.service.notices.rules import NoticeLimits, Rule
from perdure.service.notices.secrets import Secret

T = TypeVar("T")

MAX_TARGETS, MAX_RULES = 32, 200
_OPENLY = {"url"}  # what may stand in the settings themselves as well as in a file or the environment
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets by name."""

    by_name: Mapping[str, Channel] = field(default_factory=dict)

    IN_WORDS = "a table for each target: [notices.targets.NAME]"

    @classmethod
    def read_tables(cls, value: object, base: Path | None) -> Targets:
        """The targets of ``[notices.targets]``; relative paths start at `base`. Raises `ValueError`."""
        if not isinstance(value, dict) or len(value) > MAX_TARGETS:
            raise ValueError(f"this is not a table of at most {MAX_TARGETS} targets")
        return cls({_name(name): _target(name, table, base) for name, table in value.items()})

    @property
    def personal(self) -> frozenset[str]:
        return frozenset(name for name, channel in self.by_name.items() if channel.is_personal)

    def __str__(self) -> str:
        return ", ".join(f"{name} ({kind_of(channel)})" for name, channel in self.by_name.items())


@dataclass(frozen=True, slots=True)
class NoticeRules:
    """The rules in their order; all that match count."""

    all: tuple[Rule, ...] = ()

    IN_WORDS = "a table for each rule: [[notices.rules]]"

    @classmethod
    def read_tables(cls, value: object, base: Path | None) -> NoticeRules:
        """The rules of ``[[notices.rules]]``. Raises `ValueError`."""
        if not isinstance(value, list) or len(value) > MAX_RULES:
            raise ValueError(f"this is not a list of at most {MAX_RULES} tables")
        return cls(tuple(_rule(number, table, base) for number, table in enumerate(value, 1)))

    def __str__(self) -> str:
        return ", ".join(f"{','.join(rule.kinds) or 'all'} to {','.join(rule.to)}" for rule in self.all)


@dataclass(frozen=True, slots=True)
class NoticesSettings:
    """Who gets notices of what happens; `docs/how-to.md` has the keys of targets and rules."""

    targets: Targets = field(default_factory=Targets)
    """Who can be told: ``[notices.targets.NAME]`` with ``kind = "webhook"``, ``"mail"``, ``"slack"`` or ``"ntfy"``."""
    rules: NoticeRules = field(default_factory=NoticeRules)
    """Who gets which notices: ``[[notices.rules]]`` with `to`, and what `kinds`, `users`, `partitions` and `severity`
    it is about. Without a rule every target gets warnings and what is critical."""
    url: str = ""
    """Where people reach the pages, for the links in messages (``https://perdure.site.org``); "": as the service is
    reached on its own machine."""
    group_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    """How long a message waits for more of its kind, in seconds."""
    per_hour: Annotated[int, Meta(ge=1)] = 30
    """Most messages of one severity to one target in any hour, or to one person by it; what comes meanwhile goes into
    the next one. Each severity is counted apart, so what is critical never waits for the rest."""
    retry_for_s: float = 86_400.0
    """How long a message is tried again that cannot be delivered, in seconds; at most every 15 minutes."""
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 10.0
    """How long one delivery may take, in seconds."""
    disk_low_mib: int = 1024
    """Tell when the disk of the state directory has less room than this, in MiB."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts that may be connected to (``hooks.slack.com``, ``*.site.org``); empty: those that the targets name."""
    allow_http: bool = False
    """Let URLs begin with ``http:`` beyond this machine: what is sent can then be read on its way."""
    allow_link_local: bool = False
    """Let names lead to link-local addresses, where clouds keep credentials of the machine."""

    @property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules, or the one that holds where there are none."""
        return self.rules.all or (Rule(tuple(self.targets.by_name)),)

    @property
    def limits(self) -> NoticeLimits:
        return NoticeLimits(self.group_s, self.per_hour, self.retry_for_s)


def kind_of(channel: Channel) -> str:
    """The word that a target's settings have for its channel."""
    return next(kind for kind, cls in CHANNELS.items() if isinstance(channel, cls))


def check_rules(settings: NoticesSettings, where: str) -> None:
    """Raises `ConfigError` for a rule that names a target that is none."""
    known = settings.targets.by_name
    for rule in settings.rules.all:
        if unknown := [name for name in rule.to if name not in known]:
            fix = f"Write [notices.targets.{unknown[0]}], or name one of: {', '.join(known) or 'none is set'}"
            raise ConfigError(where, f"no target is called {unknown[0]!r}", fix)


def check_targets(settings: NoticesSettings, where: str) -> None:
    """Raises `ConfigError` for a target at an address that is never connected to; names are looked up later."""
    for name, channel in settings.targets.by_name.items():
        from perdure.service.notices.network import literal_address, why_not  # most commands do without

        host = _host_of(channel)
        address = literal_address(host)
        if address is not None and (why := why_not(address, settings.allow_link_local)):
            fix = "Name the receiver's own host, or allow it with notices.allow_link_local = true"
            raise ConfigError(where, f"target {name}: {host} is {why}", fix)


def _host_of(channel: Channel) -> str:
    """The host that the settings themselves name; "" where a secret does, or where it cannot be read."""
    if isinstance(channel, Mail):
        return channel.host
    with suppress(ValueError):  # what is not a URL is told when it is used
        return urlsplit(getattr(channel, "url", Secret()).value).hostname or ""
    return ""


def _name(name: str) -> str:
    """It is shown, logged and a label of metrics."""
    if not 0 < len(name) <= 40 or set(name) - _NAME_LETTERS:
        raise ValueError(f"{name[:40]!r} is not a name of letters, digits, - and _")
    return name


def _target(name: str, table: object, base: Path | None) -> Channel:
    kind = str(table.get("kind")) if isinstance(table, dict) else ""
    if not isinstance(table, dict) or kind not in CHANNELS:
        raise ValueError(f"target {name}: kind is not one of {', '.join(CHANNELS)}")
    rest = {key: value for key, value in table.items() if key != "kind"}
    return _built(CHANNELS[kind], rest, f"target {name}", base)


def _rule(number: int, table: object, base: Path | None) -> Rule:
    where = f"rule {number}"
    if not isinstance(table, dict):
        raise ValueError(f"{where} is not a table")
    rule = _built(Rule, table, where, base)
    kinds = [kind.value for kind in Kind if kind is not Kind.TEST]
    if unknown := [kind for kind in rule.kinds if kind not in kinds]:
        raise ValueError(f"{where}: {unknown[0]!r} is not one of {', '.join(kinds)}")
    if not rule.to:
        raise ValueError(f"{where}: to names no target")
    if rule.kinds and "severity" not in table:  # who names kinds wants these
        return dataclasses.replace(rule, severity=Severity.INFO)
    return rule


def _built(cls: type[T], table: Mapping[str, Any], where: str, base: Path | None) -> T:
    """A value of a table whose keys are its fields; those of a secret have ``_file`` or ``_env`` behind."""
    hints, values, left = get_type_hints(cls), dict[str, Any](), dict(table)
    for each in dataclasses.fields(cls):  # type: ignore[arg-type]
        kind = hints[each.name]
        if kind is Secret:
            if secret := _secret(each.name, left, where, base):
                values[each.name] = secret
        elif each.name in left:
            values[each.name] = _value(kind, each.name, left.pop(each.name), where, base)
        if each.name not in values and _is_needed(each):
            raise ValueError(f"{where}: {each.name} is missing")
    if left:
        raise ValueError(f"{where}: unknown key {next(iter(left))!r}")
    try:
        return cls(**values)
    except ValueError as err:
        raise ValueError(f"{where}: {err}") from err


def _is_needed(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _secret(name: str, left: dict[str, Any], where: str, base: Path | None) -> Secret | None:
    """Taken out of `left`; None where it is not given."""
    forms = (name, f"{name}_file", f"{name}_env")
    given = [form for form in forms if form in left]
    if len(given) > 1:
        raise ValueError(f"{where}: give one of {', '.join(given)}")
    if not given:
        return None
    form, text = given[0], left.pop(given[0])
    if not isinstance(text, str) or not text:
        raise ValueError(f"{where}: {form} is not a text in quotes")
    if form == name and name not in _OPENLY:
        raise ValueError(f"{where}: a secret is not a setting: put it into a file of mode 600, and give {name}_file")
    if form == f"{name}_file":
        return Secret(file=_path(text, base))
    return Secret(env=text) if form == f"{name}_env" else Secret(value=text)


def _value(kind: Any, name: str, value: object, where: str, base: Path | None) -> object:
    if get_origin(kind) is tuple and isinstance(value, list) and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(value, str) and value in list(kind):
        return kind(value)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65_535:
        return value
    if kind is str and isinstance(value, str):
        return value
    if kind == (Path | None) and isinstance(value, str) and value:
        return _path(value, base)
    raise ValueError(f"{where}: {name} cannot be {str(value)[:40]!r}")


def _path(text: str, base: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else (base or Path.cwd()).absolute() / path
