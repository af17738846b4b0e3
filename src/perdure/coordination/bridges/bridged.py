"""Records made of what another program said, and how much of it could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.coordination.bridges import fields
from perdure.coordination.record import (
    FATAL,
    LEAST,
    Annotation,
    ExceptionRecord,
    Origin,
    Scope,
    Subject,
    Transient,
)
from perdure.coordination.wire import MAX_ITEMS, MAX_MANY, MAX_WORD
from perdure.errors import InputError

MAX_RECORDS = 10_000  # kept of one text
MAX_FOUND = 250_000  # parts of one text


class Bridged(Struct, frozen=True):
    """What came over: each exception once, and how many parts of the text made no sense or were too many."""

    records: tuple[ExceptionRecord, ...]
    skipped: int = 0


class BridgeContext(Struct, frozen=True):
    """What the text does not say itself: whose it is, and the present."""

    format: str
    cluster: str
    now: float
    job_id: str = ""
    incarnation: int = 0


Reader = Callable[[str, BridgeContext], Iterable[ExceptionRecord | None]]  # None is a part that cannot be read


class Meaning(Struct, frozen=True):
    """What a word of another program means here."""

    type: str
    severity: int = FATAL
    transient: Transient = Transient.UNKNOWN
    scope: Scope = Scope.LOCAL


class ReportedFailure(Struct, frozen=True):
    """One failure as it was reported. `facts` make it what it is: the same facts are the same exception."""

    meaning: Meaning
    facts: tuple[object, ...]
    time_s: float | None = None  # None where it is not known
    note: str = ""
    job_id: str = ""  # "" is the one that the text as a whole is about
    incarnation: int = 0
    nodes: Sequence[str] = ()
    gpus: Sequence[str] = ()
    ranks: Sequence[int] = ()
    step: str = ""
    resource: str = ""
    host: str = ""  # where it was seen
    pid: int = 0
    component: str = ""  # who saw it; "" is the format's own program
    evidence: Sequence[str] = ()
    known: Mapping[str, object] = field(default_factory=dict)  # annotations
    cause: str = ""
    repeats: int = 0


def record_of(told: ReportedFailure, context: BridgeContext) -> ExceptionRecord:
    """Make a record. Every text of it is bounded and without control characters; its id comes from the facts."""
    time_s = told.time_s if told.time_s is not None else context.now
    job_id = told.job_id or context.job_id
    return ExceptionRecord(
        id=f"{context.format}-{fields.digest(context.cluster, job_id, told.meaning.type, *told.facts)}",
        type=told.meaning.type,
        severity=told.meaning.severity,
        scope=told.meaning.scope,
        subject=Subject(
            cluster=context.cluster,
            job_id=job_id,
            nodes=_each_once(told.nodes),
            gpus=_each_once(fields.line(gpu) for gpu in told.gpus),
            step=fields.line(told.step),
            ranks=tuple(dict.fromkeys(told.ranks))[:MAX_MANY],
            resource=fields.line(told.resource),
        ),
        time_s=time_s,
        note=fields.line(told.note, 1024),
        incarnation=told.incarnation or (context.incarnation if job_id == context.job_id else 0),
        origin=Origin(fields.line(told.component) or context.format, fields.line(told.host), told.pid),
        detected_by=context.format,
        transient=told.meaning.transient,
        evidence=tuple(text for item in told.evidence if (text := fields.passage(item)))[:MAX_ITEMS],
        annotations=tuple(
            Annotation(context.format, time_s, key[:MAX_WORD], fields.line(str(value), 1024))
            for key, value in told.known.items()
            if value not in ("", None)
        )[:MAX_ITEMS],
        cause=told.cause,
        repeats=told.repeats,
    )


def clearing(meaning: Meaning) -> Meaning:
    """The record that reports the end of this fault."""
    return replace(meaning, severity=LEAST)


def gather(found: Iterable[ExceptionRecord | None], where: str) -> Bridged:
    """Keep each exception once, in order, and count the rest. Raises `InputError` for more than `MAX_FOUND`."""
    records: dict[str, ExceptionRecord] = {}
    skipped = 0
    for number, record in enumerate(found):
        if number >= MAX_FOUND:
            raise InputError(where, f"holds more than {MAX_FOUND} failures", "Send it in parts")
        if record is None or (len(records) >= MAX_RECORDS and record.id not in records):
            skipped += 1
        else:
            records.setdefault(record.id, record)
    return Bridged(tuple(records.values()), skipped)


def led_by_first(records: Sequence[ExceptionRecord]) -> list[ExceptionRecord]:
    """The first fatal record is the root; later fatal ones follow from it."""
    root = next((record for record in records if record.severity == FATAL), None)
    if root is None:
        return list(records)
    return [
        replace(record, cause=root.id) if record.severity == FATAL and record.id != root.id else record
        for record in records
    ]


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name)[:MAX_MANY]
