"""The heartbeat monitor: reads and judges the heartbeats of nodes and jobs; raises what is silent or ill."""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from perdure.coordination.messages import ExceptionRaised, Input
from perdure.coordination.record import FATAL, ExceptionRecord, Origin, Scope, Subject
from perdure.job.agent import agents, heartbeats
from perdure.job.heartbeat import Heartbeat, HeartbeatSource
from perdure.job.liveness import Judgement, LivenessRules, SilentNode, Watchlog, observe, silent
from perdure.model.jobs import Attempt
from perdure.model.nodes import NodeState
from perdure.service.core.view import SiteView
from perdure.service.exceptions.group_commit import Tell

log = logging.getLogger("perdure")

ILL_SEVERITY = 3
MOST_RESTARTS = 10**6  # of a job; incarnations beyond are instants
MAX_PROBLEMS = 16


class HeartbeatMonitor:
    """Looks at the directories again and again. A directory that cannot be read proves nothing."""

    def __init__(self, share: Path, fences: Sequence[Path], tell: Tell, view: Callable[[], SiteView]) -> None:
        self._share, self._fences = share, tuple(fences)
        self._tell, self._view = tell, view
        self._rules = LivenessRules()
        self._log = Watchlog()
        self._blind = ""
        self._unknown: dict[str, float] = {}  # nodes that the resource manager does not reach: since when

    def look(self) -> None:
        """One look at all heartbeats.

        Raises `OSError` where the agents' directory cannot be read, `ConfigError` where anybody may write there.
        """
        view = self._view()
        attempts = view.running()
        running = {attempt.id.job_id: attempt.nodes for attempt in attempts}
        found = {**agents(self._share), **dict(chain.from_iterable(map(self._of, attempts)))}
        self._log = observe(self._log, found, view.now, self._rules)
        judgement = silent(self._log, view.now, self._rules, running, self._not_answering(view))
        if view.state.known.unseen:
            judgement = Judgement()  # what is known to run may be over: silence proves nothing
        self._say_blind(judgement.blind)
        records = [*(_silent(node, view) for node in judgement.nodes), *_ill(found, view)]
        inputs: tuple[Input, ...] = tuple(ExceptionRaised(r) for r in records if view.state.chain.find(r.id) is None)
        for effect in self._tell(inputs) if inputs else ():
            log.warning("what the heartbeats say is not taken: %s. %s", effect.what, effect.fix)

    def _not_answering(self, view: SiteView) -> list[str]:
        """Nodes that the resource manager has not reached for as long as a heartbeat may be silent.

        One that has just been started has yet to hear of its nodes, and says that it knows nothing of them.
        """
        unknown = [n.name for n in view.state.known.nodes.values() if n.state is NodeState.UNKNOWN]
        self._unknown = {name: self._unknown.get(name, view.now) for name in unknown}
        return [name for name, since_s in self._unknown.items() if view.now - since_s >= self._rules.floor_s]

    def _of(self, attempt: Attempt) -> Iterator[tuple[str, Heartbeat]]:
        """The heartbeats of an attempt: in its job's directories, by its owner, of this start of it."""
        job_id = attempt.id.job_id
        if not self._fences or not is_plain(job_id):
            return
        for path, beat in heartbeats([fence / job_id for fence in self._fences], owners=writers_of(attempt.user)):
            if beat.job_id == job_id and _is_current(beat, attempt.id.incarnation):
                yield path, beat

    def _say_blind(self, blind: str) -> None:
        if blind and blind != self._blind:
            log.warning("heartbeats are not believed: %s", blind)
        self._blind = blind


def _is_current(beat: Heartbeat, incarnation: int) -> bool:
    """False for an earlier start of the job. A later one than was seen will be seen; 0 matches any start.

    Where Slurm does not tell a job its start, the heartbeat bears a restart count: it tells nothing besides an instant.
    """
    is_count = beat.incarnation < MOST_RESTARTS <= incarnation
    return is_count or not beat.incarnation or beat.incarnation >= incarnation


def writers_of(user: str) -> frozenset[int]:
    """Whose files speak for a job of that user: its own, root's, and this service's user's."""
    try:
        own = pwd.getpwnam(user).pw_uid
    except KeyError:
        own = int(user) if user.isascii() and user.isdecimal() else 0
    return frozenset((own, 0, os.geteuid()))


def is_plain(job_id: str) -> bool:
    """Whether it names one directory, and no other way."""
    return job_id not in ("", ".", "..") and "/" not in job_id and "\0" not in job_id


def _silent(node: SilentNode, view: SiteView) -> ExceptionRecord:
    note = f"no sign of life for {view.now - node.since_s:.0f} s"
    name = f"{view.state.cluster}:node.unreachable:{node.node}:{node.since_s:.0f}"
    return _about(name, "node.unreachable", node.node, FATAL, note, node.sources, view)


def _ill(found: Mapping[str, Heartbeat], view: SiteView) -> Iterator[ExceptionRecord]:
    """What the agents say is wrong with their nodes; the same once, as long as it stays the same."""
    for beat in found.values():
        node = view.node(beat.node)
        if beat.source is HeartbeatSource.AGENT and beat.problems and not beat.is_over and node is not None:
            problems = beat.problems[:MAX_PROBLEMS]
            mark = hashlib.sha256("\n".join(problems).encode("utf-8", "replace")).hexdigest()[:12]
            name = f"{view.state.cluster}:node.health:{beat.node}:{beat.host}.{beat.pid}:{mark}"
            yield _about(name, "node.health", beat.node, ILL_SEVERITY, problems[0], problems, view)


def _about(
    name: str, kind: str, node: str, severity: int, note: str, evidence: tuple[str, ...], view: SiteView
) -> ExceptionRecord:
    return ExceptionRecord(
        id=name,
        type=kind,
        severity=severity,
        scope=Scope.LOCAL,
        subject=Subject(view.state.cluster, nodes=(node,)),
        time_s=view.now,
        note=note,
        origin=Origin("resource_manager", node),
        detected_by="perdure",
        evidence=evidence,
    )
