"""Settings: what may be set, where each value came from, and a clear word about every one that cannot be used.

Later sources win: built in, ``/etc/perdure/config.toml``, ``$XDG_CONFIG_HOME/perdure/config.toml``, ``--config FILE``,
``PERDURE_GROUP_KEY`` in the environment, options of the command. A file is TOML with one table a group.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import re2
from msgspec import Meta

from perdure.backends.kind import BackendKind, CallBudget
from perdure.backends.registry import BACKENDS
from perdure.errors import ConfigError, InputError
from perdure.live_policy.settings import PolicySettings
from perdure.model.actions import KINDS
from perdure.model.validation import in_words, read, shown
from perdure.retry.rules import RetryRules
from perdure.service.access.proxy.settings import ProxySettings, check_proxy
from perdure.service.access.service_file import base_directory, default_state_dir
from perdure.service.blame.settings import BlameSettings
from perdure.service.core.scope import ScopeSettings
from perdure.service.core.settings import Caps, ControllerSettings
from perdure.service.notices.settings import NoticesSettings, check_rules, check_targets
from perdure.service.waits.settings import WaitsSettings
from perdure.service.whatif.settings import WhatifSettings

SYSTEM_FILE = Path("/etc/perdure/config.toml")
MAX_FILE_BYTES = 1 << 20
BUILT_IN = "built in"
DEFAULT_BACKEND = "local"
CLUSTER_NAME = re2.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The service as a whole."""

    cluster: str = field(default=DEFAULT_BACKEND, metadata={"one_of": BACKENDS})
    """"local": the embedded one; "slurm": the one whose tools are in PATH; "kubernetes": the one of the kubeconfig;
    "condor": HTCondor, the ``condor_schedd`` of this machine or the one that is named."""
    cluster_name: str = ""
    """Name of this cluster in the journal, in ids and on pages; "" stands for the kind of the cluster. Clusters whose
    services share one PostgreSQL database each need a name of their own, which then must not change."""
    host: str = "127.0.0.1"
    """Address to listen on: a loopback one, unless `allow_remote`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8470
    """Port of the dashboard and the API; 0 takes any free one."""
    allow_remote: bool = False
    """Listen beyond this machine. Tokens then cross the network: only behind a proxy that speaks TLS."""
    hosts: tuple[str, ...] = ()
    """Names besides the loopback ones under which a proxy calls this service, each without a port."""
    state: Path = field(default_factory=lambda: default_state_dir(os.environ))
    """Directory of the journal, the kill switch and the service's own file."""
    socket: Path | None = None
    """Unix socket of the API, for all users of this machine; not set: ``perdure.sock`` in `state`, for its owner."""
    database: str = ""
    """URL of a PostgreSQL database for the journal; "" keeps it in SQLite in `state`."""
    keep_days: Annotated[float, Meta(ge=1)] = 30.0
    """How long the journal keeps events, and jobs, failures and actions that are settled. What is open stays."""
    poll_s: Annotated[float, Meta(ge=0.1, le=3600)] | None = None
    """Seconds between two looks at the cluster; not set: 1 on the embedded cluster, 5 on Kubernetes, 10 on
    HTCondor; on Slurm 30 where hooks report ends (`slurm.spool`), else as often as `slurm.looks_per_minute` allows."""
    standby: bool = False
    """Where another service has the journal open, wait until it ends or dies, then take over."""
    act: bool | None = None
    """True: carry decisions out; False: only say them (shadow mode). Not set: true on the embedded cluster alone."""
    keep_chains: bool = False
    """Keep the chains that the service's own user began with `perdure keep`, on Slurm, while it may act."""

    @property
    def cluster_id(self) -> str:
        """What the journal, ids and pages call the cluster."""
        return self.cluster_name or self.cluster

    @property
    def armed(self) -> bool:
        return BACKENDS[self.cluster].acts_by_default if self.act is None else self.act


@dataclass(frozen=True, slots=True)
class TriageSettings:
    """How failures are judged."""

    rules: Path | None = None
    """A site's own signature rules, tried before the ones shipped."""
    learn: bool = True
    """Train the model on what retries and persons prove, and compare a failure's log with that of the job's last good
    run. What persons say of a failure holds without it."""
    learn_every_s: float = 900.0
    """Seconds between two checks for new training examples."""
    keep_logs_mib: int = 1024
    """Room for the logs of failed attempts, compressed, in MiB; the oldest go first. 0 keeps none."""
    keep_logs_days: float = 30.0
    """How long the log of a failed attempt is kept."""


