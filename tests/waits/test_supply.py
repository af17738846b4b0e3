"""A partition's processors as far as looks tell of them, and what stands before a job in hours of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.waits.supply import LONGEST_H, Supply
from perdure.waits.table import WaitTable

NAMES = (
    "cpus", "running_cpus_partition", "running_cpu_h_partition", "pending_jobs_partition", "pending_cpus_partition",
    "pending_cpu_h_partition",
)  # fmt: skip


def looks(*rows: dict[str, Any]) -> WaitTable:
    """Looks, each by its partition and what is told of it; the rest is not known."""
    n = len(rows)
    features = np.array([[row.get(name, np.nan) for name in NAMES] for row in rows], np.float32).reshape(n, len(NAMES))
    partition = np.array([row.get("partition", 0) for row in rows], np.int64)
    zero = np.zeros(n)
    return WaitTable(np.arange(n), zero, zero, np.full(n, np.nan), zero, partition, partition, features, NAMES)


shares = st.integers(0, 1000)
seen = st.lists(
    st.fixed_dictionaries({"partition": st.integers(0, 3), "cpus": shares, "running_cpus_partition": shares}),
    min_size=1, max_size=12,
)  # fmt: skip


@given(seen)
def test_a_partition_has_the_most_that_was_ever_seen_at_work_or_asked_for_there(rows: list[dict[str, Any]]) -> None:
    supply = Supply.of(looks(*rows))
    for partition, cpus in zip(supply.partitions.tolist(), supply.cpus.tolist(), strict=True):
        its = [row for row in rows if row["partition"] == partition]
        assert cpus == max(1, *(row["cpus"] for row in its), *(row["running_cpus_partition"] for row in its))


@given(seen)
def test_shares_of_a_partition_are_between_none_and_all_of_it(rows: list[dict[str, Any]]) -> None:
    table = looks(*rows)
    demand = Supply.of(table).before(table)
    for share in (demand.wanted, demand.running):
        assert ((share >= 0) & (share <= 1)).all()
    assert (demand.cpus >= 1).all()
    assert (demand.until_free_h() >= 0).all()


def test_a_partition_that_was_never_seen_has_as_many_as_the_middle_one() -> None:
    supply = Supply.of(looks({"partition": 1, "cpus": 10}, {"partition": 2, "cpus": 20}, {"partition": 3, "cpus": 90}))
    assert supply.before(looks({"partition": 7})).cpus.tolist() == [20.0]
    assert Supply.of(looks()).before(looks({"partition": 7, "cpus": 5})).cpus.tolist() == [5.0]


def test_the_work_ahead_is_counted_in_hours_of_the_whole_partition() -> None:
    supply = Supply.of(looks({"cpus": 100}))
    (row,) = [{"cpus": 50, "pending_jobs_partition": 3, "pending_cpus_partition": 200, "pending_cpu_h_partition": 400}]
    demand = supply.before(looks(row))
    assert (demand.ahead_jobs[0], demand.ahead[0], demand.ahead_h[0], demand.wanted[0]) == (3, 2.0, 4.0, 0.5)


@pytest.mark.parametrize(
    ("running", "hours", "expected"), [(0, 0, 0.0), (50, 100, 0.0), (100, 200, 2.0), (75, 150, 4 / 3)]
)
def test_enough_is_free_once_those_that_run_have_ended_evenly(running: int, hours: int, expected: float) -> None:
    """Of 100 processors 50 are wanted; those in use have `hours` in all until their limits."""
    supply = Supply.of(looks({"cpus": 100}))
    demand = supply.before(looks({"cpus": 50, "running_cpus_partition": running, "running_cpu_h_partition": hours}))
    assert demand.until_free_h()[0] == pytest.approx(expected)


def test_a_limit_beyond_a_month_is_a_slip_of_the_source() -> None:
    look = {"cpus": 1, "running_cpus_partition": 1, "running_cpu_h_partition": 1e9}
    assert Supply.of(looks(look)).before(looks(look)).left_h.tolist() == [LONGEST_H]
