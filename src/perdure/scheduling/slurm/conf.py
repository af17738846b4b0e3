"""Reading slurm.conf: the settings that decide which jobs start when, and the keys of it that are not modelled.

``scontrol show config`` prints the same names, so that both are read by the same functions. Source: slurm.conf(5).

Nothing is dropped without a word: a key is read (`_READ`), or may change starts and is named as unmodelled
(`_CHANGES_STARTS`), or is named as ignored. Refused are values that slurmctld would not take either, lines that are not
KEY=VALUE, and endless includes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import re2

from perdure.errors import InputError
from perdure.scheduling.slurm.settings import (
    DAY_S,
    BackfillSettings,
    MainSettings,
    Partition,
    PrioritySettings,
    PriorityWeights,
    SchedulerSettings,
)
from perdure.slurm_words.durations import time_s
from perdure.slurm_words.hostlist import expand

MAX_INCLUDES = 100
_WORD = re2.compile(r"""([A-Za-z][A-Za-z0-9_]*)\s*=\s*("[^"]*"|'[^']*'|\S*)""")
_INCLUDE = re2.compile(r"(?i)include\s+(\S.*)")
_GPU = re2.compile(r"gpu(?::[A-Za-z][\w.-]*)?(?::(\d{1,5}))?(?:\(.*\))?")
_TABLES = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")
_WEIGHTS = {
    "priorityweightage": "age", "priorityweightassoc": "assoc", "priorityweightfairshare": "fairshare",
    "priorityweightjobsize": "job_size", "priorityweightpartition": "partition", "priorityweightqos": "qos",
}  # fmt: skip
_PARAMETERS: Mapping[str, tuple[str, float]] = {  # of SchedulerParameters: the field, and how many seconds its unit is
    "default_queue_depth": ("default_queue_depth", 0), "sched_interval": ("sched_interval_s", 1),
    "partition_job_depth": ("partition_job_depth", 0), "bf_interval": ("interval_s", 1), "bf_window": ("window_s", 60),
    "bf_resolution": ("resolution_s", 1), "bf_max_job_test": ("max_job_test", 0),
    "bf_max_job_start": ("max_job_start", 0), "bf_max_job_part": ("max_job_part", 0),
    "bf_max_job_user": ("max_job_user", 0), "bf_max_job_user_part": ("max_job_user_part", 0),
    "bf_max_job_assoc": ("max_job_assoc", 0), "bf_job_part_count_reserve": ("job_part_count_reserve", 0),
    "bf_min_prio_reserve": ("min_prio_reserve", 0), "bf_min_age_reserve": ("min_age_reserve_s", 1),
}  # fmt: skip
_LOOPS = frozenset({"bf_interval", "sched_interval"})  # -1 of these: that loop does not run
_READ = frozenset(_WEIGHTS) | {
    "prioritytype", "prioritymaxage", "prioritydecayhalflife", "prioritycalcperiod", "priorityfavorsmall",
    "priorityflags", "priorityweighttres", "schedulertype", "schedulerparameters", "clustername",
}  # fmt: skip
_CHANGES_STARTS = frozenset({
    "preempttype", "preemptmode", "preemptexempttime", "selecttype", "selecttypeparameters", "topologyplugin",
    "topologyparam", "licenses", "enforcepartlimits", "accountingstorageenforce", "maxjobcount", "maxarraysize",
    "jobsubmitplugins", "priorityusageresetperiod", "prioritysitefactorplugin", "prioritysitefactorparameters",
    "prioritydecayhalflife", "overtimelimit", "fairshare", "defmempercpu", "defmempernode", "defcpupergpu",
    "defmempergpu", "suspendtime", "resumetimeout", "federationparameters", "schedulertimeslice", "reservationoverrun",
    "resvoverrun", "killonbadexit", "burstbuffertype", "downnodes", "completewait", "priorityparameters",
})  # fmt: skip
_PARTITION_READ = frozenset({
    "partitionname", "nodes", "default", "maxtime", "defaulttime", "maxnodes", "prioritytier", "priorityjobfactor",
    "state", "oversubscribe", "shared", "qos",
})  # fmt: skip

