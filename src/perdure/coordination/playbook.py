"""The playbook: data that says who is asked about which failure, how long, how often, and what happens else.

The one that comes with Perdure is ``playbook.toml`` beside this file; a site's own is laid over it, entry by entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.record import Component, Scope
from perdure.coordination.site import Resource
from perdure.coordination.wire import type_of
from perdure.errors import InputError

VERSION = 1
MAX_CHARACTERS = 1 << 20
_KEYS = ("scope", "like", "levels", "fall_back", "deadline_s", "window_s", "outlives_job", "lasts_s", "budget")
_FORMER_KEYS = {"seats": "levels"}  # still read, for one release
_PER = ("job", "node", "resource")


@dataclass(frozen=True, slots=True)
class Allowance:
    """How often within `window_s` seconds Perdure recovers from the like for one job, node or resource."""

    limit: int
    window_s: float
    per: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done about one kind of failure."""

    type: str
    scope: Scope = Scope.LOCAL
    levels: Mapping[Component, str] = field(default_factory=dict)  # handlers by name
    fall_back: str = "escalate"
    deadline_s: float = 300.0
    window_s: float = 600.0
    outlives_job: bool = False  # the fault is there still when the job that met it has ended
    lasts_s: float = 0.0  # a soft fault, which things live through, is acted on once it has lasted so long
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True)
class Playbook:
    """Plans by dotted type, and shared resources by name."""

    plans: Mapping[str, Plan]
    resources: Mapping[str, Resource] = field(default_factory=dict)

    def plan_for(self, dotted: str) -> Plan | None:
        """The plan of the longest prefix of a type; None where no plan is meant for it."""
        while dotted:
            if plan := self.plans.get(dotted):
                return plan
            dotted = dotted.rpartition(".")[0]
        return None

    def families(self) -> list[str]:
        """The first words of the types that are planned for."""
        return sorted({name.partition(".")[0] for name in self.plans})

    def resource(self, name: str) -> Resource:
        return self.resources.get(name) or Resource(name)


@cache
def own_playbook() -> Playbook:
    """The playbook that comes with Perdure."""
    text = files(__package__).joinpath("playbook.toml").read_text("utf-8")
    return _playbook(_table(text, "playbook.toml"), {}, "playbook.toml")


