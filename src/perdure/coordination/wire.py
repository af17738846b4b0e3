"""Exception records as JSON: what other programs send and get. Fields that are not known come back as they came.

``exception.schema.json`` beside this file says the same to programs; the two are held together by tests. What is read
here may come from anybody: every field is bounded, and the first that is wrong is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

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

T = TypeVar("T")
Read = Callable[[Any, str], T]

VERSION = 1
MAX_WORD, MAX_NOTE, MAX_ITEMS, MAX_MANY, MAX_EXTRA = 256, 4096, 64, 4096, 32
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_IN_TYPES = _LETTERS | frozenset("0123456789_-.")
_TYPE_MEND = "Write it in small letters with dots, like gpu.xid79"


def encode(record: ExceptionRecord) -> dict[str, Any]:
    """The JSON object of a record. Instants are seconds since the epoch."""
    subject, origin, budget = record.subject, record.origin, record.budget
    return {
        **{name: json.loads(text) for name, text in record.extra},
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
    given = _object(value, "exception")
    if "version" in given and (version := _number(given["version"], "version")) > VERSION:
        what = f"is of version {version}, and this service reads up to {VERSION}"
        raise InputError("exception: version", what, "Upgrade the service, or send it in the older form")
    for name in _NEEDED:
        if name not in given:
            raise InputError("exception", f"{name} is missing", f"Give it a {name}")
    read = {known[0]: known[1](part, name) for name, part in given.items() if (known := _FIELDS.get(name))}
    if len(given) > len(read):
        read["extra"] = _extra(given)
    return replace(_BLANK, **read)


def type_of(value: Any, where: str = "type") -> str:
    """Read a dotted type. Raises `InputError`."""
    text = _word(value, where)
    if text[:1] not in _LETTERS or not _IN_TYPES.issuperset(text) or ".." in text or text.endswith("."):
        raise InputError(where, f"{text[:80]!r} is not a dotted type", _TYPE_MEND)
    return text


def severity_of(value: Any, where: str = "severity") -> int:
    """Read a severity. Raises `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not FATAL <= value <= LEAST:
        raise InputError(where, f"{_shown(value)} is not a valid severity", f"Use {FATAL} (fatal) to {LEAST} (least)")
    return value


def _annotation(value: Any, where: str) -> Annotation:
    given = _object(value, where)
    _only(given, {"component", "time", "key", "value"}, where)
    return Annotation(
        _word(given.get("component", ""), f"{where}.component"),
        _instant(given.get("time"), f"{where}.time"),
        _word(given.get("key", ""), f"{where}.key"),
        _text(given.get("value", ""), f"{where}.value"),
    )


def _sighting(value: Any, where: str) -> Sighting:
    given = _object(value, where)
    _only(given, {"by", "time", "host"}, where)
    return Sighting(
        _word(given.get("by", ""), f"{where}.by"),
        _instant(given.get("time"), f"{where}.time"),
        _word(given.get("host", ""), f"{where}.host"),
    )


def _answer(value: Any, where: str) -> Answer:
    given = _object(value, where)
    _only(given, {"component", "handler", "verdict", "time", "note", "actions", "forbids", "until"}, where)
    return Answer(
        component=_component(given.get("component"), f"{where}.component"),
        kind=_answer_kind(given.get("verdict"), f"{where}.verdict"),
        time_s=_instant(given.get("time"), f"{where}.time"),
        note=_text(given.get("note", ""), f"{where}.note"),
        action_keys=_keys(given.get("actions", ()), f"{where}.actions"),
        handler=_word(given.get("handler", ""), f"{where}.handler"),
        forbids=_words(given.get("forbids", ()), f"{where}.forbids"),
        until_s=_maybe_instant(given.get("until"), f"{where}.until"),
    )


def _budget(value: Any, where: str) -> Budget:
    given = _object(value, where)
    _only(given, {"key", "used", "limit"}, where)
    used, limit = _number(given.get("used"), f"{where}.used"), _number(given.get("limit"), f"{where}.limit")
    return Budget(_word(given.get("key", ""), f"{where}.key"), used, limit)


def _extra(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    extra = tuple(
        (name, json.dumps(value)) for name, value in given.items() if name not in _FIELDS and name != "version"
    )
    if len(extra) > MAX_EXTRA:
        raise InputError("exception", f"{len(extra)} fields are not known", f"Send at most {MAX_EXTRA} of your own")
    if sum(len(name) + len(text) for name, text in extra) > MAX_NOTE:
        raise InputError("exception", "its fields of your own are too long", f"Keep them below {MAX_NOTE} characters")
    return extra


# -- one value each; `where` is the name of the field


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, f"{_shown(value)} is not an object", 'Write it like {"key": "value"}')
    return value


def _only(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise _unknown(name, known, where)


def _unknown(name: Any, known: Collection[str], where: str) -> InputError:
    return InputError(f"{where}.{str(name)[:80]}", "is not known", f"Use one of: {', '.join(sorted(known))}")


def _string(longest: int) -> Read[str]:
    def read(value: Any, where: str) -> str:
        if not isinstance(value, str):
            raise InputError(where, f"{_shown(value)} is not text", "Put it in quotes")
        if len(value) > longest:
            raise InputError(where, f"has {len(value)} characters", f"Keep it to {longest}; put the rest into a file")
        return value

    return read


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InputError(where, f"{_shown(value)} is not a whole number from 0", "Write it in digits")
    return value


def _instant(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InputError(where, f"{_shown(value)} is not an instant", "Give seconds since 1970")
    return float(value)


def _one_of(kind: type[T]) -> Read[T]:
    def read(value: Any, where: str) -> T:
        try:
            return kind(value)  # type: ignore[call-arg]
        except ValueError as err:
            known = ", ".join(str(k) for k in kind if str(k))  # type: ignore[attr-defined]
            raise InputError(where, f"{_shown(value)} is not one of them", f"Use one of: {known}") from err

    return read


def _many(read: Read[T], most: int = MAX_ITEMS) -> Callable[[Any, str], tuple[T, ...]]:
    def read_all(value: Any, where: str) -> tuple[T, ...]:
        if not value and isinstance(value, (list, tuple)):
            return ()
        if not isinstance(value, (list, tuple)):
            raise InputError(where, f"{_shown(value)} is not a list", "Put it in square brackets")
        if len(value) > most:
            raise InputError(where, f"has {len(value)} entries", f"Give at most {most}")
        return tuple([read(item, f"{where}[{i}]") for i, item in enumerate(value)])

    return read_all


def _object_of(make: Callable[..., T], known: Mapping[str, tuple[str, Read[Any]]], **blank: Any) -> Read[T]:
    """Reads an object that has none but the known fields; what is not given is as in `blank`."""

    def read(value: Any, where: str) -> T:
        parts = dict(blank)
        for name, part in _object(value, where).items():
            if name not in known:
                raise _unknown(name, known, where)
            attribute, read_part = known[name]
            parts[attribute] = read_part(part, f"{where}.{name}")
        return make(**parts)

    return read


def _perhaps(read: Read[T]) -> Callable[[Any, str], T | None]:
    return lambda value, where: None if value is None else read(value, where)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# -- what each field is called here, and how it is read

_word, _long_word, _text = _string(MAX_WORD), _string(4 * MAX_WORD), _string(MAX_NOTE)
_component, _answer_kind = _one_of(Component), _one_of(AnswerKind)
_words, _texts = _many(_word), _many(_text)
_keys, _answers = _many(_long_word, MAX_MANY), _many(_answer, MAX_MANY)  # of a storm, and of all that it held back
_many_words, _maybe_instant = _many(_word, MAX_MANY), _perhaps(_instant)

_OF_ORIGIN: Mapping[str, tuple[str, Read[Any]]] = {
    "component": ("component", _word),
    "host": ("host", _word),
    "pid": ("pid", _number),
}
_OF_SUBJECT: Mapping[str, tuple[str, Read[Any]]] = {
    "cluster": ("cluster", _word),
    "node": ("nodes", _many_words),
    "gpu": ("gpus", _many_words),
    "job": ("job_id", _word),
    "step": ("step", _word),
    "rank": ("ranks", _many(_number, MAX_MANY)),
    "resource": ("resource", _word),
}

_NEEDED = ("id", "type", "subject", "time")
_BLANK = ExceptionRecord("", "", FATAL, Scope.LOCAL, Subject(""), 0.0, origin=Origin(""))
_FIELDS: Mapping[str, tuple[str, Read[Any]]] = {
    "id": ("id", _word),
    "type": ("type", type_of),
    "severity": ("severity", severity_of),
    "scope": ("scope", _one_of(Scope)),
    "origin": ("origin", _object_of(Origin, _OF_ORIGIN, component="")),
    "subject": ("subject", _object_of(Subject, _OF_SUBJECT, cluster="")),
    "incarnation": ("incarnation", _number),
    "time": ("time_s", _instant),
    "detected_by": ("detected_by", _word),
    "transient": ("transient", _one_of(Transient)),
    "evidence": ("evidence", _texts),
    "note": ("note", _text),
    "annotations": ("annotations", _many(_annotation)),
    "seen_by": ("seen_by", _many(_sighting)),
    "verdicts": ("verdicts", _answers),
    "cause": ("cause", _word),
    "deadline": ("deadline_s", _maybe_instant),
    "budget": ("budget", _perhaps(_budget)),
    "repeats": ("repeats", _number),
    "state": ("state", _one_of(ExceptionState)),
    "outcome": ("outcome", _one_of(ExceptionOutcome)),
}