_NODE_READ = frozenset({
    "nodename", "gres", "cpus", "boards", "sockets", "corespersocket", "threadspercore", "procs",
})  # fmt: skip
_NODE_CHANGES_STARTS = frozenset({
    "weight", "feature", "features", "realmemory", "memspeclimit", "corespeccount", "cpuspeclist", "socketsperboard",
})  # fmt: skip
_IN_USE = ("UNKNOWN", "IDLE")  # states with which a file may name a node that takes jobs
_NOT_SAID = ("", "(null)", "N/A")
_WHERE = "@"  # in a line of nodes or partitions: file and line
_WHOLE, _TIME = "a whole number", "a time such as 1-12:00:00"
_Kind = str | tuple[str, ...]
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(_WEIGHTS, _WHOLE),
    **dict.fromkeys(("prioritymaxage", "prioritydecayhalflife", "prioritycalcperiod"), _TIME),
    "prioritytype": ("priority/multifactor", "priority/basic"),
    "schedulertype": ("sched/backfill", "sched/builtin"),
    "priorityfavorsmall": ("YES", "NO", "1", "0", "TRUE", "FALSE"),
}  # fmt: skip
_PARTITION_KINDS: Mapping[str, _Kind] = {
    "maxtime": _TIME,
    "defaulttime": ("NONE", _TIME),
    **dict.fromkeys(("prioritytier", "priorityjobfactor"), _WHOLE),
    "maxnodes": ("UNLIMITED", "INFINITE", _WHOLE),
    "state": ("UP", "DOWN", "DRAIN", "INACTIVE"),
    "default": ("YES", "NO"),
}  # fmt: skip

_PROCESSORS = ("cpus", "boards", "sockets", "corespersocket", "threadspercore")

Lines = Iterable[tuple[str, str]]
"""Lines of a file, each after its place."""
Include = Callable[[str, str], Lines]
"""Opens a file that a line includes: its name as written, and where it was written."""


@dataclass(slots=True)
class ConfText:
    """The keys of a slurm.conf by their lower-case names, and its lines of nodes and partitions."""

    values: dict[str, str] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)  # as they are written
    where: dict[str, str] = field(default_factory=dict)  # file and line of each key
    nodes: list[dict[str, str]] = field(default_factory=list)
    partitions: list[dict[str, str]] = field(default_factory=list)
    node_sets: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """What a slurm.conf says of scheduling, and what of it is not modelled."""

    settings: SchedulerSettings
    node_names: tuple[str, ...] = ()
    node_gpus: tuple[int, ...] = ()
    node_cpus: tuple[int, ...] = ()
    unmodelled: tuple[str, ...] = ()  # keys that may change who starts when
    ignored: tuple[str, ...] = ()  # all others, known or not


def read_conf(lines: Lines, include: Include) -> ConfText:
    """Parse a file, with those that it includes, in their place. Raises `InputError`, naming the line.

    Pure: `include` opens files. Keys are kept in lower case, the last value of a key counts; NodeName, PartitionName
    and NodeSet may have many lines.
    """
    text = ConfText()
    opened = [0]
    for where, line in _logical(lines, include, opened):
        _take(text, where, line)
    return text


