"""Single values that anybody may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination.bridges import fields
from perdure.coordination.wire import type_of

NOW = 2e9


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (12, 12.0),
        (12.5, 12.5),
        ("12", 12.0),
        ("12.5", 12.5),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.25Z", 60.25),
        ("1970-01-01T00:01:00.123456789Z", 60.123456),
        ("1970-01-01T02:01:00+02:00", 60.0),
        ("1970-01-01_00:01:00", 60.0),
        (3e9, NOW),
        (-1, None),
        (True, None),
        ("", None),
        ("soon", None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
        (10**400, None),
        ("1e400", None),
        ("9" * 41, None),
        ({}, None),
    ],
)
def test_instants(value: object, seconds: float | None) -> None:
    assert fields.instant(value, NOW) == seconds


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        ("-7", None),
        (-7, None),
        (True, None),
        (7.0, None),
        ("٧", None),
        ("7" * 30, None),
        (2**63, None),
    ],
)
def test_whole_numbers(value: str | float, number: int | None) -> None:
    assert fields.whole(value) == number


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("KernelDeadlock", "kernel-deadlock"),
        ("SysLogsXIDError", "sys-logs-xid-error"),
        ("a b/c", "a-b-c"),
        ("Ünïcode", "n-code"),
        ("...", ""),
    ],
)
def test_parts_of_types(text: str, part: str) -> None:
    assert fields.dotted_part(text) == part


@given(st.text())
def test_any_text_makes_a_part_of_a_type_or_none(text: str) -> None:
    part = fields.dotted_part(text)
    assert part == "" or type_of(f"node.{part}")


@given(st.text(), st.integers(2, 50))
def test_a_line_is_one_line_of_bounded_length(text: str, longest: int) -> None:
    line = fields.line(text, longest)
    assert line.isprintable()
    assert len(line) <= longest


def test_the_end_of_a_long_passage_is_kept() -> None:
    assert fields.passage("a" * 100 + "\nthe error\x1b\n", 20) == "…aaaaaaa\nthe error"


@pytest.mark.parametrize("value", ["-n", "n 1", "$(id)", "n1;n2", "", None, 7, "x" * 300])
def test_what_is_no_node_is_none(value: str | int | None) -> None:
    assert fields.node(value) == ""


def test_nodes_are_written_out_within_bounds() -> None:
    assert fields.nodes("n[1-2],m7") == ("n1", "n2", "m7")
    assert fields.nodes("n[1-99999]") == ()
    assert fields.nodes("n[1-") == ()


def test_the_same_facts_make_the_same_name_and_others_another() -> None:
    assert fields.digest("a", 1) == fields.digest("a", 1)
    assert fields.digest("a", 1) != fields.digest("a", 2)
    assert fields.digest("ab", "c") != fields.digest("a", "bc")
