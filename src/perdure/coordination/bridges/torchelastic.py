"""What torchrun says of failed workers: error files, events of its agent, and the summary that it prints.

Error files come in two shapes: ``{"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": ...},
"errorCode": ...}}`` and ``{"message": "..."}``. They name no rank; whoever collects them may add ``rank``,
``exitcode``, ``hostname``, ``pid`` and ``restart_count`` besides ``message``. Events of the agent
(``torchelastic.worker.status.FAILED``) and its summary (``Root Cause (first observed failure):``) name these.

Source: torch.distributed.elastic (multiprocessing/errors, agent/server/api.py, events/api.py) of PyTorch 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from signal import SIGTERM
from typing import Any

import re2

from perdure.coordination.bridges import causes, fields
from perdure.coordination.bridges.bridged import (
    MAX_RECORDS,
    BridgeContext,
    Meaning,
    ReportedFailure,
    led_by_first,
    record_of,
)
from perdure.coordination.bridges.documents import logged, whole
from perdure.coordination.record import ExceptionRecord, Transient

_EVENT = "torchelastic.worker.status."
_MESSAGE = '"message"'
_SUMMARY = "Root Cause (first observed failure)"
_FAILURE = re2.compile(
    r"(?m)^\s*\[\d+\]:\n"
    r"\s*time\s*: (\S+)\n"
    r"\s*host\s*: (\S+)\n"
    r"\s*rank\s*: (\d{1,9}) \(local_rank: \S+\)\n"
    r"\s*exitcode\s*: (-?\d{1,9}) \(pid: (\d{1,9})\).*\n"
    r"\s*error_file: \S+\n"
    r"\s*traceback\s*: (.*)"
)
_UNKNOWN = Meaning("process.exit")
_AGENT = Meaning("launcher.transient")
_BLOCK_END = re2.compile(r"\n(?:===|---|\[)")


@dataclass(frozen=True, slots=True)
class _Failure:
    """One failed worker, however it was reported."""

    message: str = ""
    callstack: str = ""
    time: Any = None
    exit_code: int | None = None
    rank: int | None = None
    host: str = ""
    pid: int = 0
    restarts: int | None = None
    run: str = ""
    by_agent: bool = False

    @property
    def is_consequence(self) -> bool:
        """Whether it looks as if its agent ended it, because another worker failed."""
        return self.exit_code == -SIGTERM and not self.callstack


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read error files, events or a summary."""
    if _SUMMARY in text:
        yield from _in_order(list(_of_summary(text)), context) or (None,)
        return
    file = whole(text)
    said = logged(text, (_EVENT, _MESSAGE)) if file is None else (file,)
    found = [_of_document(document, file is not None) for document in said]
    yield from (None for failures in found or (None,) if failures is None)
    yield from _in_order([failure for failures in found for failure in failures or ()], context)


def _of_document(said: Mapping[str, Any], is_file: bool) -> tuple[_Failure, ...] | None:
    """The failures of one document, () for an event that is not a failure; None for what is neither file nor event.

    A mere message is an error file only where it is alone or has an exit code: programs log in that form too.
    """
    if fields.line(said.get("name")).startswith(_EVENT):
        return _of_event(said)
    if isinstance(said.get("message"), str) and not is_file and "exitcode" not in said:
        return None
    failure = _of_error_file(said)
    return None if failure is None else (failure,)


def _of_error_file(said: Mapping[str, Any]) -> _Failure | None:
    message = said.get("message")
    inner = fields.mapping(message)
    extra = fields.mapping(inner.get("extraInfo"))
    told = message if isinstance(message, str) else inner.get("message")
    if not isinstance(told, str):
        return None
    code = fields.whole(inner.get("errorCode"), -64, 255)
    return _Failure(
        message=told,
        callstack=fields.passage(extra.get("py_callstack")),
        time=extra.get("timestamp", said.get("timestamp")),
        exit_code=fields.whole(said.get("exitcode"), -64, 255) if "exitcode" in said else code,
        rank=fields.whole(said.get("rank"), most=2**31),
        host=fields.node(said.get("hostname")),
        pid=fields.whole(said.get("pid"), most=2**31) or 0,
        restarts=fields.whole(said.get("restart_count"), most=2**31),
    )