def site_of(text: ConfText) -> SlurmSite:
    """The settings of a slurm.conf, with Slurm's own defaults for what it does not say. Raises `InputError`.

    >>> lines = "NodeName=g[1-2] Gres=gpu:8 CPUs=64", "PartitionName=a Nodes=ALL MaxTime=1-0", "PreemptMode=OFF"
    >>> site = site_of(read_conf(((f"line {i}", line) for i, line in enumerate(lines, 1)), include=None))
    >>> site.node_gpus, site.settings.partitions[0].max_time_s, site.unmodelled
    ((8, 8), 86400.0, ('PreemptMode',))
    """
    _must_be_understood(text)
    names, gpus, cpus = _nodes(text)
    partitions, lost = _partitions(text, names)
    lost += _unmodelled_of_nodes(text)
    settings, unknown = settings_of(text.values)
    settings = SchedulerSettings(
        settings.priority, settings.main, settings.backfill, partitions, nodes=len(names), cpus=sum(cpus)
    )
    others = [key for key in text.values if key not in _READ]
    unmodelled = [text.spelled[key] for key in others if key in _CHANGES_STARTS]
    ignored = [text.spelled[key] for key in others if key not in _CHANGES_STARTS]
    return SlurmSite(settings, names, gpus, cpus, tuple(sorted({*unmodelled, *unknown, *lost})), tuple(sorted(ignored)))


def on_gpu_nodes(site: SlurmSite) -> SlurmSite:
    """The same with the nodes that have GPUs alone, as a simulation of GPU jobs knows no others.

    Rows of nodes are numbered again, in partitions too. ``settings.nodes`` and ``settings.cpus`` stay those of all
    nodes, by which slurmctld measures the size of a job.
    """
    kept = [row for row, gpus in enumerate(site.node_gpus) if gpus]
    place = {row: new for new, row in enumerate(kept)}
    partitions = tuple(
        each if each.nodes is None else replace(each, nodes=tuple(place[row] for row in each.nodes if row in place))
        for each in site.settings.partitions
    )
    return replace(
        site,
        settings=replace(site.settings, partitions=partitions),
        node_names=tuple(site.node_names[row] for row in kept),
        node_gpus=tuple(site.node_gpus[row] for row in kept),
        node_cpus=tuple(site.node_cpus[row] for row in kept),
    )


def on_any_nodes(site: SlurmSite) -> SlurmSite:
    """The same with partitions that have all nodes, for a cluster that the file does not describe."""
    limited = [each.name for each in site.settings.partitions if each.nodes is not None]
    partitions = tuple(replace(each, nodes=None) for each in site.settings.partitions)
    unmodelled = (*site.unmodelled, *(f"PartitionName={name} Nodes" for name in limited))
    return replace(site, settings=replace(site.settings, partitions=partitions), unmodelled=unmodelled)


def on_known_nodes(site: SlurmSite, nodes: int) -> SlurmSite:
    """The same with partitions that name all of this many nodes, so that passes and reservations know where GPUs
    are.
    """
    every = tuple(range(nodes))
    partitions = site.settings.partitions or (Partition("", is_default=True),)
    named = tuple(replace(each, nodes=every) if each.nodes is None else each for each in partitions)
    return replace(site, settings=replace(site.settings, partitions=named))


def settings_of(values: Mapping[str, str]) -> tuple[SchedulerSettings, tuple[str, ...]]:
    """Settings without partitions, of keys in lower case; and the SchedulerParameters that are not modelled.

    For what ``scontrol show config`` prints of a live slurmctld, where partitions are asked for apart.
    """
    main, backfill, unknown = _parameters(values)
    return SchedulerSettings(_priority(values), main, backfill), unknown


def _logical(lines: Lines, include: Include, opened: list[int]) -> Iterator[tuple[str, str]]:
    """Lines without comments, those that a backslash continues as one, included files in their place."""
    held, began = "", ""
    for where, raw in itertools.chain(lines, [("", "")]):  # an empty line ends what the last one would continue
        line = raw.partition("#")[0].rstrip()
        began = began or where
        if line.endswith("\\"):
            held += line[:-1]
            continue
        whole, at = (held + line).strip(), began
        held, began = "", ""
        if not whole:
            continue
        found = _INCLUDE.fullmatch(whole)
        if found is None:
            yield at, whole
            continue
        opened[0] += 1
        if opened[0] > MAX_INCLUDES:
            raise InputError(at, f"more than {MAX_INCLUDES} files are included", "Does a file include itself?")
        yield from _logical(include(found[1].strip(), at), include, opened)


