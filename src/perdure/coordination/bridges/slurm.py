"""Slurm: what its hooks dropped, and lines of ``scontrol show node -o`` and ``squeue -h -o '%i|%T|%r|%N'``.

Files of hooks begin with ``perdure-event 1 KIND``: ``end`` (jobcomp), ``ended`` (EpilogSlurmctld), ``prolog``, ``node``
(strigger) and ``health`` (HealthCheckProgram); many may follow each other. A node that Perdure itself has drained, and
one that an operator took out of service, is not a failure. Times without a zone are UTC: export with ``TZ=UTC``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import re2
from msgspec.structs import replace

from perdure.coordination.bridges import causes, fields
from perdure.coordination.bridges.bridged import BridgeContext, Meaning, ReportedFailure, clearing, record_of
from perdure.coordination.record import CLEARS, ExceptionRecord, Scope, Transient
from perdure.errors import InputError
from perdure.model.nodes import Node, NodeState
from perdure.slurm_words import reasons
from perdure.slurm_words.states import CANNOT_OPEN_OUTPUT

MAX_UNREADABLE = 1000  # lines in a text; with more it is another format
_EVENT = "perdure-event 1 "
_NO_TASK = 4_000_000_000  # larger numbers stand for "no task in particular"

_AGAIN, _NEVER = Meaning("launcher.transient", 0, Transient.YES), Meaning("launcher.permanent", 0, Transient.NO)
_DOWN, _SILENT = Meaning("node.down", 0, Transient.YES), Meaning("node.unreachable", 1, Transient.YES)
_FAILING, _UNHEALTHY = Meaning("node.failing", 2, Transient.YES), Meaning("node.unhealthy", 3)
_OOM, _TIMEOUT = Meaning("app.oom", 0, Transient.NO), Meaning("job.timeout", 0, Transient.NO)

_JOB_STATES = {
    "NODE_FAIL": _DOWN,
    "BOOT_FAIL": _AGAIN,
    "LAUNCH_FAILED": _AGAIN,
    "RECONFIG_FAIL": _AGAIN,
    "TIMEOUT": _TIMEOUT,
    "DEADLINE": _TIMEOUT,
    "OUT_OF_MEMORY": _OOM,
    "PREEMPTED": Meaning("job.preempted", 0, Transient.YES),
    "CANCELLED": Meaning("job.cancelled", 0, Transient.NO),
}
_REASONS = {  # why a job waits or ended, in Slurm's words with blanks as underscores
    reasons.LAUNCH_FAILED: _AGAIN,
    reasons.JOB_LAUNCH_FAILURE: _AGAIN,
    "SystemFailure": _AGAIN,
    reasons.MAX_REQUEUE: _NEVER,
    reasons.CANNOT_RUN: _NEVER,
    reasons.NEVER_SATISFIED: _NEVER,
    reasons.NODE_DOWN: _DOWN,
    reasons.TIME_LIMIT: _TIMEOUT,
    reasons.OUT_OF_MEMORY: _OOM,
    reasons.NON_ZERO_EXIT: Meaning("process.exit"),
    "Licenses": Meaning("licence.short", 5, Transient.YES, Scope.GLOBAL),
    "PowerNotAvail": Meaning("power.cap", 5, Transient.YES, Scope.GLOBAL),
    "PowerReserved": Meaning("power.cap", 5, Transient.YES, Scope.GLOBAL),
}
_RESOURCES = {"licence.short": "licence", "power.cap": "power"}
_XID = re2.compile(r"(?i)\bxid[ :=_-]*(?:\(.{0,40}\)[ :]*)?(\d{1,4})")
_NODE_REASONS = tuple(
    (re2.compile(f"(?i){pattern}"), meaning)
    for pattern, meaning in (
        (r"prolog error|epilog error|batch job complete failure", replace(_AGAIN, severity=1)),
        (r"not responding|no route|unreachable", _SILENT),
        (r"kill task failed|unkillable", Meaning("node.unkillable", 1)),
        (r"unexpectedly rebooted|reboot", replace(_DOWN, severity=1)),
        (r"low (?:real)?memory|\becc\b|\bdimm\b|\bmemory\b", Meaning("node.memory", 2)),
        (r"\bgpu|\bgres/|nvidia|nvlink", Meaning("node.gpu", 1)),
        (r"\bdisk|\btmpdisk|read-?only|file ?system|\bnvme", Meaning("node.disk", 2)),
        (r"\bpower\b|\bpsu\b|overheat|thermal", Meaning("node.power", 2)),
        (r"\bib\b|infiniband|\blink\b|network", Meaning("network.degraded", 2, Transient.YES)),
    )
)
_OURS = "perdure"
_REASON = re2.compile(r"(.*?)(?: \[[^\[\]]*@([^\[\]]*)\])?")


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read files of hooks and lines of scontrol and squeue. Raises `InputError` for a text of another kind."""
    unreadable = 0
    for part in _parts(text):
        told = _of_part(part, context.now)
        if told is None:
            unreadable += 1
            if unreadable > MAX_UNREADABLE:
                raise InputError(
                    context.format,
                    "most of it is not Slurm's",
                    "Give it files of its hooks, or lines of scontrol show node -o",
                )
            yield None
        else:
            yield from (record_of(one, context) for one in told)


