"""Flux: a job's eventlog (RFC 18 and 21), and the job manager's journal of all jobs.

An eventlog is one event a line, ``{"timestamp": ..., "name": ..., "context": {...}}``, and says not which job it is of;
a response of the journal is ``{"id": JOB, "events": [...]}``. Exceptions keep their severity: 0 ends the job, and the
first of those is the root cause of what follows, the job's own end included. A task that ends with a code that is not
zero is an exception too where Flux raised none before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import re2
from msgspec.structs import replace

from perdure.coordination.bridges import causes, fields
from perdure.coordination.bridges.bridged import BridgeContext, Meaning, ReportedFailure, led_by_first, record_of
from perdure.coordination.bridges.documents import MAX_DOCUMENTS, documents
from perdure.coordination.record import FATAL, LEAST, ExceptionRecord, Transient

MAX_JOBS = 10_000

_TYPES = {
    "cancel": Meaning("job.cancelled", transient=Transient.NO),
    "timeout": Meaning("job.timeout", transient=Transient.NO),
    "timelimit": Meaning("job.timeout", transient=Transient.NO),
    "preempt": Meaning("job.preempted", transient=Transient.YES),
    "node-failure": Meaning("node.down", transient=Transient.YES),
    "oom": Meaning("app.oom", transient=Transient.NO),
    "alloc": Meaning("launcher.permanent", transient=Transient.NO),
    "depend": Meaning("launcher.permanent", transient=Transient.NO),
    "dependency": Meaning("launcher.permanent", transient=Transient.NO),
    "validate": Meaning("launcher.permanent", transient=Transient.NO),
    "start": Meaning("launcher.transient", transient=Transient.YES),
    "free": Meaning("launcher.transient", transient=Transient.YES),
    "prolog": Meaning("launcher.transient", transient=Transient.YES),
    "epilog": Meaning("launcher.transient", transient=Transient.YES),
    "scheduler-restart": Meaning("launcher.transient", transient=Transient.YES),
    "exec": Meaning("launcher.transient"),
}
_NAME_HOSTS = frozenset({"exec", "node-failure", "oom", "start"})  # in notes that Flux itself writes
# What the execution system raises under "exec" is told apart by its note alone.
_NOTES = tuple(
    (re2.compile(pattern), meaning)
    for pattern, meaning in (
        (r"^node failure on ", Meaning("node.down", transient=Transient.YES)),
        (r"lost contact with ", Meaning("node.unreachable", transient=Transient.YES)),
        (r"start failed.*(?:temporarily unavailable|Cannot allocate memory|Too many open files)", _TYPES["start"]),
        (r"start failed", Meaning("launcher.permanent", transient=Transient.NO)),
        (r"(?:rank|task) \d+ exited ", Meaning("process.exit")),
        (r"[Oo]ut of memory", _TYPES["oom"]),
    )
)
_ON_HOST = re2.compile(r"\bon ([A-Za-z0-9][A-Za-z0-9._-]{0,200})(?:$|[\s,;:(])")
_IN_BRACKETS = re2.compile(r"\btask \d+ \(([A-Za-z0-9][A-Za-z0-9._-]{0,200})\)")
_RANK = re2.compile(r"\b(?:(shell|broker) )?rank (\d{1,9})\b")
_TASK = re2.compile(r"\btask (\d{1,9})\b")


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read eventlogs and responses of the journal, in any mixture."""
    by_job: dict[str, list[ExceptionRecord]] = {}
    for document in documents(text, context.format):
        said = fields.mapping(document)
        job_id = fields.name(said.get("id")) or context.job_id
        events = fields.items(said.get("events"), MAX_DOCUMENTS) if "events" in said else (document,)
        for event in events:
            record, is_event = _of_event(fields.mapping(event), job_id, context)
            if not is_event or (record is not None and len(by_job) >= MAX_JOBS and job_id not in by_job):
                yield None
            elif record is not None:
                by_job.setdefault(job_id, []).append(record)
    for records in by_job.values():
        yield from _led(records)


def _of_event(event: Mapping[str, Any], job_id: str, context: BridgeContext) -> tuple[ExceptionRecord | None, bool]:
    """The record of one event, None where it is not a failure; and whether it is an event at all."""
    name, said = event.get("name"), fields.mapping(event.get("context"))
    time_s = fields.instant(event.get("timestamp"), context.now)
    if not isinstance(name, str) or time_s is None:
        return None, False
    facts = (job_id, event.get("timestamp"), name)
    if name == "exception":
        told = _of_exception(said)
    elif name == "finish":
        told = _of_finish(said)
    else:
        return None, True
    if told is None:
        return None, name == "finish"
    return record_of(replace(told, facts=(*facts, *told.facts), time_s=time_s, job_id=job_id), context), True


def _of_exception(said: Mapping[str, Any]) -> ReportedFailure | None:
    kind, severity = fields.line(said.get("type"), 64), fields.whole(said.get("severity"), FATAL, LEAST)
    if not kind or severity is None or isinstance(said.get("severity"), str):
        return None
    note = fields.line(said.get("note"), 1024)
    host = (_ON_HOST.search(note) or _IN_BRACKETS.search(note)) if kind in _NAME_HOSTS else None
    rank, task = _RANK.search(note), _TASK.search(note)
    number = rank[2] if rank else task[1] if task else None
    return ReportedFailure(
        meaning=replace(_meaning(kind, note), severity=severity),
        facts=(kind, severity, note),
        note=note,
        nodes=(fields.node(host[1]),) if host else (),
        ranks=() if number is None else (int(number),),
        component=f"flux {kind}",
        known={
            "flux.type": kind,
            "flux.rank_of": (rank[1] or "broker") if rank and host else "",
            "userid": fields.whole(said.get("userid")),
        },
    )


def _meaning(kind: str, note: str) -> Meaning:
    """A type with a dot is one of ours already; one that nobody knows is the job's own."""
    if kind == "exec":
        return next((meaning for pattern, meaning in _NOTES if pattern.search(note)), _TYPES[kind])
    if kind == "alloc" and "unsatisfiable" not in note and "insufficient" not in note:
        return Meaning("launcher.transient")
    if kind in _TYPES:
        return _TYPES[kind]
    parts = [part for piece in kind.split(".") if (part := fields.dotted_part(piece))]
    if len(parts) > 1 and parts[0][0].isalpha():
        return Meaning(".".join(parts))
    return Meaning(f"job.{'.'.join(parts)}" if parts else "job.exception")


def _of_finish(said: Mapping[str, Any]) -> ReportedFailure | None:
    status = fields.whole(said.get("status"), most=0xFFFF)
    code = causes.of_wait_status(status) if status else 0
    meaning = causes.of_exit(code)
    if meaning is None:
        return None
    signal = causes.signal_of(code)
    note = f"ended by {causes.signal_name(signal)}" if signal else f"ended with exit code {code}"
    known = {"exit_code": code, "signal": causes.signal_name(signal) if signal else ""}
    return ReportedFailure(meaning=meaning, facts=(status,), note=note, component="flux finish", known=known)


def _led(records: list[ExceptionRecord]) -> list[ExceptionRecord]:
    return led_by_first(sorted(records, key=lambda record: record.time_s))