def _take(text: ConfText, where: str, line: str) -> None:
    """Put a line's words where they belong: a table of nodes, partitions or node sets, or keys of the whole file."""
    words = [(key, value.strip("\"'")) for key, value in _WORD.findall(line)]
    if not words:
        raise InputError(where, f"{line[:60]!r} is not KEY=VALUE", "Fix the line, or comment it out")
    first = words[0][0].lower()
    own = {_WHERE: where, **{key.lower(): value for key, value in words}}
    if first == "nodename":
        text.nodes.append(own)
    elif first == "partitionname":
        text.partitions.append(own)
    elif first == "nodeset":
        text.node_sets.append(own)
    else:
        for key, value in words:
            text.values[key.lower()] = value
            text.spelled[key.lower()] = key
            text.where[key.lower()] = where


def _must_be_understood(text: ConfText) -> None:
    """Raises `InputError` for a value that slurmctld would not take either, never uses the default instead."""
    for key, value in text.values.items():
        _check(text.where[key], text.spelled[key], value, _KINDS.get(key))
    where = text.where.get("schedulerparameters", "")
    for name, value in _pairs(text.values.get("schedulerparameters", "")):
        if value and name.lower() in _PARAMETERS:
            _check(where, f"SchedulerParameters={name}", value, ("-1", _WHOLE) if name.lower() in _LOOPS else _WHOLE)
    for name, value in _pairs(text.values.get("priorityweighttres", "")):
        _check(text.where["priorityweighttres"], f"PriorityWeightTRES={name}", value or "nothing", _WHOLE)
    for own in text.partitions:
        for key, value in own.items():
            _check(own[_WHERE], f"PartitionName={own['partitionname']} {key}", value, _PARTITION_KINDS.get(key))
    named: set[str] = set()
    for own in text.nodes:
        for key in _PROCESSORS:
            _check(own[_WHERE], f"NodeName={own['nodename'][:60]} {key}", own.get(key, ""), _WHOLE)
        for node in _expand(own, "nodename"):
            if node in named:
                raise InputError(own[_WHERE], f"node {node} is named twice", "Name each node in one line")
            named.add(node)


def _check(where: str, what: str, value: str, kind: _Kind | None) -> None:
    if kind is None or value in _NOT_SAID:
        return
    kinds = (kind,) if isinstance(kind, str) else kind
    if value.upper() in map(str.upper, kinds) or any(_is(value, each) for each in kinds):
        return
    known = kind if isinstance(kind, str) else f"one of {', '.join(kind)}"
    raise InputError(where, f"{what}: {value[:60]!r} is not {known}", "Fix the value, or comment the line out")


def _is(value: str, kind: str) -> bool:
    if kind == _WHOLE:
        return value.isdecimal() and len(value) < 12
    if kind != _TIME:
        return False
    try:
        time_s(value)
    except ValueError:
        return False
    return True


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Of ``a=1,b,c=2``."""
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name and name not in _NOT_SAID:
            yield name, value


def _expand(own: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The names of a list of nodes. Raises `InputError`, naming the line."""
    if own[key].upper() == "DEFAULT":
        return ()
    try:
        return expand(own.get(key, ""))
    except InputError as err:
        raise InputError(own[_WHERE], err.args[1], err.args[2]) from err


def _unmodelled_of_nodes(text: ConfText) -> list[str]:
    """What is said of nodes that may change starts: all are taken to be there, and alike but for their GPUs."""
    found = [f"NodeName.{key}" for own in text.nodes for key in own if key in _NODE_CHANGES_STARTS]
    states = [own["state"].upper() for own in text.nodes if own.get("state", "UNKNOWN").upper() not in _IN_USE]
    return [*found, *(f"NodeName.state={state}" for state in states)]


