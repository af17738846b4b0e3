"""What is written can be read back, however hostile its text."""

import json
import types
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject
from msgspec import Struct
from pydantic import BaseModel, Field

from perdure.errors import StateError
from perdure.model.actions import Cancel
from perdure.model.clean_text import clean, cleaned
from perdure.model.identity import AttemptId
from perdure.model.jobs import Job, JobState
from perdure.model.output import LogMark
from perdure.model.tagged import Tagged
from perdure.service.store import codec
from perdure.service.store.codec import Codec
from perdure.triage.verdict import Label, Verdict

CODECS = ("ACTION", "JOB", "ATTEMPT", "NODE", "VERDICT", "EXCEPTION", "CASE", "TROUBLES", "SPENT", "UNSEEN")

text = st.text(st.one_of(st.characters(), st.sampled_from("\0\ud800\udc00é")), max_size=8)
LEAVES = {
    str: text,
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type made of Structs, unions, tuples, mappings, enums and plain values."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in LEAVES:
        return LEAVES[kind]
    if origin is Annotated:
        return values(args[0])
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([values(arg) for arg in args])
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*map(values, args))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    names = kind.__struct_fields__ if issubclass(kind, Struct) else [field.name for field in fields(kind)]
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values(hints[name]) for name in names})


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_read_back_is_what_was_written_with_its_text_cleaned(name: str, data: DataObject) -> None:
    kind = getattr(codec, name)
    value = data.draw(values(kind.kind))
    encoded = kind.encode(value)
    encoded.encode("utf-8")
    assert "\0" not in encoded
    assert kind.decode(encoded) == cleaned(value)
    assert kind.of(json.loads(encoded)) == cleaned(value)


EVENTS = Codec(codec.StoredEvent)


@given(values(codec.StoredEvent))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_events_are_written_as_others_read_them(event: Tagged) -> None:
    assert EVENTS.decode(codec.encode(event)) == cleaned(event)


class Wish(BaseModel):
    width: int = Field(gt=0)


class Kept(Struct, frozen=True):
    wish: Wish
    share: float


def test_models_of_the_api_and_numbers_of_numpy_are_written_as_what_they_are() -> None:
    kept = Codec(Kept)
    assert kept.decode(kept.encode(Kept(Wish(width=2), np.float64(0.5)))) == Kept(Wish(width=2), 0.5)
    with pytest.raises(StateError, match="greater than 0"):
        kept.decode('{"wish": {"width": 0}, "share": 1}')
    with pytest.raises(TypeError):
        codec.encode(object())


@given(text)
def test_clean_text_is_what_every_database_takes_and_stays_as_it_is(dirty: str) -> None:
    result = clean(dirty)
    result.encode("utf-8")
    assert "\0" not in result
    assert clean(result) == result


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_harmless_text_is_left_alone(harmless: str) -> None:
    assert clean(harmless) == harmless


def test_backslashes_that_only_look_like_a_nul_are_left_alone() -> None:
    job = Job("c", "1", r"a\u0000b", "ada", JobState.PENDING, 0.0)
    assert codec.JOB.decode(codec.JOB.encode(job)) == job


@pytest.mark.parametrize("stored", ["", "{}", "[1]", '{"kind": "nonsense"}', '{"cluster": 3}'])
def test_what_nobody_wrote_is_refused_in_one_line(stored: str) -> None:
    for name in ("ACTION", "JOB", "CASE"):
        with pytest.raises(StateError) as refused:
            getattr(codec, name).decode(stored)
        assert "\n" not in str(refused.value)


def test_attempt_ids_keep_their_parts() -> None:
    assert cleaned(AttemptId("c\0", "1", 2)) == AttemptId("c\N{REPLACEMENT CHARACTER}", "1", 2)


def test_an_action_for_a_user_of_a_broken_name_is_kept() -> None:
    action = Cancel(AttemptId("c", "1", 2), user="\udc80a")
    assert codec.ACTION.decode(codec.ACTION.encode(action)) == Cancel(
        AttemptId("c", "1", 2), user="\N{REPLACEMENT CHARACTER}a"
    )


def test_the_path_of_a_log_is_cleaned_too() -> None:
    mark = LogMark("/o/\0\udc80", 0, 1, "", 1.0)
    verdict = Verdict(Label.UNSURE, 0.5, "unknown", "says nothing", logs=(mark,))
    assert codec.VERDICT.decode(codec.encode(verdict)) == cleaned(verdict) != verdict
