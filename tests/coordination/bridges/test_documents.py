"""JSON of all sorts, in bounded time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination.bridges.documents import MAX_UNREADABLE, documents, logged
from perdure.errors import InputError

OBJECTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@given(
    st.lists(OBJECTS, max_size=5),
    st.sampled_from(["\n", "\n\n", " ", "\r\n", "\x1e", ",\n"]),
    st.sampled_from([None, 2]),
)
def test_documents_one_after_the_other_come_back(given_: list[Any], between: Any, indent: Any) -> None:
    text = between.join(json.dumps(value, indent=indent) for value in given_)
    assert list(documents(text, "x")) == given_


def test_text_before_a_document_on_its_line_is_passed_over() -> None:
    assert list(documents('[INFO] 12:00 event: {"a": 1}\nx {"b": 2}', "x")) == [{"a": 1}, {"b": 2}]


def test_a_line_that_holds_none_is_counted_and_those_around_it_are_read() -> None:
    assert list(documents('{"a": 1}\n{"b":\nnonsense\n{"c": 3}\n', "x")) == [{"a": 1}, None, None, {"c": 3}]


def test_a_log_holds_what_ends_its_lines() -> None:
    log = 'epoch 1\n[INFO] {"a": 1}\n{"a": not}\n{"b": 2}\n{"a": 1} x\n[{"a": 3}]\n'
    assert list(logged(log, ['"a"'])) == [{"a": 1}]


def test_a_list_that_was_cut_off_gives_what_came_whole() -> None:
    assert list(documents('[{"a": 1}, {"b": 2}, {"c"', "x")) == [{"a": 1}, {"b": 2}, None]


@pytest.mark.parametrize("text", ["[" * 10_000, '{"a":' * 10_000, "[\n" * 10_000])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        list(documents(text, "x"))


def test_another_format_is_refused() -> None:
    with pytest.raises(InputError, match="most of it is not JSON"):
        list(documents("x\n" * (MAX_UNREADABLE + 1), "x"))


def test_the_search_for_a_beginning_does_not_go_over_the_text_again_and_again() -> None:
    text = "[\n" * 500 + "1,\n" * 50_000 + "!"
    with pytest.raises(InputError, match="most of it is not JSON"):
        list(documents(text, "x"))
    with pytest.raises(InputError, match="most of it is not JSON"):
        list(documents("".join(f'{{"{i}":\n' for i in range(500)) + "1,\n" * 50_000 + "!", "x"))
