"""Exception records as JSON: what other programs send and get. Fields that are not known come back as they came.

``exception.schema.json`` next to this file says the same to programs; the two are held together by tests. What is read
here may come from anybody: every field is bounded, and the first that is wrong is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, astuple, fields

from perdure.coordination.record import (
    FATAL,
    LEAST,
    Annotation,
    Answer,
    AnswerKind,
    Budget,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Origin,
    Scope,
    Sighting,
    Subject,
    Transient,
)
from perdure.errors import InputError
from perdure.model.validation import read, shown

T = TypeVar("T", bound=Struct)

VERSION = 1
MAX_WORD, MAX_NOTE, MAX_ITEMS, MAX_MANY, MAX_EXTRA = 256, 4096, 64, 4096, 32
MAX_DEPTH = 32  # of fields that are not known

Word = Annotated[str, Meta(max_length=MAX_WORD)]
LongWord = Annotated[str, Meta(max_length=4 * MAX_WORD)]
Text = Annotated[str, Meta(max_length=MAX_NOTE)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0, in digits")]
Instant = Annotated[float, Meta(ge=0, lt=1e12, description="an instant, in seconds since 1970")]
Severity = Annotated[int, Meta(ge=FATAL, le=LEAST, description=f"a severity from {FATAL} (fatal) to {LEAST} (least)")]
DottedType = Annotated[
    str,
    Meta(
        max_length=MAX_WORD,
        pattern=r"^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*\Z",
        description="a dotted type in small letters, like gpu.xid79",
    ),
]
Words = Annotated[tuple[Word, ...], Meta(max_length=MAX_ITEMS)]
ManyWords = Annotated[tuple[Word, ...], Meta(max_length=MAX_MANY)]


_OBJECT = Meta(description='an object, like {"key": "value"}')


class _Given(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object with the attributes of a part of a record, under the names that programs know."""


class _Origin(_Given, frozen=True):
    component: Word = ""
    host: Word = ""
    pid: Count = 0


class _Subject(_Given, frozen=True):
    cluster: Word = ""
    job_id: Word = field(default="", name="job")
    nodes: ManyWords = field(default=(), name="node")
    gpus: ManyWords = field(default=(), name="gpu")
    step: Word = ""
    ranks: Annotated[tuple[Count, ...], Meta(max_length=MAX_MANY)] = field(default=(), name="rank")
    resource: Word = ""


class _Annotation(_Given, frozen=True):
    time_s: Instant = field(name="time")
    component: Word = ""
    key: Word = ""
    value: Text = ""


class _Sighting(_Given, frozen=True):
    time_s: Instant = field(name="time")
    by: Word = ""
    host: Word = ""


class _Answer(_Given, frozen=True):
    component: Component
    kind: AnswerKind = field(name="verdict")
    time_s: Instant = field(name="time")
    note: Text = ""
    action_keys: Annotated[tuple[LongWord, ...], Meta(max_length=MAX_MANY)] = field(default=(), name="actions")
    handler: Word = ""
    forbids: Words = ()
    until_s: Instant | None = field(default=None, name="until")


class _Budget(_Given, frozen=True):
    used: Count
    limit: Count
    key: Word = ""


class _Record(Struct, frozen=True, kw_only=True):
    version: Count = VERSION
    id: Word
    type: DottedType
    severity: Severity = FATAL
    scope: Scope = Scope.LOCAL
    origin: Annotated[_Origin, _OBJECT] = _Origin()
    subject: Annotated[_Subject, _OBJECT]
    incarnation: Count = 0
    time_s: Instant = field(name="time")
    detected_by: Word = ""
    transient: Transient = Transient.UNKNOWN
    evidence: Annotated[tuple[Text, ...], Meta(max_length=MAX_ITEMS)] = ()
    note: Text = ""
    annotations: Annotated[tuple[_Annotation, ...], Meta(max_length=MAX_ITEMS)] = ()
    seen_by: Annotated[tuple[_Sighting, ...], Meta(max_length=MAX_ITEMS)] = ()
    verdicts: Annotated[tuple[_Answer, ...], Meta(max_length=MAX_MANY)] = ()
    cause: Word = ""
    deadline_s: Instant | None = field(default=None, name="deadline")
    budget: Annotated[_Budget, _OBJECT] | None = None
    repeats: Count = 0
    state: ExceptionState = ExceptionState.RAISED
    outcome: ExceptionOutcome = ExceptionOutcome.OPEN