def of_node(node: Node, context: BridgeContext) -> ExceptionRecord | None:
    """The exception that a node's state and reason stand for, as a look at the cluster showed them."""
    words = {NodeState.DOWN: {"DOWN"}, NodeState.UNKNOWN: {"NOT_RESPONDING"}}.get(node.state, set())
    if node.state in (NodeState.DRAINING, NodeState.DRAINED):
        words = {"DRAIN"}
    since = "" if node.since_s is None else str(int(node.since_s))
    told = _of_state(node.name, words, node.reason, since, context.now)
    return record_of(told, context) if told else None


def _parts(text: str) -> Iterator[str]:
    """A file of a hook, or a line."""
    held: list[str] = []
    for line in text.splitlines():
        if held and (line.startswith((_EVENT, "NodeName=")) or "=" not in line):
            yield "\n".join(held)
            held = []
        if line.startswith(_EVENT) or held:
            held.append(line)
        elif line.strip():
            yield line
    if held:
        yield "\n".join(held)


def _of_part(part: str, now: float) -> tuple[ReportedFailure, ...] | None:
    """What one part tells, () where that is not a failure; None where it cannot be read."""
    if part.startswith(_EVENT):
        first, _, rest = part.partition("\n")
        said = dict(line.partition("=")[::2] for line in rest.split("\n"))
        reader = _KINDS.get(first.removeprefix(_EVENT).strip())
        return reader(said, now) if reader else None
    if part.startswith("NodeName="):
        return _of_node_line(part, now)
    return _of_job_line(part) if part.count("|") == 3 else None


# -- jobs


def _of_end(said: Mapping[str, str], now: float) -> tuple[ReportedFailure, ...] | None:
    """What ``hooks/jobcomp`` and ``hooks/epilogctld`` write: the end of an attempt. Its start is its incarnation."""
    job_id, end = _job_id(said), fields.whole(said.get("END", said.get("TIME")), 1)
    if not job_id or end is None:
        return None
    start = fields.whole(said.get("START"), 1) or 0
    state, exit_code = fields.name(said.get("JOBSTATE")), fields.line(said.get("EXITCODE"), 16)
    meaning = _JOB_STATES.get(state) or (_of_exit(exit_code) if state in ("", "FAILED", "SPECIAL_EXIT") else None)
    if meaning is None:
        return ()
    told = ReportedFailure(
        meaning=meaning,
        facts=("end", start or end, state, exit_code),
        time_s=fields.instant(end, now),
        note=f"{state or 'ended'} {exit_code}".strip(),
        job_id=job_id,
        incarnation=start,
        nodes=fields.nodes(said.get("NODES")),
        component="slurmctld",
        known={"state": state, "exit_code": exit_code},
    )
    return (told,)


def _job_id(said: Mapping[str, str]) -> str:
    """The job's own number, and for a task of an array ``ARRAY_TASK``."""
    job, array = fields.whole(said.get("JOBID"), 1), fields.whole(said.get("ARRAYJOBID"), 1)
    task = fields.whole(said.get("ARRAYTASKID"), most=_NO_TASK)
    if job is None:
        return ""
    return f"{array}_{task}" if array is not None and task is not None else str(job)


def _of_exit(status: str) -> Meaning | None:
    """What ``rc:signal`` means."""
    code, _, signal = status.partition(":")
    by_signal = fields.whole(signal) or 0
    if by_signal == CANNOT_OPEN_OUTPUT:
        return _AGAIN
    return causes.of_exit(-by_signal or fields.whole(code, most=255) or 0)


def _of_job_line(line: str) -> tuple[ReportedFailure, ...] | None:
    """A line of squeue. It has no time: two lines of the same job and reason are one exception."""
    job_id, state, reason, nodes = (cell.strip() for cell in line.split("|"))
    if not fields.name(job_id) or not job_id[:1].isdecimal() or not state.isupper():
        return None
    word = fields.line(reason).replace(" ", "_").strip("()")
    known_state = _JOB_STATES.get(state)
    meaning = known_state or next((m for known, m in _REASONS.items() if word.startswith(known)), None)
    if meaning is None:
        return ()
    told = ReportedFailure(
        meaning=meaning,
        facts=("job", job_id, state, word),
        note=fields.line(reason) or state,
        job_id=job_id,
        nodes=fields.nodes(nodes),
        resource=_RESOURCES.get(meaning.type, ""),
        component="slurmctld",
        known={"state": state, "reason": word},
    )
    return (told,)


