"""The playbook: data that says who is asked about which failure, how long, how often, and what happens else.

The one that comes with Perdure is ``playbook.toml`` next to this file; a site's own is laid over it, entry by entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.record import Component, Scope
from perdure.coordination.site import Resource
from perdure.coordination.wire import type_of
from perdure.errors import InputError
from perdure.model.validation import read

VERSION = 1
MAX_CHARACTERS = 1 << 20
_FORMER_KEYS = {"seats": "levels"}  # still read, for one release

Seconds = Annotated[float, Meta(gt=0, le=30 * 86400, description="a number of seconds above 0, at most 30 days")]


class Allowance(Struct, frozen=True, forbid_unknown_fields=True):
    """How often within `window_s` seconds Perdure recovers from the like for one job, node or resource."""

    limit: Annotated[int, Meta(ge=0)] = 1
    window_s: Seconds = 86400.0
    per: Literal["job", "node", "resource"] = "job"


class PlanTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says about one kind of failure."""

    scope: Scope = Scope.LOCAL
    like: str = ""  # what is not said here is as in this entry
    levels: dict[Component, str] = {}  # handlers by name
    fall_back: str = "escalate"
    deadline_s: Seconds = 300.0
    window_s: Seconds = 600.0
    outlives_job: bool = False  # the fault is there still when the job that met it has ended
    lasts_s: Annotated[float, Meta(ge=0)] = 0.0  # a soft fault that things live through is acted on after this long
    allowance: Allowance | None = field(default=None, name="budget")


class Plan(PlanTable, frozen=True):
    """What is done about one kind of failure."""

    type: str = ""


class ResourceTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says about something that jobs share."""

    licence: str = ""
    partitions: tuple[str, ...] = ()
    directory: str = ""


class PlaybookFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a file."""

    version: int = VERSION
    failures: dict[str, Any] = {}
    resources: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Playbook:
    """Plans by dotted type, and shared resources by name."""

    plans: Mapping[str, Plan]
    resources: Mapping[str, Resource]

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
        """The resource of this name; one that no file names, and that is a path, is the file system mounted there."""
        return self.resources.get(name) or Resource(name, directory=name if name.startswith("/") else "")

    def resource_at(self, mount: str) -> Resource:
        """What jobs share there."""
        return next((each for each in self.resources.values() if each.directory == mount), self.resource(mount))


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
    file: PlaybookFile = read(PlaybookFile, table, where)
    entries = {**below, **file.failures}
    return Playbook(
        {name: _plan(name, entries, where) for name in entries},
        {
            name: Resource(name, *structs.astuple(read(ResourceTable, entry, f"{where}: resources.{name!r}")))
            for name, entry in file.resources.items()
        },
    )


def _plan(name: str, entries: Mapping[str, Any], where: str) -> Plan:
    """Read one entry, with what it takes over from others."""
    at = f"{where}: failures.{name!r}"
    type_of(name, at)
    values: dict[str, Any] = {}
    for entry in _lineage(name, entries, where):
        values = {**entry, **values}
    values.setdefault("outlives_job", values.get("scope") == Scope.GLOBAL)
    table: PlanTable = read(PlanTable, values, at)
    if table.lasts_s >= table.deadline_s:
        what = f"{table.lasts_s:g} s end after the deadline"
        raise InputError(f"{at}.lasts_s", what, f"Keep it below {table.deadline_s:g}")
    levels = ((f"levels.{level}", handler) for level, handler in table.levels.items())
    for key, handler in (("fall_back", table.fall_back), *levels):
        if handler not in HANDLERS:
            raise InputError(f"{at}.{key}", f"{handler!r} is not known", f"Use one of: {', '.join(HANDLERS)}")
    return Plan(**structs.asdict(table), type=name)


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
        seen.append(name)
        yield {_FORMER_KEYS.get(str(key), str(key)): value for key, value in entry.items()}
        name = str(entry.get("like", ""))