def site_playbook(text: str, where: str) -> Playbook:
    """A site's playbook laid over Perdure's own; `where` is its file. Raises `InputError` that names entry and fix."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            where, f"is longer than {MAX_CHARACTERS} characters", "Keep only what differs from Perdure's own"
        )
    own = _table(files(__package__).joinpath("playbook.toml").read_text("utf-8"), "playbook.toml")
    return _playbook(_table(text, where), own["failures"], where)


def _table(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InputError(where, f"is not TOML: {err}", "Fix it there") from err


def _playbook(table: Mapping[str, Any], below: Mapping[str, Any], where: str) -> Playbook:
    version = table.get("version", VERSION)
    if version != VERSION:
        raise InputError(
            where, f"is of version {version!r}, and this Perdure reads {VERSION}", f"Set version = {VERSION}"
        )
    _only(table, ("version", "failures", "resources"), where)
    entries = {**below, **_section(table, "failures", where)}
    plans = {name: _plan(name, entries, where) for name in entries}
    resources = {name: _resource(name, entry, where) for name, entry in _section(table, "resources", where).items()}
    return Playbook(plans, resources)


def _plan(name: str, entries: Mapping[str, Any], where: str) -> Plan:
    """Read one entry, with what it takes over from others."""
    at = f"{where}: failures.{name!r}"
    type_of(name, at)
    values: dict[str, Any] = {}
    for entry in _lineage(name, entries, where):
        values = {**entry, **values}
    scope = Scope(_one_of(values.get("scope", "local"), tuple(Scope), f"{at}.scope"))
    deadline_s = _seconds(values.get("deadline_s", 300.0), f"{at}.deadline_s")
    lasts_s = _seconds(values["lasts_s"], f"{at}.lasts_s") if values.get("lasts_s") else 0.0
    if lasts_s >= deadline_s:
        raise InputError(f"{at}.lasts_s", f"{lasts_s:g} s end after the deadline", f"Keep it below {deadline_s:g}")
    return Plan(
        type=name,
        scope=scope,
        levels=_levels(values.get("levels", {}), f"{at}.levels"),
        fall_back=_handler(values.get("fall_back", "escalate"), f"{at}.fall_back"),
        deadline_s=deadline_s,
        window_s=_seconds(values.get("window_s", 600.0), f"{at}.window_s"),
        outlives_job=_truth(values.get("outlives_job", scope is Scope.GLOBAL), f"{at}.outlives_job"),
        lasts_s=lasts_s,
        allowance=_allowance(values["budget"], f"{at}.budget") if "budget" in values else None,
    )


def _lineage(name: str, entries: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    """The entry itself, then those that it is like. Raises `InputError` for a circle."""
    seen: list[str] = []
    while name:
        if name in seen:
            circle = " -> ".join((*seen, name))
            raise InputError(f"{where}: failures.{name!r}.like", f"goes in a circle: {circle}", "Cut it somewhere")
        if name not in entries:
            raise InputError(
                f"{where}: failures.{seen[-1]!r}.like", f"{name!r} is not there", "Name an entry of the file"
            )
        entry = entries[name]
        if not isinstance(entry, dict):
            raise InputError(f"{where}: failures.{name!r}", "is not a table", f'Write it as [failures."{name}"]')
        _only(entry, (*_KEYS, *_FORMER_KEYS), f"{where}: failures.{name!r}")
        seen.append(name)
        yield {_FORMER_KEYS.get(str(key), str(key)): value for key, value in entry.items()}
        name = str(entry.get("like", ""))


def _levels(value: Any, where: str) -> dict[Component, str]:
    levels = _mapping(value, where)
    return {
        Component(_one_of(level, tuple(Component), where)): _handler(handler, f"{where}.{level}")
        for level, handler in levels.items()
    }


def _handler(value: Any, where: str) -> str:
    return _one_of(value, tuple(HANDLERS), where)


def _allowance(value: Any, where: str) -> Allowance:
    budget = _mapping(value, where)
    _only(budget, ("limit", "window_s", "per"), where)
    limit = budget.get("limit", 1)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InputError(f"{where}.limit", f"{limit!r} is not a whole number from 0", "Write it in digits")
    window_s = _seconds(budget.get("window_s", 86400.0), f"{where}.window_s")
    return Allowance(limit, window_s, _one_of(budget.get("per", "job"), _PER, f"{where}.per"))


def _resource(name: str, value: Any, where: str) -> Resource:
    at = f"{where}: resources.{name!r}"
    entry = _mapping(value, at)
    _only(entry, ("licence", "partitions"), at)
    licence, partitions = entry.get("licence", ""), entry.get("partitions", [])
    if (
        not isinstance(licence, str)
        or not isinstance(partitions, list)
        or not all(isinstance(p, str) for p in partitions)
    ):
        raise InputError(at, "licence is a name, partitions a list of names", 'Write partitions = ["main"]')
    return Resource(name, licence, tuple(partitions))


# -- one value each


def _section(table: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    return _mapping(table.get(name, {}), f"{where}: {name}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, f"{value!r} is not a table", 'Write it like { key = "value" }')
    return value


def _only(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in known:
            raise InputError(f"{where}.{key}", "is not known", f"Use one of: {', '.join(known)}")


def _one_of(value: Any, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise InputError(where, f"{value!r} is not known", f"Use one of: {', '.join(known)}")
    return str(value)


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(where, f"{value!r} is neither true nor false", "Write true or false")
    return value


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 30 * 86400:
        raise InputError(where, f"{value!r} is not a number of seconds", "Give one above 0, at most 30 days")
    return float(value)
