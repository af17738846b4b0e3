"""Wall clocks: an hour that comes twice, one that never comes, and times that are unknown."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.traces.clocks import from_wall_clock, spans


def instant(text: str) -> float:
    return float(np.datetime64(text, "s").astype(np.int64))


@pytest.mark.parametrize(
    ("shown", "utc"),
    [
        ("2017-10-01T12:00:00", "2017-10-01T19:00:00"),
        ("2017-11-05T00:59:59", "2017-11-05T07:59:59"),
        ("2017-11-05T01:30:00", "2017-11-05T08:30:00"),  # comes twice: the first
        ("2017-11-05T02:00:00", "2017-11-05T10:00:00"),
        ("2017-12-01T12:00:00", "2017-12-01T20:00:00"),
    ],
)
def test_the_west_coast_in_the_autumn_of_2017(shown: str, utc: str) -> None:
    assert from_wall_clock(np.array([instant(shown)]), "America/Los_Angeles").tolist() == [instant(utc)]


def test_of_an_hour_shown_twice_a_start_is_the_first_and_an_end_before_it_the_second() -> None:
    first, second = instant("2017-11-05T08:00:00"), instant("2017-11-05T09:00:00")
    shown = instant("2017-11-05T01:00:00")
    starts, ends = np.array([shown + 2400, shown + 600, np.nan]), np.array([shown + 1200, shown + 1200, shown])
    began_s, ended_s = spans(starts, ends, "America/Los_Angeles")
    assert began_s[:2].tolist() == [first + 2400, first + 600]
    assert ended_s.tolist() == [second + 1200, first + 1200, first]


@pytest.mark.parametrize(
    ("start", "end", "lasted_s"),
    [
        ("01:10:00", "01:40:00", 1800.0),
        ("01:40:00", "01:10:00", 1800.0),  # it ended in the second of the two hours
        ("01:30:00", "01:30:00", 0.0),
        ("00:30:00", "02:30:00", 3 * 3600.0),
    ],
)
def test_what_ran_while_an_hour_came_twice_lasted_as_long_as_it_did(start: str, end: str, lasted_s: float) -> None:
    began, ended = (np.array([instant(f"2017-11-05T{each}")]) for each in (start, end))
    began_s, ended_s = spans(began, ended, "America/Los_Angeles")
    assert (ended_s - began_s).tolist() == [lasted_s]


def test_unknown_stays_unknown() -> None:
    assert np.isnan(from_wall_clock(np.array([np.nan, 0.0]), "Asia/Shanghai")).tolist() == [True, False]


def test_a_zone_that_the_machine_does_not_know_is_named() -> None:
    with pytest.raises(InputError, match="Install the package tzdata"):
        from_wall_clock(np.zeros(1), "Mars/Olympus")
