"""Exceptions are stored without what is at its default, published whole, and read as older versions stored them."""

from __future__ import annotations

import json

import msgspec

from perdure.coordination import wire
from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionRecord, Scope, Subject
from perdure.service.store import codec

ANSWER = Answer(Component.SCHEDULER, AnswerKind.DECLINED, 6.0, "")
RECORD = ExceptionRecord("x", "job.failed", 0, Scope.LOCAL, Subject("c", "7"), 5.0, verdicts=(ANSWER,))


def whole(value: object) -> object:
    """As versions stored it that wrote every field out."""
    if isinstance(value, msgspec.Struct):
        return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
    return [whole(each) for each in value] if isinstance(value, tuple) else value


def test_what_is_at_its_default_is_not_stored() -> None:
    assert json.loads(codec.EXCEPTION.encode(RECORD)) == {
        "id": "x",
        "type": "job.failed",
        "severity": 0,
        "scope": "local",
        "subject": {"cluster": "c", "job_id": "7"},
        "time_s": 5.0,
        "verdicts": [{"component": "scheduler", "kind": "declined", "time_s": 6.0, "note": ""}],
    }


def test_rows_of_older_versions_are_read() -> None:
    stored = json.dumps(whole(RECORD))
    assert '"repeats": 0' in stored
    assert codec.EXCEPTION.decode(stored) == RECORD
    assert codec.EXCEPTION.decode(codec.EXCEPTION.encode(RECORD)) == RECORD


def test_the_published_form_has_every_field() -> None:
    told = wire.encode(RECORD)
    assert {"origin", "repeats", "annotations", "evidence", "seen_by", "budget", "outcome"} <= told.keys()
    assert told["verdicts"][0].keys() >= {"handler", "actions", "forbids", "until"}
    assert wire.decode(told) == RECORD
