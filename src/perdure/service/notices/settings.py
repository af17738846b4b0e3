"""What may be set of notices: the targets, the rules, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints
from urllib.parse import urlsplit

from msgspec import Meta
from msgspec.structs import replace

from perdure.errors import ConfigError, InputError
from perdure.model.validation import read, shown
from perdure.service.notices.channels.mail import Mail
from perdure.service.notices.channels.protocol import Channel
from perdure.service.notices.channels.registry import CHANNELS
from perdure.service.notices.notice import Kind, Severity
from perdure.service.notices.rules import NoticeLimits, Rule
from perdure.service.notices.secrets import Secret

MAX_TARGETS, MAX_RULES = 32, 200
_OPENLY = {"url"}  # what may be in the settings themselves as well as in a file or the environment
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets by name."""

    by_name: Mapping[str, Channel] = field(default_factory=dict)

    IN_WORDS = "a table for each target: [notices.targets.NAME]"

    @classmethod
    def read_tables(cls, value: object, base: Path | None) -> Targets:
        """The targets of ``[notices.targets]``; relative paths start at `base`. Raises `InputError`."""
        if not isinstance(value, dict) or len(value) > MAX_TARGETS:
            raise InputError("", f"this is not a table of at most {MAX_TARGETS} targets", f"Give {cls.IN_WORDS}")
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
        """The rules of ``[[notices.rules]]``. Raises `InputError`."""
        if not isinstance(value, list) or len(value) > MAX_RULES:
            raise InputError("", f"this is not a list of at most {MAX_RULES} tables", f"Give {cls.IN_WORDS}")
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
    """Allow URLs with ``http:`` beyond this machine: what is sent can then be read on its way."""
    allow_link_local: bool = False
    """Allow names that resolve to link-local addresses, where clouds keep credentials of the machine."""

    @property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules, or the default rule without any."""
        return self.rules.all or (Rule(tuple(self.targets.by_name)),)

    @property
    def limits(self) -> NoticeLimits:
        return NoticeLimits(self.group_s, self.per_hour, self.retry_for_s)


def kind_of(channel: Channel) -> str:
    """The word that a target's settings have for its channel."""
    return next(kind for kind, cls in CHANNELS.items() if isinstance(channel, cls))


def check_rules(settings: NoticesSettings, where: str) -> None:
    """Raises `ConfigError` for a rule that names an unknown target."""
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
        what = f"{name[:40]!r} is not a name of letters, digits, - and _"
        raise InputError(f"target {name[:40]!r}", what, "Give it one of at most 40 characters")
    return name


def _target(name: str, table: object, base: Path | None) -> Channel:
    where, kind = f"target {name}", str(table.get("kind")) if isinstance(table, dict) else ""
    if not isinstance(table, dict) or kind not in CHANNELS:
        raise InputError(f"{where}.kind", f"{shown(kind)} is not a channel", f"Use one of {', '.join(CHANNELS)}")
    cls, rest = CHANNELS[kind], {key: value for key, value in table.items() if key != "kind"}
    for field_name in [each for each, hint in get_type_hints(cls).items() if hint is Secret]:
        _keep_secret(field_name, rest, where)
    channel: Channel = _read(cls, rest, where, base)
    return channel


def _rule(number: int, table: object, base: Path | None) -> Rule:
    where = f"rule {number}"
    rule: Rule = _read(Rule, table, where, base)
    kinds = [kind.value for kind in Kind if kind is not Kind.TEST]
    if unknown := [kind for kind in rule.kinds if kind not in kinds]:
        raise InputError(f"{where}.kinds", f"{unknown[0]!r} is not a kind", f"Use one of {', '.join(kinds)}")
    if rule.kinds and "severity" not in cast("dict[str, object]", table):  # who names kinds wants these
        return replace(rule, severity=Severity.INFO)
    return rule


def _read(kind: Any, table: object, where: str, base: Path | None) -> Any:
    """A value of a table whose keys are its fields; what it refuses itself is said of the whole table."""
    try:
        return read(kind, table, where, lambda _, text: _path(text, base))
    except InputError:
        raise
    except ValueError as err:
        raise InputError(where, str(err), "See docs/how-to.md for its keys") from err


def _keep_secret(name: str, table: dict[str, Any], where: str) -> None:
    """Put where a secret is kept in the place of the key that said so: `name` itself, or with _file or _env behind."""
    forms = (name, f"{name}_file", f"{name}_env")
    given = [form for form in forms if form in table]
    if not given:
        return
    if len(given) > 1:
        raise InputError(where, f"{' and '.join(given)} are given", f"Give one of {', '.join(forms)}")
    form, text = given[0], table.pop(given[0])
    if not isinstance(text, str) or not text:
        raise InputError(f"{where}.{form}", "is not a text in quotes", "Put its value in quotes")
    if form == name and name not in _OPENLY:
        fix = f"Put it into a file of mode 600, and give {name}_file"
        raise InputError(f"{where}.{form}", "a secret is not a setting", fix)
    kept = {f"{name}_file": "file", f"{name}_env": "env"}.get(form, "value")
    table[name] = {kept: text}


def _path(text: object, base: Path | None) -> Path:
    if not isinstance(text, str) or not text:
        raise ValueError(f"{shown(text)} is not a path")
    path = Path(text).expanduser()
    return path if path.is_absolute() else (base or Path.cwd()).absolute() / path
