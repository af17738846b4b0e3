"""Tables that no simulation takes: the first job that is wrong is named, and what is wrong with it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, with_attempts

LONG = 1e12
GOOD = (1, 0, 10)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((1, math.nan, 10), "its submit time is not a number"),
        ((1, math.inf, 10), "its submit time is not a number"),
        ((1, LONG, 10), "its submit time is too large"),
        ((1, 5, math.nan), "its running time is not a number"),
        ((1, 5, math.inf), "its running time is not a number"),
        ((1, 5, LONG), "its running time is too large"),
        ((1, 5, -1), "its running time is negative"),
        ((0, 5, 10), "it asks for no GPU"),
        ((-1, 5, 10), "it asks for no GPU"),
        ((1, -1, 10), "it was submitted before the job above it"),
    ],
)
def test_the_job_that_is_wrong_is_named(row: tuple[float, float, float], what: str) -> None:
    table = jobs(GOOD, row, (1, LONG, 10) if row[1] == LONG else (1, 9, 10))
    with pytest.raises(InputError) as refused:
        simulate(table, Cluster.parse("1x4"), "fifo")
    assert str(refused.value).startswith(f"job {table.job_id[1]}: {what}")


@pytest.mark.parametrize("eligible_s", [math.inf, -math.inf, LONG, -LONG])
def test_an_instant_that_no_clock_shows_is_not_taken_for_an_early_one(eligible_s: float) -> None:
    table = jobs(GOOD, (1, 5, 10), (1, 9, 10), eligible_s=np.array([math.nan, eligible_s, 9.0]))
    with pytest.raises(InputError, match=f"job {table.job_id[1]}: its eligible time is too large"):
        simulate(table, Cluster.parse("1x4"), "fifo")


@pytest.mark.parametrize("took_s", [math.nan, -1.0, LONG, math.inf])
def test_the_job_of_an_attempt_without_a_running_time_is_named(took_s: float) -> None:
    rows = (GOOD, (1, 5, 10), (1, 9, 10))
    lists = [[(10.0, True)], [(3.0, False), (took_s, True)], []]
    table = jobs(*rows, attempts=with_attempts(jobs(*rows), lists))
    with pytest.raises(InputError, match=f"job {table.job_id[1]}: an attempt has no running time"):
        simulate(table, Cluster.parse("1x4"), "fifo")


def test_a_job_that_takes_no_time_and_one_that_comes_with_the_one_above_are_taken() -> None:
    table = jobs(GOOD, (1, 0, 0), (1, 0, 10))
    assert simulate(table, Cluster.parse("1x4"), "fifo").start_s.tolist() == [0.0, 0.0, 0.0]