# -- nodes


def _of_trigger(said: Mapping[str, str], now: float) -> tuple[ReportedFailure, ...] | None:
    """What ``hooks/strigger`` writes: one exception for each node. A node that is up again clears."""
    event, stamp, nodes = said.get("EVENT", ""), fields.whole(said.get("TIME"), 1), fields.nodes(said.get("NODES"))
    if event not in _TRIGGERS or stamp is None or not nodes:
        return None
    meaning = _TRIGGERS[event]
    if meaning is None:
        return ()
    clears = event == "up"
    return tuple(
        ReportedFailure(
            meaning=clearing(meaning) if clears else meaning,
            facts=("trigger", event, node, stamp),
            time_s=fields.instant(stamp, now),
            note=f"node {node} is {event}",
            nodes=(node,),
            component="slurmctld",
            known={"event": event, CLEARS: f"{meaning.type}@{node}" if clears else ""},
        )
        for node in nodes
    )


_TRIGGERS = {
    "down": _DOWN,
    "fail": _FAILING,
    "up": _DOWN,
    "drained": None,  # somebody's wish, and its reason is with the node
    "draining": None,
    "idle": None,
    "resume": None,
}


def _of_health(said: Mapping[str, str], now: float) -> tuple[ReportedFailure, ...] | None:
    """What ``hooks/healthcheck`` writes where the site's own check failed."""
    node, stamp = fields.node(said.get("NODE")), fields.whole(said.get("TIME"), 1)
    code = fields.whole(said.get("EXIT"), most=255)
    if not node or stamp is None or code is None:
        return None
    reason = fields.line(said.get("SAID"), 512)
    told = ReportedFailure(
        meaning=_of_reason(reason) or _UNHEALTHY,
        facts=("health", node, reason or code, stamp),
        time_s=fields.instant(stamp, now),
        note=reason or f"the health check ended with {code}",
        nodes=(node,),
        host=node,
        component="health check",
        known={"exit_code": code},
    )
    return (told,)


def _of_node_line(line: str, now: float) -> tuple[ReportedFailure, ...] | None:
    """A line of ``scontrol show node -o``; only operators write free text there."""
    body, _, tail = line.partition(" Reason=")
    said = dict(word.partition("=")[::2] for word in reversed(body.split(" ")))
    node, states = fields.node(said.get("NodeName")), said.get("State", "")
    if not node or not states:
        return None
    words = {word.rstrip("*~#!%$@^-") for word in states.split("+")}
    if "*" in states:
        words.add("NOT_RESPONDING")
    found = _REASON.fullmatch(fields.line(tail.partition(" Comment=")[0], 1024))
    reason, since = (found[1], found[2] or "") if found else ("", "")
    told = _of_state(node, words, reason, since, now)
    return () if told is None else (told,)


def _of_state(node: str, words: set[str], reason: str, since: str, now: float) -> ReportedFailure | None:
    meaning = None if _OURS in reason.lower() else _of_words(words, reason)
    if meaning is None:
        return None
    state = "+".join(sorted(words))
    return ReportedFailure(
        meaning=meaning,
        facts=("state", node, state, reason, since),
        time_s=fields.instant(since, now),
        note=reason or state,
        nodes=(node,),
        host=node,
        component="slurmctld",
        known={"state": state, "reason": reason},
    )


def _of_words(words: set[str], reason: str) -> Meaning | None:
    """DOWN and FAIL are failures whatever the reason; DRAIN is one where its reason names a fault."""
    said = _of_reason(reason)
    if words & {"DOWN", "ERROR", "INVAL", "INVALID_REG"}:
        return replace(said, severity=0) if said else _DOWN
    if words & {"FAIL", "FAILING"}:
        return said or _FAILING
    if words & {"DRAIN", "DRAINED", "DRAINING"}:
        return said
    return _SILENT if "NOT_RESPONDING" in words else None


def _of_reason(reason: str) -> Meaning | None:
    xid = _XID.search(reason)
    if xid:
        return Meaning(f"node.gpu.xid{int(xid[1])}", 0)
    return next((meaning for pattern, meaning in _NODE_REASONS if pattern.search(reason)), None)


def _no_failure(said: Mapping[str, str], now: float) -> tuple[ReportedFailure, ...]:
    """A prolog that runs, or a mere wish to look."""
    del said, now
    return ()


_KINDS = {
    "end": _of_end,
    "ended": _of_end,
    "node": _of_trigger,
    "health": _of_health,
    "prolog": _no_failure,
    "look": _no_failure,
}
