"""Records as JSON: read back as written, unknown fields kept, the schema and the reader of one mind."""

import contextlib
import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination import record as model
from perdure.coordination.handlers.shared import MAX_HELD
from perdure.coordination.wire import MAX_NOTE, decode, encode
from perdure.errors import InputError

SCHEMA = json.loads(files("perdure.coordination").joinpath("exception.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
TEXT = st.text(max_size=20)
INSTANT = st.floats(0, 1e11, allow_nan=False)
COUNT = st.integers(0, 2**62)
DOTTED = st.from_regex(r"\A[a-z][a-z0-9_-]{0,5}(\.[a-z0-9_-]{1,5}){0,3}\Z")
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))

RECORDS = st.builds(
    model.ExceptionRecord,
    id=TEXT,
    type=DOTTED,
    severity=st.integers(0, 7),
    scope=st.sampled_from(model.Scope),
    subject=st.builds(
        model.Subject,
        TEXT,
        TEXT,
        st.lists(TEXT, max_size=3).map(tuple),
        st.lists(TEXT, max_size=3).map(tuple),
        TEXT,
        st.lists(COUNT, max_size=3).map(tuple),
        TEXT,
    ),
    time_s=INSTANT,
    note=TEXT,
    incarnation=COUNT,
    origin=st.builds(model.Origin, TEXT, TEXT, COUNT),
    detected_by=TEXT,
    transient=st.sampled_from(model.Transient),
    evidence=st.lists(TEXT, max_size=3).map(tuple),
    annotations=st.lists(st.builds(model.Annotation, TEXT, INSTANT, TEXT, TEXT), max_size=3).map(tuple),
    verdicts=st.lists(
        st.builds(
            model.Answer,
            st.sampled_from(model.Component),
            st.sampled_from(model.AnswerKind),
            INSTANT,
            TEXT,
            st.lists(TEXT, max_size=2).map(tuple),
            TEXT,
            st.lists(TEXT, max_size=2).map(tuple),
            st.none() | INSTANT,
        ),
        max_size=3,
    ).map(tuple),
    seen_by=st.lists(st.builds(model.Sighting, TEXT, INSTANT, TEXT), max_size=3).map(tuple),
    cause=TEXT,
    deadline_s=st.none() | INSTANT,
    budget=st.none() | st.builds(model.Budget, TEXT, COUNT, COUNT),
    repeats=COUNT,
    state=st.sampled_from(model.ExceptionState),
    outcome=st.sampled_from(model.ExceptionOutcome),
    extra=st.dictionaries(st.from_regex(r"\Ax_[a-z]{1,5}\Z"), JSON.map(json.dumps), max_size=3).map(
        lambda extra: tuple(extra.items())
    ),
)


@given(RECORDS)
def test_what_is_read_is_what_was_written_and_the_schema_agrees(record: model.ExceptionRecord) -> None:
    text = json.dumps(encode(record))
    VALIDATOR.validate(json.loads(text))
    assert decode(json.loads(text)) == record


def plain(**more: Any) -> dict[Any, Any]:
    return {"id": "x", "type": "gpu.xid79", "subject": {"job": "1"}, "time": 5.0, **more}


def test_what_held_many_jobs_is_read_back() -> None:
    keys = tuple(f"hold:c/{number}#0@x" for number in range(MAX_HELD))
    answer = model.Answer(model.Component.SCHEDULER, model.AnswerKind.HANDLED, 5.0, "held", keys)
    record = decode(plain()).with_answer(answer)
    assert decode(encode(record)).holds == record.holds
    assert len(record.holds) == MAX_HELD


def test_fields_of_a_newer_program_come_back_as_they_came() -> None:
    sent = plain(telemetry={"watts": [1, 2]}, colour="red")
    assert encode(decode(sent))["telemetry"] == {"watts": [1, 2]}
    assert encode(decode(encode(decode(sent))))["colour"] == "red"


WRONG = [
    plain(severity=8),
    plain(severity=-1),
    plain(severity=True),
    plain(type="Gpu.Xid"),
    plain(type="gpu..x"),
    plain(type=".gpu"),
    plain(type=""),
    plain(version=2),
    plain(time=-1.0),
    plain(time="now"),
    plain(note="x" * (MAX_NOTE + 1)),
    plain(note=5),
    plain(subject={"job": 1}),
    plain(subject={"jobs": "1"}),
    plain(subject={"rank": [-1]}),
    plain(subject={"node": "n1"}),
    plain(subject=[]),
    plain(scope="universal"),
    plain(transient="maybe"),
    plain(incarnation=1.5),
    plain(evidence=["x"] * 65),
    plain(annotations=[{"key": "k"}]),
    plain(verdicts=[{"component": "me", "verdict": "handled", "time": 1.0}]),
    plain(budget={"key": "k"}),
    plain(state="done"),
    plain(outcome="fine"),
    {"type": "gpu.xid79"},
    [],
    "text",
    None,
]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named_and_the_schema_refuses_it_too(value: dict[Any, Any] | list[Any] | str | None) -> None:
    with pytest.raises(InputError) as caught:
        decode(value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not VALIDATOR.is_valid(value)


@pytest.mark.parametrize(
    "value",
    [plain(time=float("nan")), plain(time=float("inf")), plain(**{f"x{i}": 1 for i in range(40)}), plain(x="y" * 5000)],
    ids=["nan", "inf", "many", "long"],
)
def test_what_a_schema_cannot_say_is_refused_too(value: dict[Any, Any]) -> None:
    with pytest.raises(InputError):
        decode(value)


@given(st.recursive(st.none() | st.booleans() | st.floats() | TEXT, lambda i: st.lists(i) | st.dictionaries(TEXT, i)))
def test_anything_at_all_is_read_or_refused(value: object) -> None:
    with contextlib.suppress(InputError):
        decode(value)


def test_what_an_annotation_leaves_out_is_empty() -> None:
    (found,) = decode(plain(annotations=[{"time": 1.0}])).annotations
    assert found == model.Annotation("", 1.0, "", "")