def _of_event(said: Mapping[str, Any]) -> tuple[_Failure, ...]:
    """A worker that its agent ended (TERMINATED in some) is a consequence, and one that succeeded no failure."""
    metadata = fields.mapping(said.get("metadata"))
    if metadata.get("state") != "FAILED":
        return ()
    raw = metadata.get("raw_error")
    raw = raw if isinstance(raw, str) else ""
    file = _of_error_file(whole(raw) or {}) or _Failure(message=_last_line(raw), callstack=fields.passage(raw))
    more = whole(fields.passage(metadata.get("metadata"))) or {}
    milliseconds = fields.whole(said.get("timestamp"))
    return (
        _Failure(
            run=fields.line(metadata.get("run_id")),
            message="" if file.message == "<NONE>" else file.message,
            callstack=file.callstack,
            time=file.time or (milliseconds / 1000 if milliseconds else None),
            exit_code=fields.whole(_first(more.get("exit_code")), -64, 255),
            pid=fields.whole(_first(more.get("worker_pid")), most=2**31) or 0,
            rank=fields.whole(metadata.get("global_rank"), most=2**31),
            host=fields.node(metadata.get("hostname")),
            restarts=fields.whole(metadata.get("agent_restarts"), most=2**31),
            by_agent=said.get("source") == "AGENT",
        ),
    )


def _first(value: Any) -> Any:
    return next(iter(fields.items(value, 1)), None)


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _of_summary(text: str) -> Iterator[_Failure]:
    """The blocks of the summary, in which the root cause comes last; here it comes first."""
    blocks = list(_blocks(text))
    yield from blocks[-1:]
    yield from blocks[:-1]


def _blocks(text: str) -> Iterator[_Failure]:
    for found in islice(_FAILURE.finditer(text), MAX_RECORDS):
        callstack = _BLOCK_END.split(text[found.start(6) : found.start(6) + 20_000], 1)[0].rstrip()
        said = _last_line(callstack).strip()
        yield _Failure(
            message="" if said.startswith("To enable traceback see") else said,
            callstack=callstack if "\n" in callstack else "",
            time=found[1],
            exit_code=int(found[4]),
            rank=int(found[3]),
            host=fields.node(found[2]),
            pid=int(found[5]),
        )


def _in_order(failures: list[_Failure], context: BridgeContext) -> list[ExceptionRecord]:
    """Records of the failures; what failed first is the cause of what failed later in the same start."""
    by_start: dict[tuple[str, int | None], list[_Failure]] = {}
    for failure in failures:
        by_start.setdefault((failure.run, failure.restarts), []).append(failure)
    records: list[ExceptionRecord] = []
    for together in by_start.values():
        together.sort(key=lambda failure: (failure.is_consequence, fields.instant(failure.time, context.now) or 0.0))
        records += led_by_first([record_of(_told(failure, context), context) for failure in together])
    return records


def _told(failure: _Failure, context: BridgeContext) -> ReportedFailure:
    code = failure.exit_code
    signal = causes.signal_of(code) if code is not None else 0
    return ReportedFailure(
        meaning=_meaning(failure),
        facts=(
            failure.rank,
            failure.host,
            failure.time,
            code,
            failure.message,
            failure.restarts,
            failure.pid,
            failure.run,
        ),
        time_s=fields.instant(failure.time, context.now),
        note=failure.message,
        nodes=(failure.host,),
        ranks=() if failure.rank is None else (failure.rank,),
        host=failure.host,
        pid=failure.pid,
        component="torchelastic agent" if failure.by_agent else "torchelastic worker",
        evidence=(failure.callstack,),
        known={
            "exit_code": code,
            "signal": causes.signal_name(signal) if signal else "",
            "restarts": failure.restarts,
            "run": failure.run,
        },
    )


def _meaning(failure: _Failure) -> Meaning:
    """What its message names, else what its exit code means. A restart says nothing of whether another one helps."""
    ended = causes.of_exit(failure.exit_code or 0)
    if ended is not None and ended.transient is not Transient.UNKNOWN:
        return ended
    said = causes.of_message(failure.message) or causes.of_message(_last_line(failure.callstack))
    return said or ended or (_AGENT if failure.by_agent else _UNKNOWN)