def _nodes(text: ConfText) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Names, GPUs and processors of all nodes."""
    names: list[str] = []
    gpus: list[int] = []
    cpus: list[int] = []
    for own in _with_defaults(text.nodes, "nodename"):
        found = _expand(own, "nodename")
        names += found
        gpus += [_gpus(own.get("gres", ""))] * len(found)
        cpus += [_cpus(own)] * len(found)
    return tuple(names), tuple(gpus), tuple(cpus)


def _with_defaults(rows: Iterable[dict[str, str]], key: str) -> Iterator[dict[str, str]]:
    """Rows with what the DEFAULT rows above them say."""
    default: dict[str, str] = {}
    for own in rows:
        if own[key].upper() == "DEFAULT":
            default.update({name: value for name, value in own.items() if name != key})
        else:
            yield {**default, **own}


def _gpus(gres: str) -> int:
    """GPUs of a node's Gres, of all types together: ``gpu:a100:4,gpu:2`` is 6, ``gpu`` alone is 1."""
    found = (_GPU.fullmatch(part) for part in gres.split(","))
    return sum(int(each[1] or 1) for each in found if each)


def _cpus(own: Mapping[str, str]) -> int:
    """Processors of a node: CPUs, else the product of boards, sockets, cores and threads, each 1 unless given."""
    if own.get("cpus", "").isdecimal():
        return int(own["cpus"])
    total = 1
    for key in _PROCESSORS[1:]:
        total *= int(own[key]) if own.get(key, "").isdecimal() else 1
    return total


def _partitions(text: ConfText, names: tuple[str, ...]) -> tuple[tuple[Partition, ...], list[str]]:
    """The partitions, and what of them is not modelled: keys that are not read, and any Allow* list but ALL.

    A partition of all nodes gets None for its nodes, so that a cluster of another size can stand in for the site's.
    """
    place = {name: i for i, name in enumerate(names)}
    sets = {own["nodeset"]: own for own in text.node_sets}
    features = {
        name: set(own.get("features", own.get("feature", "")).split(","))
        for own in _with_defaults(text.nodes, "nodename")
        for name in _expand(own, "nodename")
    }
    found, lost = [], list[str]()
    for own in _with_defaults(text.partitions, "partitionname"):
        rows, unknown = _rows(own, place, sets, features)
        if unknown:
            lost.append(f"PartitionName={own['partitionname']} Nodes={unknown[0]} (no such node)")
        if own.get("qos", "N/A") != "N/A":  # its limits are in the accounting database
            lost.append(f"PartitionName={own['partitionname']} QOS={own['qos']}")
        found.append(_partition(own, None if len(rows) == len(names) else rows))
        lost += [
            f"PartitionName.{key}"
            for key in own
            if key not in _PARTITION_READ and not key.startswith(("allow", _WHERE))
        ]
        lost += [f"PartitionName.{key}" for key in own if key.startswith("allow") and own[key].upper() != "ALL"]
    return tuple(found), lost


def _rows(
    row: Mapping[str, str],
    place: Mapping[str, int],
    sets: Mapping[str, dict[str, str]],
    features: Mapping[str, set[str]],
) -> tuple[tuple[int, ...], list[str]]:
    """The rows of a partition's list of nodes and node sets, and the names that are neither; ALL is all."""
    if row.get("nodes", "").upper() == "ALL":
        return tuple(place.values()), []
    chosen: dict[int, None] = {}
    unknown: list[str] = []
    for name in _expand(row, "nodes") if row.get("nodes") else ():
        own = sets.get(name)
        if own is not None and own.get("feature"):
            members = tuple(node for node, has in features.items() if own["feature"] in has)
        else:
            members = expand(own.get("nodes", "")) if own is not None else (name,)
        unknown += [member for member in members if member not in place]
        chosen.update(dict.fromkeys(place[member] for member in members if member in place))
    return tuple(chosen), unknown