@dataclass(frozen=True, slots=True)
class CoordinationSettings:
    """Who is asked about which failure."""

    playbook: Path | None = None
    """A site's own playbook, laid over the one shipped."""
    agents: Path | None = None
    """Directory into which `perdure agent` writes on every node; not set: nodes are not watched."""
    fences: tuple[str, ...] = ()
    """Directories of jobs' fences, each named by its job: ``PERDURE_FENCE_DIR=DIR/$SLURM_JOB_ID``."""
    watch_every_s: Annotated[float, Meta(ge=0.1)] = 2.0
    """Seconds between two looks at the heartbeats."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, each group a value of its own. The retry rules are `controller.retry`."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    backends: Mapping[str, Any] = field(
        default_factory=lambda: {name: kind.settings() for name, kind in BACKENDS.items()}
    )
    """Those of each kind of backend, by its name."""
    triage: TriageSettings = field(default_factory=TriageSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    caps: Caps = field(default_factory=Caps)
    whatif: WhatifSettings = field(default_factory=WhatifSettings)
    blame: BlameSettings = field(default_factory=BlameSettings)
    waits: WaitsSettings = field(default_factory=WaitsSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    coordination: CoordinationSettings = field(default_factory=CoordinationSettings)
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    notices: NoticesSettings = field(default_factory=NoticesSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)

    @property
    def retry(self) -> RetryRules:
        return self.controller.retry

    @property
    def backend_kind(self) -> BackendKind[Any]:
        """The kind of the backend that is used."""
        return BACKENDS[self.service.cluster]

    @property
    def backend(self) -> Any:
        """Its settings."""
        return self.backends[self.service.cluster]

    @property
    def look_every_s(self) -> float:
        """Seconds between two looks at the cluster."""
        if self.service.poll_s is not None:
            return self.service.poll_s
        return self.backend_kind.look_every_s(self.backend)

    @property
    def pace(self) -> CallBudget:
        """How often the cluster may be asked."""
        return self.backend_kind.call_budget(self.backend, self.service.poll_s)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings in force, where each came from (by "group.key"), and the files that were read."""

    settings: Settings
    origin: Mapping[str, str]
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """One value that somebody gave. `text` where it is still the text of an environment variable."""

    name: str  # "group.key"
    value: object
    where: str
    base: Path | None = None  # a relative path in `value` starts here; None is the working directory
    text: bool = False


_GROUPS: Mapping[str, type] = {
    "retry": RetryRules,
    "caps": Caps,
    "scope": ScopeSettings,
    "controller": ControllerSettings,
    "coordination": CoordinationSettings,
    "triage": TriageSettings,
    "whatif": WhatifSettings,
    "blame": BlameSettings,
    "waits": WaitsSettings,
    "policy": PolicySettings,
    "notices": NoticesSettings,
    "proxy": ProxySettings,
}
_NOT_SET_BY_PEOPLE = {"controller.retry", "controller.playbook", "controller.ignore_before_s", "controller.mark"}


def load(env: Mapping[str, str], config: Path | None = None, flags: Mapping[str, object] | None = None) -> Loaded:
    """Put the settings in force together.

    `flags` holds options of the command by "group.key"; None is an option that was not given. Raises
    `ConfigError` for the first value that cannot be used.
    """
    files = config_files(env, config)
    given = [one for path in files for one in read_file(path)]
    given += _from_environment(env)
    given += [Given(name, value, _flag(name)) for name, value in (flags or {}).items() if value is not None]
    origin = dict.fromkeys(known_names(), BUILT_IN)
    values: dict[str, object] = {"service.state": default_state_dir(env)}
    for one in given:
        values[one.name] = _checked(one)
        origin[one.name] = one.where
    settings = _assemble(values)
    _check_host(settings.service, origin)
    _check_cluster_name(settings.service, origin)
    _check_kinds(settings.scope, origin)
    check_proxy(settings.proxy, f"{origin['proxy.user_header']}: proxy")
    check_rules(settings.notices, f"{origin['notices.rules']}: rules")
    check_targets(settings.notices, f"{origin['notices.targets']}: targets")
    return Loaded(settings, origin, files)


def config_files(env: Mapping[str, str], config: Path | None) -> tuple[Path, ...]:
    """The files that are read, the weakest first. Only `config` must exist."""
    usual = (SYSTEM_FILE, base_directory(env, "XDG_CONFIG_HOME", ".config") / "perdure" / "config.toml")
    found = tuple(path for path in usual if _is_there(path))
    return found if config is None else (*found, config)


def _is_there(path: Path) -> bool:
    """Raises `ConfigError` where it may not be looked for: leaving it out could arm what it keeps in shadow."""
    try:
        path.stat()
    except PermissionError as err:
        fix = "Make it readable, or set HOME or XDG_CONFIG_HOME to this user's own directory"
        raise ConfigError(f"{path}", f"may not be looked for ({err.strerror})", fix) from err
    except OSError:
        return False
    return True


