"""Which nodes have fallen silent: judged from heartbeats, by two independent sources, without comparing clocks.

A source is the node's agent, the tasks of the jobs on it, or the resource manager's own word that the node does not
answer. Two of the three must agree and none may contradict: one job's heartbeats, or its log, never set a node down.
The observer keeps for itself when it saw each heartbeat change; a clock that is wrong anywhere changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from perdure.job.heartbeat import Heartbeat, HeartbeatSource


@dataclass(frozen=True, slots=True)
class LivenessRules:
    """How long a source may be silent, and when not to believe one's own eyes."""

    factor: float = 3.0  # heartbeats missed in a row
    floor_s: float = 10.0
    cap_s: float = 120.0  # whatever a heartbeat says of how often it comes
    away_s: float = 30.0  # an observer that has not looked for this long was away itself
    max_share: float = 0.5  # of the watched nodes; if more fall silent at once, the observer is blind


@dataclass(frozen=True, slots=True)
class SeenHeartbeat:
    """A heartbeat, and when the observer saw it change last, by its own clock."""

    heartbeat: Heartbeat
    changed_s: float


@dataclass(frozen=True, slots=True)
class Watchlog:
    """What an observer has seen so far, by the file that it was in."""

    seen: Mapping[str, SeenHeartbeat] = field(default_factory=dict)
    looked_s: float | None = None


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node that gives no sign of life any more."""

    node: str
    since_s: float  # the last sign of life that the observer saw
    sources: tuple[str, ...]  # those that agree: "agent", "job 12", "resource manager"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The silent nodes; none where the observer had better not believe what it sees, and why."""

    nodes: tuple[SilentNode, ...] = ()
    blind: str = ""


def observe(log: Watchlog, found: Mapping[str, Heartbeat], now: float, rules: LivenessRules) -> Watchlog:
    """Note what was read at one look, by file. A file that is gone, or whose writer has ended in order, is forgotten.

    A heartbeat is fresh at its first sight. After an absence of the observer itself all silences are shorter by that.
    """
    away_s = 0.0
    if log.looked_s is not None and now - log.looked_s > rules.away_s:
        away_s = now - log.looked_s
    seen = {}
    for name, heartbeat in found.items():
        if not heartbeat.is_over:
            before = log.seen.get(name)
            changed_s = now if before is None or _has_beaten(before.heartbeat, heartbeat) else before.changed_s + away_s
            seen[name] = SeenHeartbeat(heartbeat, changed_s)
    return Watchlog(seen, now)


def silent(
    log: Watchlog,
    now: float,
    rules: LivenessRules,
    running: Mapping[str, Collection[str]],
    not_answering: Collection[str] = (),
) -> Judgement:
    """Judge every node that is watched.

    `running` are the jobs that the resource manager has running, with their nodes: heartbeats of others, and those
    that name a node where their job does not run, count for nothing. `not_answering` are the nodes that the resource
    manager itself does not reach.
    """
    heard: dict[str, list[SeenHeartbeat]] = defaultdict(list)
    for each in log.seen.values():
        beat = each.heartbeat
        if beat.source is HeartbeatSource.AGENT or beat.node in running.get(beat.job_id, ()):
            heard[beat.node].append(each)
    nodes = [found for node in sorted(heard) if (found := _judged(node, heard[node], now, rules, not_answering))]
    unconfirmed = [found for found in nodes if found.node not in not_answering]
    if len(unconfirmed) > max(1, int(rules.max_share * len(heard))):
        what = f"{len(unconfirmed)} of {len(heard)} nodes fell silent at once"
        return Judgement(blind=f"{what}: more likely the directory of heartbeats is out of reach")
    return Judgement(tuple(nodes))


def _judged(
    node: str, heard: list[SeenHeartbeat], now: float, rules: LivenessRules, not_answering: Collection[str]
) -> SilentNode | None:
    if any(now - each.changed_s <= allowed_s(each.heartbeat, rules) for each in heard):
        return None
    sources = {_kind(each.heartbeat): _name(each.heartbeat) for each in heard}
    if node in not_answering:
        sources["resource manager"] = "resource manager"
    if len(sources) < 2:
        return None
    return SilentNode(node, max(each.changed_s for each in heard), tuple(sources.values()))


def allowed_s(heartbeat: Heartbeat, rules: LivenessRules) -> float:
    """How long the writer of this heartbeat may be silent."""
    return min(rules.cap_s, max(rules.floor_s, rules.factor * heartbeat.every_s))


def _kind(heartbeat: Heartbeat) -> str:
    """Jobs are one source, however many: two jobs can be one user's."""
    return str(heartbeat.source)


def _name(heartbeat: Heartbeat) -> str:
    return "agent" if heartbeat.source is HeartbeatSource.AGENT else f"job {heartbeat.job_id}"


def _has_beaten(before: Heartbeat, now: Heartbeat) -> bool:
    return (before.host, before.pid, before.count) != (now.host, now.pid, now.count)
