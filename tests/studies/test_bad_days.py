"""Days of failures that cannot be compared: each is refused by its row."""

from __future__ import annotations

import pytest

from perdure.errors import InputError
from perdure.studies.colocation import COLUMNS, FEWEST_DAYS, read_days

HEAD = ",".join(COLUMNS)


def days(*more: str, days: int = FEWEST_DAYS, units: int = 9) -> list[str]:
    return [HEAD, *(f"d{day},{hops},{units},0" for day in range(days) for hops in (2, 3)), *more]


@pytest.mark.parametrize("column", COLUMNS[1:])
@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1.5", "1e3", "x", "1" * 16, "\u0663"])
def test_what_is_not_a_count_is_shown(column: str, text: str) -> None:
    row = {"day": "late", "hops": "2", "units": "9", "failures": "0", column: text}
    with pytest.raises(InputError) as refused:
        read_days(days(",".join(row.values()), "x,x,x,x"), "t.csv")
    assert str(refused.value) == f"t.csv, row 12: {column} is {text!r}, not a whole number. Write 0 or more."


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_lacks_is_named(column: str) -> None:
    with pytest.raises(InputError) as refused:
        read_days([HEAD.replace(column, "other")], "t.csv")
    assert str(refused.value) == f"t.csv, row 1: no column {column}. Write {HEAD}."


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (days("late,2,9,10"), "t.csv, row 12: 10 of 9 units failed. "),
        (days("d0,2,9,0"), "t.csv, row 12: day 'd0' has 2 hops twice. "),
        (days("d0,4,9,0"), "t.csv: 3 distances in it. "),
        (days(days=FEWEST_DAYS - 1), "t.csv: 4 days have both distances. Give at least 5."),
        (days(units=0), "t.csv: one distance has no units at all. Give rows of two distances that are used."),
        (days("x" * 200_000), "t.csv, row 11: is not CSV: field larger than field limit (131072). Write day,hops"),
        ([], "t.csv, row 1: no column day. "),
    ],
)
def test_days_that_cannot_be_compared(lines: list[str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_days(lines, "t.csv")
    assert str(refused.value).startswith(said)


def test_all_units_of_a_day_may_fail() -> None:
    assert read_days(days("late,2,9,9", "late,3,9,9")).far_failures[-1] == 9