_PARTS: dict[str, type[Struct]] = {"annotations": Annotation, "seen_by": Sighting, "verdicts": Answer}
_FIELDS = frozenset(each.encode_name for each in fields(_Record))


def encode(record: ExceptionRecord) -> dict[str, Any]:
    """The JSON object of a record. Instants are seconds since the epoch."""
    subject, origin, budget = record.subject, record.origin, record.budget
    return {
        **{name: _shown(text) for name, text in record.extra},
        "version": VERSION,
        "id": record.id,
        "type": record.type,
        "severity": record.severity,
        "scope": record.scope.value,
        "origin": {"component": origin.component, "host": origin.host, "pid": origin.pid},
        "subject": {
            "cluster": subject.cluster,
            "node": list(subject.nodes),
            "gpu": list(subject.gpus),
            "job": subject.job_id,
            "step": subject.step,
            "rank": list(subject.ranks),
            "resource": subject.resource,
        },
        "incarnation": record.incarnation,
        "time": record.time_s,
        "detected_by": record.detected_by,
        "transient": record.transient.value,
        "evidence": list(record.evidence),
        "note": record.note,
        "annotations": [
            {"component": a.component, "time": a.time_s, "key": a.key, "value": a.value} for a in record.annotations
        ],
        "seen_by": [{"by": s.by, "time": s.time_s, "host": s.host} for s in record.seen_by],
        "verdicts": [_encode_answer(answer) for answer in record.verdicts],
        "cause": record.cause,
        "deadline": record.deadline_s,
        "budget": {"key": budget.key, "used": budget.used, "limit": budget.limit} if budget else None,
        "repeats": record.repeats,
        "state": record.state.value,
        "outcome": record.outcome.value,
    }


def _shown(text: str) -> Any:
    """A field of somebody's own; as its text where no answer can hold it: earlier releases took such fields."""
    value = json.loads(text)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return text
    return text if _is_deep(value) else value


def _is_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deep(each, levels - 1) for each in inner)


def _encode_answer(answer: Answer) -> dict[str, Any]:
    return {
        "component": answer.component.value,
        "handler": answer.handler,
        "verdict": answer.kind.value,
        "time": answer.time_s,
        "note": answer.note,
        "actions": list(answer.action_keys),
        "forbids": list(answer.forbids),
        "until": answer.until_s,
    }


def decode(value: Any) -> ExceptionRecord:
    """Read a record. Raises `InputError` that names the field and says how to fix it."""
    if not isinstance(value, dict):
        raise InputError("exception", f"{shown(value)} is not an object", 'Write it like {"key": "value"}')
    version = value.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        what = f"is of version {version}, and this service reads up to {VERSION}"
        raise InputError("exception: version", what, "Upgrade the service, or send it in the older form")
    given: _Record = read(_Record, value, "")
    parts = asdict(given)
    del parts["version"]
    parts["subject"], parts["origin"] = Subject(*astuple(given.subject)), Origin(*astuple(given.origin))
    for name, kind in _PARTS.items():
        if parts[name]:
            parts[name] = tuple([_as(kind, each) for each in parts[name]])
    parts["budget"] = _as(Budget, given.budget) if given.budget else None
    return ExceptionRecord(**parts, extra=() if value.keys() <= _FIELDS else _extra(value))


def _as(kind: type[T], given: Struct) -> T:
    """The part of a record that has the attributes of what was given."""
    return kind(*[getattr(given, name) for name in kind.__struct_fields__])


def type_of(value: Any, where: str = "type") -> str:
    """Read a dotted type. Raises `InputError`."""
    return str(read(DottedType, value, where))


def _extra(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    own = {name: value for name, value in given.items() if name not in _FIELDS}
    if _is_deep(own):
        raise InputError("exception", "its fields of your own are nested too deeply", f"Keep to {MAX_DEPTH} levels")
    extra = tuple((name, json.dumps(value)) for name, value in own.items())
    if len(extra) > MAX_EXTRA:
        raise InputError("exception", f"{len(extra)} fields are not known", f"Send at most {MAX_EXTRA} of your own")
    if sum(len(name) + len(text) for name, text in extra) > MAX_NOTE:
        raise InputError("exception", "its fields of your own are too long", f"Keep them below {MAX_NOTE} characters")
    return extra
