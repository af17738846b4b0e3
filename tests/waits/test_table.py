"""Looks at waiting jobs: what was known when, and features that know no future."""

from dataclasses import replace

import numpy as np
import pytest

from perdure.model.queue_looks import STATE
from perdure.waits import checks, features
from perdure.waits.ahead import WorkAhead, work_ahead
from perdure.waits.features import DAY_S, wait_table
from perdure.waits.table import WaitTable

NOON = DAY_S / 2


def table_of(polls: list[float], starts: list[float], seen_until_s: list[float] | None = None) -> WaitTable:
    poll_s, start_s = np.array(polls, float), np.array(starts, float)
    n = len(poll_s)
    until = np.where(np.isfinite(start_s), start_s, poll_s) if seen_until_s is None else np.array(seen_until_s, float)
    zeros = np.zeros(n, np.int64)
    return WaitTable(
        np.arange(n), poll_s, poll_s - 9, start_s, until, zeros, zeros, np.zeros((n, 1), np.float32), ("a",)
    )


def test_a_start_later_than_now_is_a_wait_that_goes_on() -> None:
    known = table_of([0, 0, 0], [50, 200, np.nan], [50, 200, 300]).known_at(100)
    assert known.started.tolist() == [True, False, False]
    assert known.waited_s.tolist() == [50, 100, 100]


def test_a_job_looked_at_just_now_is_no_evidence() -> None:
    table = table_of([0, 100, 100], [np.nan, np.nan, 100])
    table = replace(table, seen_until_s=np.array([100.0, 100.0, 100.0]))
    assert table.evidence_at(100).job.tolist() == [0, 2]


def test_a_look_later_than_now_is_not_known() -> None:
    assert table_of([0, 101], [50, 150]).known_at(100).job.tolist() == [0]


def test_what_is_known_does_not_shrink() -> None:
    table = checks.example()
    early, late = table.known_at(5 * DAY_S), table.known_at(9 * DAY_S).known_at(5 * DAY_S)
    assert np.array_equal(early.start_s, late.start_s, equal_nan=True)
    assert np.array_equal(early.seen_until_s, late.seen_until_s)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        replace(table_of([0, 0], [1, 1]), account=np.zeros(1, np.int64))


def test_a_feature_that_the_table_lacks_is_unknown() -> None:
    assert np.isnan(table_of([0], [1]).columns(("b", "a"))[:, 0]).all()


@pytest.mark.parametrize("day", [0, 3, 8])
def test_no_feature_knows_the_future(day: int) -> None:
    """Whatever happens after a look, every feature of it stays."""
    looks = checks.made_up_looks(days=10)
    now = day * DAY_S + NOON
    with np.errstate(invalid="ignore"):
        later = ~(looks.start_s <= now)
    rows, after = np.flatnonzero(looks.poll_s <= now), looks.poll_s > now
    other = replace(
        looks,
        start_s=np.where(later, np.nan, looks.start_s),
        seen_until_s=np.where(later, 1e9, looks.seen_until_s),
        cpus=np.where(after, 999.0, looks.cpus),
        priority=np.where(after, 0.5, looks.priority),
        partition=np.where(after, 77, looks.partition),
    )
    one, two = wait_table(looks).features[rows], wait_table(other).features[rows]
    odd = {n for n, a, b in zip(features.NAMES, one.T, two.T, strict=True) if not np.array_equal(a, b, equal_nan=True)}
    assert not odd


def test_a_wait_that_ends_before_the_look_is_known_to_it() -> None:
    """The check above would pass for features that know nothing: they do know the past."""
    looks = checks.made_up_looks(days=3)
    longer = replace(looks, start_s=np.where(looks.poll_s == NOON, looks.start_s + 600, looks.start_s))
    one, two = (wait_table(each).feature("wait_recent_all")[looks.poll_s > NOON][0] for each in (looks, longer))
    assert one < two


def test_work_ahead_is_that_of_a_higher_priority() -> None:
    looks = checks.made_up_looks(days=1, jobs=4)
    looks = replace(
        looks, priority=np.array([3.0, 2.0, 2.0, 1.0]), cpus=np.array([1.0, 2, 4, 8]), partition=np.array([0, 0, 1, 0]),
        account=np.zeros(4, np.int64),
    )  # fmt: skip
    table = wait_table(looks)
    assert table.feature("pending_jobs").tolist() == [0, 1, 1, 3]
    assert table.feature("pending_cpus").tolist() == [0, 1, 1, 7]
    assert table.feature("pending_cpus_partition").tolist() == [0, 1, 0, 3]


def test_running_work_is_counted_for_a_live_queue() -> None:
    looks = checks.made_up_looks(days=1, jobs=2)
    asked = replace(WorkAhead.of(looks), priority=np.array([1.0, 3.0]), partition=np.array([0, 1]))
    running = replace(asked, priority=np.array([2.0, 5.0]), cpus=np.array([4.0, 8.0]), hours=np.array([0.5, 2.0]))
    found = work_ahead(asked, running, "running")
    assert found["running_cpus"].tolist() == [12, 8]
    assert found["running_cpu_h_partition"].tolist() == [2, 16]
    assert set(found) == {name for name in STATE if name.startswith("running")}


def test_a_queue_in_which_nobody_waits_is_an_empty_table() -> None:
    looks = checks.made_up_looks(days=0)
    assert wait_table(looks).features.shape == (0, len(features.NAMES))


def test_what_the_source_counted_is_taken() -> None:
    looks = checks.made_up_looks(days=1, jobs=3)
    counted = replace(looks, state={"pending_jobs": np.array([5.0, 6, 7])})
    assert wait_table(counted).feature("pending_jobs").tolist() == [5, 6, 7]
    with pytest.raises(ValueError, match="no state"):
        replace(looks, state={"pending_dreams": np.zeros(3)})


def test_names_and_columns_agree() -> None:
    table = checks.example()
    assert table.names == features.NAMES
    assert table.features.shape == (len(table), len(features.NAMES))
    assert np.isfinite(table.feature("weekday")).all()
    assert table.feature("weekday")[0] == 0  # day zero of the example is a Monday
