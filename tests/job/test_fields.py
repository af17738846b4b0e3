"""Fields that a task has written: another kind than the one asked for is shown and refused, never taken over."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InputError
from perdure.job.fields import LARGEST, Fields
from perdure.job.files import small_file
from perdure.job.requested import SCHEMA, read

NO_NUMBERS = (None, "1", True, [1], {"a": 1}, math.nan, math.inf, -math.inf, 2**64, -(2**64), 10**400)


@pytest.mark.parametrize(
    ("ask", "wrong", "wanted"),
    [
        (Fields.text, (None, 1, True, ["a"], {}), "a text"),
        (Fields.texts, (None, "a", [1], ["a", None], {"a": 1}), "a list of texts"),
        (Fields.number, NO_NUMBERS, "a number"),
        (Fields.whole, (*NO_NUMBERS, 1.0, 1.5), "a whole number"),
        (Fields.maybe_number, NO_NUMBERS[1:], "a number"),
        (Fields.maybe_whole, (*NO_NUMBERS[1:], 1.0), "a whole number"),
        (Fields.yes, (None, 0, 1, "true", []), "true or false"),
    ],
)
def test_a_field_of_another_kind(ask: Callable[[Fields, str], object], wrong: tuple[Any, ...], wanted: str) -> None:
    for value in wrong:
        with pytest.raises(InputError) as refused:
            ask(Fields("beat.json", {"field": value}), "field")
        said = f"beat.json: field is {str(value)[:80]!r}, not {wanted}. It is written by perdure exec or perdure agent"
        assert str(refused.value).startswith(said)


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 0])
def test_the_largest_numbers_are_taken(value: int) -> None:
    found = Fields("s", {"field": value})
    assert (found.whole("field"), found.number("field")) == (value, float(value))


@pytest.mark.parametrize("asked", ["null", "{}", '"a"', "[1]", '[{"id": "a"}, null]'])
def test_what_is_asked_for_is_a_list_of_objects(tmp_path: Path, asked: str) -> None:
    path = tmp_path / "asked.json"
    path.write_text(f'{{"schema": "{SCHEMA}", "count": 1, "asked": {asked}}}')
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value) == f"{path}: asked is not a list of objects. It is written by perdure exec; remove it."


@pytest.mark.parametrize(("text", "said"), [
    ("{}", "schema 'None' is not "), ("[]", "schema 'no object' is not "), ("{", "not JSON. "), ("", "not JSON. "),
    ("[" * 60_000, "not JSON. "), ("[" * 100_000, "more than 65536 bytes. "),
    ('{"schema": "other/1"}', "schema 'other/1' is not "),
])  # fmt: skip
def test_a_file_of_another_kind(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "asked.json"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: {said}")


def test_a_file_is_read_up_to_its_limit_and_of_those_who_are_believed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    owner = path.stat().st_uid
    assert small_file(path, 4, [owner]) == b"1234"
    for limit, owners, said in (
        (3, None, "more than 3 bytes"),
        (4, [owner + 1], f"written by user {owner}, who is not"),
    ):
        with pytest.raises(InputError) as refused:
            small_file(path, limit, owners)
        assert str(refused.value).startswith(f"{path}: {said}")
    (tmp_path / "link").symlink_to(path)
    before = len(os.listdir("/proc/self/fd"))
    for other, said in ((tmp_path / "link", "a link"), (tmp_path, "not a regular file")):
        with pytest.raises(InputError) as refused:
            small_file(other, 4)
        assert str(refused.value).startswith(f"{other}: {said}. ")
    assert len(os.listdir("/proc/self/fd")) == before
