"""What happened before: the job's own failures, the trouble on nodes, and the retries already spent."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job
from perdure.model.nodes import Node
from perdure.model.output import LogMark
from perdure.triage.evidence.likeness import Likeness, likeness_of
from perdure.triage.verdict import UNNAMED, Bound, Label, Verdict

HOUR_S = 3600.0
NEARBY_S = 15 * 60.0
"""Failures of others count as near in time when they are at most so old."""
WALLTIME_FINGERPRINT = "walltime-told"  # of an attempt that ended since its walltime was near, and is to go on
MAX_LINE = 300  # characters kept of a line
_WORDS = re.compile(r"[A-Za-z0-9_-]+")
MAX_TROUBLES = 50  # remembered of one node
MAX_SPENT = 20_000  # retries remembered of the last hour, and planned


class PastFailure(Struct, frozen=True):
    """An earlier failed attempt of the job, as it was judged and answered."""

    attempt: AttemptId
    time_s: float
    nodes: tuple[str, ...]
    label: Label
    category: str
    fingerprint: str
    infrastructure: bool
    elapsed_s: float
    retried: bool = False  # by us, or by the resource manager itself
    p_transient: float = 1.0  # as it was decided on
    logs: tuple[LogMark, ...] = ()  # how far its logs were read; kept of the latest failure only
    state: AttemptState | None = None  # how it ended; None: written down by an older version
    steps: int | None = None  # how far its log says that it came, where it ran out of walltime
    first_step: int | None = None  # where it began, by its log; None also where an older version wrote it down
    failed_nodes: tuple[str, ...] = ()  # of `nodes`, those known to have gone down under it
    avoided: tuple[str, ...] = ()  # nodes that the retry after it was kept off, and its owner had not excluded

    @property
    def preempted(self) -> bool:
        """True where nothing went wrong: it was not a try of the job."""
        return self.state is AttemptState.PREEMPTED

    @property
    def ran_out(self) -> bool:
        """True where it used up its walltime."""
        return self.state is AttemptState.TIMEOUT or self.fingerprint == WALLTIME_FINGERPRINT

    @property
    def is_try(self) -> bool:
        """Whether a retry after it counts against the job: not after a preemption, nor at the end of its walltime."""
        return not self.preempted and not self.ran_out

    @property
    def is_recognised(self) -> bool:
        named = bool(self.fingerprint) and not self.fingerprint.startswith(UNNAMED)
        return named and _ENDED_SO not in self.fingerprint


_ENDED_SO = ":"  # in the fingerprint of what nobody recognised


def fingerprint_of(verdict: Verdict, attempt: Attempt) -> str:
    """The same for failures that are equal: what was recognised, else how the attempt ended."""
    ended_so = (attempt.state.value, str(attempt.exit_code), str(attempt.signal))
    return verdict.fingerprint or _ENDED_SO.join(ended_so)


class NodeTrouble(Struct, frozen=True):
    """A failure seen on a node. `witnessed` where the resource manager itself, not a log, speaks against the node."""

    time_s: float
    job_id: str
    user: str
    category: str
    witnessed: bool
    hardware: str = ""  # the line of a job's log that shows broken hardware of this node
    shared: bool = False  # others failed alike elsewhere: what they share is at fault, not this node
    rule: str = ""  # that recognised the cause
    objects: tuple[str, ...] = ()  # hosts and file systems that its line names

    @property
    def likeness(self) -> Likeness:
        return Likeness(self.category, self.rule, self.objects)


class Spent(Struct, frozen=True):
    """One retry that was granted."""

    time_s: float  # for which it is planned
    job_id: str
    user: str
    nodes: tuple[str, ...]  # whose failure it answered


class Fleet(Struct, frozen=True):
    """What is known of the cluster as a whole. Bounded: troubles by node and age, spending by the hour."""

    usable: Mapping[str, frozenset[str]] = field(default_factory=dict)  # nodes by partition; "" is all of them
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the same, with those out of service
    reserved: frozenset[str] = frozenset()  # of the usable nodes, those where other jobs do not start for now
    set_down: frozenset[str] = frozenset()  # nodes that a person has set down
    live_jobs: int = 0  # that run or wait
    running_jobs: int = 0
    troubles: Mapping[str, tuple[NodeTrouble, ...]] = field(default_factory=dict)  # by node
    spent: tuple[Spent, ...] = ()  # of the last hour and to come, the earliest first

    def nodes_for(self, partition: str) -> frozenset[str]:
        """Nodes that a job in `partition` (or several, as in "a,b") may get; all where it is not known."""
        named = _of_partitions(self.usable, partition)
        return self.usable.get("", frozenset()) if named is None else named

    def in_partition(self, nodes: frozenset[str], partition: str) -> frozenset[str]:
        """Of `nodes` those in `partition`, in service or not; all of them where it is not known."""
        named = _of_partitions(self.members, partition)
        return nodes if named is None else nodes & named

    def with_trouble(self, nodes: tuple[str, ...], trouble: NodeTrouble, memory_s: float) -> Fleet:
        """Remember a failure against `nodes`, and forget what is older than `memory_s`."""
        oldest = trouble.time_s - memory_s
        kept = dict(self.troubles)
        for name in [name for name, old in kept.items() if old[0].time_s <= oldest]:
            kept[name] = tuple(t for t in kept[name] if t.time_s > oldest)
            if not kept[name]:
                del kept[name]
        for name in nodes:
            kept[name] = (*kept.get(name, ()), trouble)[-MAX_TROUBLES:]
        return replace(self, troubles=kept)

    def absolved(self, like: Likeness, since_s: float) -> Fleet:
        """No node is charged with what failed alike on several since then, unless the resource manager saw it there."""
        charged = {
            name: tuple(
                replace(t, shared=True) if t.time_s >= since_s and not t.witnessed and t.likeness.is_like(like) else t
                for t in troubles
            )
            for name, troubles in self.troubles.items()
        }
        return replace(self, troubles=charged)

    def with_spent(self, spent: Spent, now: float) -> Fleet:
        """Remember a retry, and forget those of more than an hour ago."""
        recent = [s for s in self.spent if s.time_s > now - HOUR_S]
        insort(recent, spent, key=lambda s: s.time_s)
        return replace(self, spent=tuple(recent[-MAX_SPENT:]))

    def without_spent(self, job_id: str) -> Fleet:
        """Take back what the latest retry of a job was charged: the job was not retried."""
        mine = [at for at, spent in enumerate(self.spent) if spent.job_id == job_id]
        return replace(self, spent=(*self.spent[: mine[-1]], *self.spent[mine[-1] + 1 :])) if mine else self

    def suspects(self, now: float, memory_s: float) -> frozenset[str]:
        """Nodes to keep a retry off: the resource manager spoke against them, or jobs of two users failed there.

        One user's own logs and failures never make a suspect.
        """
        since = now - memory_s
        several = [(name, troubles) for name, troubles in self.troubles.items() if len(troubles) > 1]
        return frozenset([name for name, troubles in several if _speak_against(troubles, since)])


def is_shared(fleet: Fleet, attempt: Attempt, verdict: Verdict, now: float) -> bool:
    """Whether what jobs share is at fault, and no node: a full file system, or others failed alike on other nodes."""
    if verdict.full_store:
        return True
    if verdict.bound is not Bound.SERVICE:
        return False
    like = likeness_of(verdict)
    elsewhere = (troubles for name, troubles in fleet.troubles.items() if name not in attempt.nodes)
    return any(
        trouble.user != attempt.user and now - trouble.time_s <= NEARBY_S and trouble.likeness.is_like(like)
        for troubles in elsewhere
        for trouble in troubles
    )


_OF_NO_NODE = (AttemptState.PREEMPTED, AttemptState.LOST)


def blamed(fleet: Fleet, job: Job, attempt: Attempt, verdict: Verdict, memory_s: float, now: float) -> Fleet:
    """Charge a failed attempt to its nodes. Deterministic failures and preemptions say nothing about a node.

    Nor does it that a job was lost with a node that a person has set down, that its start was forgotten, or that a
    remote service refused for too many requests.
    """
    witnessed = bool(attempt.failed_nodes)
    of_no_node = attempt.state in _OF_NO_NODE or verdict.bound is Bound.CALLER
    if not witnessed and (not verdict.infrastructure or of_no_node):
        return fleet
    like = likeness_of(verdict)
    shared = not witnessed and is_shared(fleet, attempt, verdict, now)
    if shared:
        fleet = fleet.absolved(like, now - NEARBY_S)
    trouble = NodeTrouble(
        now, job.job_id, job.user, verdict.category, witnessed, shared=shared, rule=like.rule, objects=like.objects
    )
    nodes = attempt.failed_nodes or attempt.nodes
    if attempt.state is AttemptState.NODE_FAIL and fleet.set_down.intersection(nodes):
        nodes = tuple(name for name in attempt.failed_nodes if name not in fleet.set_down)
    for name in _shown_broken(attempt, verdict):
        fleet = fleet.with_trouble((name,), replace(trouble, hardware=verdict.hardware[:MAX_LINE]), memory_s)
        nodes = tuple(other for other in nodes if other != name)
    return fleet.with_trouble(nodes, trouble, memory_s)


def _shown_broken(attempt: Attempt, verdict: Verdict) -> tuple[str, ...]:
    """The nodes whose hardware a log shows broken: the only one, or those that the line and its source name."""
    if not verdict.hardware:
        return ()
    if len(attempt.nodes) == 1:
        return attempt.nodes
    lines = [verdict.hardware, *(each.source for each in verdict.evidence if each.text == verdict.hardware)]
    words = {word for line in lines for word in _WORDS.findall(line)}
    return tuple(name for name in attempt.nodes if name in words)


def usable_nodes(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    """The nodes on which jobs may be put, by partition, and under "" all of them."""
    nodes = list(nodes)
    usable = {node.name for node in nodes if node.is_usable}
    return {name: members & usable for name, members in nodes_by_partition(nodes).items()}


def nodes_by_partition(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    """All nodes, in service or not, by partition, and under "" all of them."""
    found: dict[str, set[str]] = {"": set()}
    for node in nodes:
        for name in ("", *node.partitions):
            found.setdefault(name, set()).add(node.name)
    return {name: frozenset(members) for name, members in found.items()}


def _of_partitions(nodes: Mapping[str, frozenset[str]], partition: str) -> frozenset[str] | None:
    """The nodes of one partition, or of several as in "a,b"; None where none of them is known."""
    named = [nodes[name] for name in partition.split(",") if name in nodes]
    return frozenset().union(*named) if named else None


def _speak_against(troubles: tuple[NodeTrouble, ...], since: float) -> bool:
    """Whether those after `since` make a suspect."""
    recent = [t for t in troubles if t.time_s > since and not t.shared]
    witnessed = [t.witnessed for t in recent].count(True)
    return witnessed >= 2 or (len(recent) >= 3 and len({t.user for t in recent}) >= 2)