def groups() -> Mapping[str, type]:
    """Each table of the settings by its name: the service's, those of the backends, and the rest."""
    backends = {name: kind.settings for name, kind in BACKENDS.items()}
    return {"service": ServiceSettings, **backends, **_GROUPS}


def known_names() -> tuple[str, ...]:
    """Every "group.key" that can be set, in the order of their groups."""
    names = (f"{group}.{f.name}" for group, cls in groups().items() for f in fields(cls))
    return tuple(name for name in names if name not in _NOT_SET_BY_PEOPLE)


def value_of(settings: Settings, name: str) -> Any:
    """The value of a "group.key"."""
    group, _, key = name.partition(".")
    return getattr(settings.backends.get(group) or getattr(settings, group), key)


def values_of(name: str) -> str:
    """What may be given for a "group.key", in words."""
    return in_words(_type_of(name))


def read_file(path: Path) -> Iterator[Given]:
    """Read what a TOML file sets. Raises `ConfigError` that names the file, and the line where it can."""
    text = _text_of(path)
    try:
        tables = tomllib.loads(text)
    except ValueError as err:  # tomllib's own, and that of a number with too many digits
        raise ConfigError(f"{path}", f"not TOML: {err}", "Fix that; see perdure config check") from err
    except RecursionError as err:
        raise ConfigError(f"{path}", "nested too deeply", "Use one table a group, and plain values in it") from err
    for group, table in tables.items():
        if group not in groups():
            raise _unknown("table", group, f"{path}:{_line_of(text, group)}", groups())
        if not isinstance(table, dict):
            where = f"{path}:{_line_of(text, '', group)}"
            raise ConfigError(where, f"{group!r} is a table, not a value", f"Write [{group}] and its keys below it")
        for key, value in table.items():
            where = f"{path}:{_line_of(text, group, key)}"
            if f"{group}.{key}" not in known_names():
                raise _unknown(f"key in [{group}]", key, where, _keys(group))
            yield Given(f"{group}.{key}", value, where, base=path.parent)


def _text_of(path: Path) -> str:
    fix = "Name a readable TOML file"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as err:
        raise ConfigError(f"{path}", f"cannot be read: {err.strerror}", fix) from err
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}", f"larger than {MAX_FILE_BYTES} bytes", fix)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as err:
        line = data[: err.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}", "not UTF-8 text", "Save the file as UTF-8") from err


def _line_of(text: str, table: str, key: str = "") -> int:
    """The line on which a key of a table stands, or the table itself; 1 where it is written in another way."""
    current, wanted = "", f"{table}.{key}".strip(".")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].strip()
        if words.startswith("["):
            current = _bare(words.strip("[]"))
            if current == wanted or (key and current.startswith(f"{wanted}.")):
                return number
        elif f"{current}.{_bare(words.split('=', 1)[0])}".strip(".") == wanted:
            return number
    return 1


def _bare(name: str) -> str:
    """A key without the blanks and quotes that it may be written with."""
    return name.translate({ord(c): None for c in " \t\"'"})


def _from_environment(env: Mapping[str, str]) -> Iterator[Given]:
    """``PERDURE_SERVICE_PORT`` sets ``service.port``. Other variables, without a group's name, are not ours."""
    for variable, text in sorted(env.items()):
        prefix, _, rest = variable.partition("_")
        group, _, key = rest.lower().partition("_")
        if prefix != "PERDURE" or group not in groups() or not key:
            continue
        if f"{group}.{key}" not in known_names():
            known = [f"PERDURE_{group}_{other}".upper() for other in _keys(group)]
            raise _unknown("variable", variable, "environment", known)
        yield Given(f"{group}.{key}", text, variable, text=True)


def _keys(group: str) -> list[str]:
    return [name.partition(".")[2] for name in known_names() if name.startswith(f"{group}.")]


def _unknown(kind: str, name: str, where: str, known: Iterable[str]) -> ConfigError:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    fix = f"The closest known: {', '.join(close)}" if close else f"Use one of: {', '.join(known)}"
    return ConfigError(where, f"unknown {kind}: {name!r}", fix)


# -- one value