def _partition(own: Mapping[str, str], rows: tuple[int, ...] | None) -> Partition:
    """A PartitionName line, DEFAULT's words included; `rows` are its nodes, None for all."""
    shared = own.get("oversubscribe", own.get("shared", "")).upper()
    most = own.get("maxnodes", "")
    return Partition(
        name=own["partitionname"],
        nodes=rows,
        is_default=own.get("default", "").upper() == "YES",
        is_up=own.get("state", "UP").upper() == "UP",
        max_time_s=_time(own.get("maxtime", "")),
        default_time_s=_time(own.get("defaulttime", "")),
        max_nodes=int(most) if most.isdecimal() else None,
        priority_tier=_whole(own.get("prioritytier", ""), 1),
        priority_job_factor=_whole(own.get("priorityjobfactor", ""), 1),
        whole_nodes=shared == "EXCLUSIVE",
        qos="" if own.get("qos", "N/A") == "N/A" else own["qos"],
    )


def _priority(values: Mapping[str, str]) -> PrioritySettings:
    """The keys Priority*. With an unreadable half-life, or 0, usage never decays; a missing one is seven days."""
    weights = {name: _whole(values.get(key, ""), 0) for key, name in _WEIGHTS.items()}
    flags = frozenset(word.strip().upper() for word in values.get("priorityflags", "").split(",") if word.strip())
    half_life = values.get("prioritydecayhalflife", "")
    age = values.get("prioritymaxage", "")
    period = values.get("prioritycalcperiod", "")
    return PrioritySettings(
        multifactor=values.get("prioritytype", "priority/multifactor").lower() != "priority/basic",
        weights=PriorityWeights(**weights, tres=_tres(values.get("priorityweighttres", ""))),
        max_age_s=_time(age) or 7 * DAY_S,
        decay_half_life_s=7 * DAY_S if not half_life else _time(half_life) or 0.0,
        calc_period_s=_time(period) or 300.0,
        favor_small=values.get("priorityfavorsmall", "no").upper() in ("YES", "1", "TRUE"),
        flags=flags,
    )


def _tres(text: str) -> dict[str, int]:
    """Weights of ``cpu=1000,GRES/gpu=3000``."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip().lower(): _whole(weight, 0) for name, equals, weight in pairs if equals}


def _parameters(values: Mapping[str, str]) -> tuple[MainSettings, BackfillSettings, tuple[str, ...]]:
    """SchedulerParameters as settings of the main pass and of backfill, bf_window from minutes; and those that are not
    read, among them ``sched_interval=-1``, as passes upon events are simulated always.
    """
    enabled = values.get("schedulertype", "sched/backfill").lower() != "sched/builtin"
    main: dict[str, float] = {}
    backfill: dict[str, float] = {}
    unknown: list[str] = []
    for part in values.get("schedulerparameters", "").split(","):
        name, _, text = part.strip().partition("=")
        known = _PARAMETERS.get(name.lower())
        if name.lower() == "bf_interval" and text == "-1":
            enabled = False
            continue
        if known is None or not text.isdecimal():
            unknown += [f"SchedulerParameters.{name}"] if name and name != "(null)" else []
            continue
        where = main if known[0] in MainSettings.__slots__ else backfill
        where[known[0]] = int(text) * known[1] if known[1] else int(text)
    return MainSettings(**main), BackfillSettings(enabled, **backfill), tuple(unknown)  # type: ignore[arg-type]


def _time(text: str) -> float | None:
    """Seconds; None where there is no time, or no limit."""
    try:
        return time_s(text)
    except ValueError:
        return None


def _whole(text: str, otherwise: int) -> int:
    """A whole number of at most eleven digits; `otherwise` for anything else."""
    return int(text) if text.isdecimal() and len(text) < 12 else otherwise
