"""PMIx: what its status constants, ranges and handlers' answers mean here.

PMIx has no form of its own outside of a process, so this reads a plain one, a notification a line: ``{"status":
"PMIX_EVENT_NODE_DOWN", "range": "PMIX_RANGE_SESSION", "source": {"nspace": ..., "rank": ...}, "info": {"pmix.hname":
..., "pmix.evproc": {...}, "pmix.evtext": ..., "pmix.evtstamp": ...}}``; a status and a range may be numbers too.

Names and numbers: pmix_common.h and pmix_deprecated.h of OpenPMIx 4.2.2, with which a test compares them where they are
installed. Statuses below -3000 are a program's own and say nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import re2
from msgspec.structs import replace

from perdure.coordination.bridges import causes, fields
from perdure.coordination.bridges.bridged import BridgeContext, Meaning, ReportedFailure, record_of
from perdure.coordination.bridges.documents import documents
from perdure.coordination.record import FATAL, AnswerKind, ExceptionRecord, Scope, Transient


class PmixStatus(NamedTuple):
    """One constant of the standard, and what it means here."""

    number: int
    meaning: Meaning


def _fatal(kind: str, transient: Transient = Transient.UNKNOWN) -> Meaning:
    return Meaning(kind, FATAL, transient)


_EXIT, _SIGNAL = _fatal("process.exit"), _fatal("process.signal")
_AGAIN, _NEVER = _fatal("launcher.transient", Transient.YES), _fatal("launcher.permanent", Transient.NO)
_CANCELLED = _fatal("job.cancelled", Transient.NO)
_NO_CONTACT = Meaning("node.unreachable", 1, Transient.YES)
_LINK = Meaning("network.degraded", 2, Transient.YES)
_HANG = Meaning("process.hang", 1)
_DOWN = _fatal("node.down", Transient.YES)

STATUSES: Mapping[str, PmixStatus] = {
    "PMIX_ERR_PROC_ABORTED": PmixStatus(-7, _EXIT),
    "PMIX_ERR_PROC_REQUESTED_ABORT": PmixStatus(-8, _EXIT),
    "PMIX_ERR_PROC_ABORTING": PmixStatus(-9, _EXIT),
    "PMIX_ERR_TIMEOUT": PmixStatus(-24, Meaning("launcher.transient", 3, Transient.YES)),
    "PMIX_ERR_UNREACH": PmixStatus(-25, _LINK),
    "PMIX_ERR_OUT_OF_RESOURCE": PmixStatus(-29, _AGAIN),
    "PMIX_ERR_NOMEM": PmixStatus(-32, _fatal("app.oom", Transient.NO)),
    "PMIX_ERR_COMM_FAILURE": PmixStatus(-49, _LINK),
    "PMIX_ERR_LOST_CONNECTION": PmixStatus(-61, _NO_CONTACT),
    "PMIX_ERR_LOST_CONNECTION_TO_SERVER": PmixStatus(-101, _NO_CONTACT),
    "PMIX_ERR_LOST_PEER_CONNECTION": PmixStatus(-102, _LINK),
    "PMIX_ERR_LOST_CONNECTION_TO_CLIENT": PmixStatus(-103, _EXIT),
    "PMIX_JCTRL_PREEMPT_ALERT": PmixStatus(-108, Meaning("job.preempted", 2, Transient.YES)),
    "PMIX_MONITOR_HEARTBEAT_ALERT": PmixStatus(-109, _HANG),
    "PMIX_MONITOR_FILE_ALERT": PmixStatus(-110, _HANG),
    "PMIX_PROC_TERMINATED": PmixStatus(-111, Meaning("process.exit", 6)),
    "PMIX_ERR_INVALID_TERMINATION": PmixStatus(-112, _EXIT),
    "PMIX_GROUP_LEADER_FAILED": PmixStatus(-168, _EXIT),
    "PMIX_GROUP_MEMBER_FAILED": PmixStatus(-170, _EXIT),
    "PMIX_FABRIC_UPDATE_PENDING": PmixStatus(-176, Meaning("network.degraded", 5, Transient.YES)),
    "PMIX_ERR_JOB_APP_NOT_EXECUTABLE": PmixStatus(-177, _NEVER),
    "PMIX_ERR_JOB_NO_EXE_SPECIFIED": PmixStatus(-178, _NEVER),
    "PMIX_ERR_JOB_FAILED_TO_MAP": PmixStatus(-179, _NEVER),
    "PMIX_ERR_JOB_CANCELED": PmixStatus(-180, _CANCELLED),
    "PMIX_ERR_JOB_FAILED_TO_LAUNCH": PmixStatus(-181, _AGAIN),
    "PMIX_ERR_JOB_ABORTED": PmixStatus(-182, _EXIT),
    "PMIX_ERR_JOB_KILLED_BY_CMD": PmixStatus(-183, _CANCELLED),
    "PMIX_ERR_JOB_ABORTED_BY_SIG": PmixStatus(-184, _SIGNAL),
    "PMIX_ERR_JOB_TERM_WO_SYNC": PmixStatus(-185, _EXIT),
    "PMIX_ERR_JOB_SENSOR_BOUND_EXCEEDED": PmixStatus(-186, _EXIT),
    "PMIX_ERR_JOB_NON_ZERO_TERM": PmixStatus(-187, _EXIT),
    "PMIX_ERR_JOB_ALLOC_FAILED": PmixStatus(-188, _AGAIN),
    "PMIX_ERR_JOB_ABORTED_BY_SYS_EVENT": PmixStatus(-189, _DOWN),
    "PMIX_ERR_JOB_EXE_NOT_FOUND": PmixStatus(-190, _NEVER),
    "PMIX_ERR_PROC_TERM_WO_SYNC": PmixStatus(-200, _EXIT),
    "PMIX_EVENT_PROC_TERMINATED": PmixStatus(-201, Meaning("process.exit", 6)),
    "PMIX_EVENT_NODE_DOWN": PmixStatus(-231, _DOWN),
    "PMIX_EVENT_NODE_OFFLINE": PmixStatus(-232, replace(_DOWN, severity=1)),
    "PMIX_ERR_JOB_WDIR_NOT_FOUND": PmixStatus(-233, _NEVER),
    "PMIX_ERR_JOB_INSUFFICIENT_RESOURCES": PmixStatus(-234, _AGAIN),
    "PMIX_ERR_JOB_SYS_OP_FAILED": PmixStatus(-235, _AGAIN),
    "PMIX_ERR_PROC_KILLED_BY_CMD": PmixStatus(-400, _CANCELLED),
    "PMIX_ERR_PROC_FAILED_TO_START": PmixStatus(-401, _AGAIN),
    "PMIX_ERR_PROC_ABORTED_BY_SIG": PmixStatus(-402, _SIGNAL),
    "PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED": PmixStatus(-403, _EXIT),
    "PMIX_ERR_EXIT_NONZERO_TERM": PmixStatus(-404, _EXIT),
}
OLDER_NAMES: Mapping[str, str] = {
    "PMIX_ERR_NODE_DOWN": "PMIX_EVENT_NODE_DOWN",
    "PMIX_ERR_NODE_OFFLINE": "PMIX_EVENT_NODE_OFFLINE",
}


class Range(NamedTuple):
    """How far a notification goes, and the scope that this says of the fault."""

    number: int
    scope: Scope


RANGES: Mapping[str, Range] = {
    "PMIX_RANGE_RM": Range(1, Scope.LOCAL),
    "PMIX_RANGE_LOCAL": Range(2, Scope.LOCAL),  # one node
    "PMIX_RANGE_NAMESPACE": Range(3, Scope.LOCAL),  # one job
    "PMIX_RANGE_SESSION": Range(4, Scope.LOCAL),  # one allocation
    "PMIX_RANGE_GLOBAL": Range(5, Scope.GLOBAL),
    "PMIX_RANGE_PROC_LOCAL": Range(7, Scope.LOCAL),
}


class Action(NamedTuple):
    """What a handler of PMIx answers its chain with, and which of our answers this is."""

    number: int
    answer: AnswerKind


ACTIONS: Mapping[str, Action] = {
    "PMIX_EVENT_NO_ACTION_TAKEN": Action(-331, AnswerKind.DECLINED),
    "PMIX_EVENT_PARTIAL_ACTION_TAKEN": Action(-332, AnswerKind.ANNOTATED),  # the chain goes on
    "PMIX_EVENT_ACTION_DEFERRED": Action(-333, AnswerKind.DEFERRED),
    "PMIX_EVENT_ACTION_COMPLETE": Action(-334, AnswerKind.HANDLED),  # the chain ends
}

_NAMES = {status.number: name for name, status in STATUSES.items()}
_SCOPES: Mapping[str | int, Scope] = {key: r.scope for name, r in RANGES.items() for key in (name, r.number)}
_ANSWERS = {action.number: action.answer for action in ACTIONS.values()}
_NUMBERS = {action.answer: action.number for action in ACTIONS.values()}
_SLURM = re2.compile(r"slurm\.pmix\.(\d{1,10})\.(\d{1,10})")
_MAX_RANK = 2**31  # larger numbers are wildcards


def answer_of(status: int) -> AnswerKind | None:
    """The answer that a handler's status is; None for a status that is not an answer."""
    return _ANSWERS.get(status)