def _checked(given: Given) -> object:
    """The value in the type of its setting, within its bounds."""
    kind, value = _type_of(given.name), given.value
    if hasattr(kind, "read_tables"):
        return _tables(kind, given)
    words = in_words(kind)
    try:
        value = str(value) if isinstance(value, Path) else value
        value = _plain(kind, value) if given.text and isinstance(value, str) else value
        return read(kind, value, "", lambda _, path: _path(path, given.base), strict=not given.text)
    except InputError as err:
        what = f"{shown(value)} is not {words}" if err.where else err.what  # where a part of it is wrong
    except ValueError as err:
        what = str(err)
    where = given.where if given.text or given.base is None else f"{given.where}: {given.name.partition('.')[2]}"
    raise ConfigError(where, what, f"Give {words}" + (", or leave it out" if NoneType in get_args(kind) else ""))


def _tables(kind: Any, given: Given) -> object:
    """The value of a setting that consists of tables, which reads them itself."""
    try:
        return kind.read_tables(given.value, given.base)
    except InputError as err:
        where = given.where if given.base is None else f"{given.where}: {given.name.partition('.')[2]}"
        raise ConfigError(f"{where}: {err.where}".removesuffix(": "), err.what, err.fix) from err


_NAME = Annotated[str, Meta(min_length=1)]
_TYPES: Mapping[Any, Any] = {  # what a plain type means in a setting
    int: Annotated[int, Meta(ge=0)],
    float: Annotated[float, Meta(ge=0)],
    tuple[str, ...]: Annotated[tuple[_NAME, ...], Meta(description="a list of names")],
}


def _type_of(name: str) -> Any:
    """The type of a setting, with its bounds: a number without any is at least 0."""
    group, _, key = name.partition(".")
    kind = groups()[group]
    one_of = next(each.metadata.get("one_of") for each in fields(kind) if each.name == key)
    hint = get_type_hints(kind, include_extras=True)[key]
    return Literal.__getitem__(tuple(one_of)) if one_of else _TYPES.get(hint, hint)


_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def _plain(kind: Any, text: str) -> object:
    """Text of the environment: without blanks around it, a list split at its commas, any word for true or false."""
    words = text.strip()
    if kind is _TYPES[tuple[str, ...]]:
        return _names(words) if words else []
    return text if kind in (str, Path, Path | None) else _TRUTH.get(words.lower(), words)


def _names(words: str) -> list[str]:
    """A list as TOML or JSON write it would be one name that nobody has, and `scope` would bar nobody."""
    names = [part.strip() for part in words.split(",")]
    if odd := next((name for name in names if name[:1] in tuple("[({\"'")), ""):
        raise ValueError(f"{shown(odd)} begins with {odd[0]}: in the environment names stand bare, as in a,b")
    return names


def _path(text: object, base: Path | None) -> Path:
    if not isinstance(text, str) or not text:
        raise ValueError(f"{shown(text)} is not a path")
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL")
    path = Path(os.path.expanduser(text))
    return path if path.is_absolute() else (base or Path.cwd()).absolute() / path


# -- together


def _assemble(values: Mapping[str, object]) -> Settings:
    given: dict[str, dict[str, Any]] = {group: {} for group in groups()}
    for name, value in values.items():
        group, _, key = name.partition(".")
        given[group][key] = value
    built = {group: kind(**given[group]) for group, kind in groups().items()}
    built["controller"] = replace(built["controller"], retry=built.pop("retry"))
    return Settings(backends={name: built.pop(name) for name in BACKENDS}, **built)


def _check_host(service: ServiceSettings, origin: Mapping[str, str]) -> None:
    if service.allow_remote or service.host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(service.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        fix = "Use 127.0.0.1 or ::1, or set service.allow_remote = true behind a proxy that speaks TLS"
        raise ConfigError(f"{origin['service.host']}: host", f"{service.host!r} is not a loopback address", fix)


def _check_cluster_name(service: ServiceSettings, origin: Mapping[str, str]) -> None:
    """Ids begin with it, and a slash."""
    if service.cluster_name and CLUSTER_NAME.fullmatch(service.cluster_name) is None:
        where = f"{origin['service.cluster_name']}: cluster_name"
        fix = "Use up to 63 letters, digits, '-', '_' and '.'"
        raise ConfigError(where, f"{shown(service.cluster_name)} is not a cluster's name", fix)


def _check_kinds(scope: ScopeSettings, origin: Mapping[str, str]) -> None:
    """A kind of action that is misspelt would bar all, or none."""
    for key in ("actions", "not_actions"):
        if unknown := sorted(set(getattr(scope, key)) - KINDS.keys()):
            fix = f"Use {', '.join(sorted(KINDS))}"
            raise ConfigError(f"{origin[f'scope.{key}']}: {key}", f"{unknown[0]!r} is not a kind of action", fix)


_FLAGS = {"service.act": "--act/--shadow", "local.demo": "--no-demo"}


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.partition(".")[2].replace("_", "-"))