def status_of(answer: AnswerKind) -> int:
    """The status to answer a chain of PMIx with. It knows no rejection: that is not an action."""
    return _NUMBERS.get(answer, ACTIONS["PMIX_EVENT_NO_ACTION_TAKEN"].number)


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read notifications. A status that is not in `STATUSES` cannot be read."""
    for document in documents(text, context.format):
        said = fields.mapping(document)
        name = _name(said.get("status"))
        yield record_of(_told(name, said, context), context) if name else None


def _name(status: Any) -> str:
    if isinstance(status, str):
        name = OLDER_NAMES.get(status, status)
        return name if name in STATUSES else ""
    return _NAMES.get(status, "") if fields.is_whole(status) else ""


def _told(name: str, said: Mapping[str, Any], context: BridgeContext) -> ReportedFailure:
    info = fields.mapping(said.get("info"))
    source = fields.mapping(said.get("source"))
    affected = [fields.mapping(info.get("pmix.evproc")), *fields.objects(info.get("pmix.evaffected"), 4096)]
    ranks = [rank for proc in affected if (rank := fields.whole(proc.get("rank"), most=_MAX_RANK)) is not None]
    namespace = next((text for proc in (*affected, source) if (text := fields.line(proc.get("nspace")))), "")
    slurm = _SLURM.fullmatch(namespace)
    stamp = info.get("pmix.evtstamp", said.get("timestamp"))
    host = fields.node(info.get("pmix.hname"))
    code = fields.whole(info.get("pmix.exit.code"), -64, 255)
    meaning = STATUSES[name].meaning
    ended = causes.of_exit(code or 0) if meaning == _EXIT else None
    reach = said.get("range")
    scope = _SCOPES.get(reach, meaning.scope) if isinstance(reach, (str, int)) else meaning.scope
    return ReportedFailure(
        meaning=replace(ended or meaning, scope=scope),
        facts=(name, namespace, sorted(ranks), host, stamp, code),
        time_s=fields.instant(stamp, context.now),
        note=fields.line(info.get("pmix.evtext"), 1024) or name,
        job_id=slurm[1] if slurm else fields.name(info.get("pmix.jobid")),
        step=slurm[2] if slurm else "",
        nodes=(host,),
        ranks=ranks,
        host=host,
        known={"pmix.status": name, "pmix.nspace": namespace, "exit_code": code},
    )
