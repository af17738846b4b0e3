"""A simulation held against what was recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import policy_named
from perdure.simulation.replay_error import FLOOR_S, replay_error
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("1x4")


def replayed(n: int = 40, seed: int = 0) -> tuple[JobTable, Result]:
    """Jobs whose recorded starts are those of their own simulation, and that."""
    rng = np.random.default_rng(seed)
    table = JobTable(
        job_id=np.arange(n).astype(str),
        submit_s=np.sort(rng.integers(0, 2000, n)).astype(np.float64),
        gpus=rng.integers(1, 5, n),
        duration_s=rng.integers(10, 900, n).astype(np.float64),
        partition=np.where(np.arange(n) % 2 == 0, "even", "odd"),
    )
    result = simulate(table, CLUSTER, policy_named("fifo"))
    return replace(table, start_s=result.start_s), result


def test_a_replay_of_its_own_schedule_is_without_error() -> None:
    error = replay_error(*replayed())
    assert error is not None
    assert (error.all.median_error_s, error.all.within_2x, error.all.started_alike) == (0, 1, 1)
    assert error.rank_correlation == pytest.approx(1)
    assert error.says.startswith("The replay is close to what was recorded: 100%")


def test_errors_are_those_of_the_waits_and_short_waits_count_as_a_minute() -> None:
    table, result = replayed(3)
    table = replace(table, submit_s=np.zeros(3), start_s=np.array([5.0, 600.0, 600.0]))
    error = replay_error(table, replace(result, start_s=np.array([50.0, 1200.0, 6000.0])))
    assert error is not None
    assert error.all.median_error_s == 600
    assert error.all.within_2x == pytest.approx(2 / 3)  # below a minute both; twice; ten times
    assert error.all.median_log10_error == pytest.approx(np.log10(2))
    assert FLOOR_S == 60


def test_where_most_jobs_never_wait_the_mean_wait_decides() -> None:
    """Nine of ten waits are alike, and jobs wait ten times as long in the mean."""
    table, result = replayed(10)
    waits = np.where(np.arange(10) == 0, 6000.0, 0.0)
    table = replace(table, start_s=table.submit_s + waits)
    error = replay_error(table, replace(result, start_s=table.submit_s + 10 * waits))
    assert error is not None
    assert error.says == (
        "The replay is far from what was recorded: 90% of the waits are within a factor of two, and jobs wait 1.7 h "
        "instead of 10.0 min in the mean. Do not decide by it."
    )
    half = replay_error(table, replace(result, start_s=table.submit_s + 3 * waits))
    assert half is not None
    assert half.says.startswith("The replay is only roughly what was recorded: 90%")
    assert half.says.endswith(
        "jobs wait 30.0 min instead of 10.0 min in the mean. Treat differences below 20.0 min as none."
    )
    assert half.closeness > error.closeness


def test_groups_add_up_to_all_jobs_and_jobs_without_start_are_counted_apart() -> None:
    table, result = replayed()
    table = replace(table, start_s=np.where(np.arange(40) < 4, np.nan, table.start_s))
    error = replay_error(table, result)
    assert error is not None
    assert (error.all.jobs, error.without_start) == (36, 4)
    for groups in (error.by_partition, error.by_gpus):
        assert sum(each.jobs for each in groups.values()) == 36
    assert set(error.by_partition) == {"even", "odd"}


def test_ranks_of_equal_waits_are_the_mean_of_their_places() -> None:
    table, result = replayed(4)
    table = replace(table, submit_s=np.zeros(4), start_s=np.array([0.0, 0.0, 600.0, 1200.0]))
    error = replay_error(table, replace(result, start_s=np.array([0.0, 600.0, 600.0, 1200.0])))
    assert error is not None
    assert error.rank_correlation == pytest.approx(3.75 / 4.5)  # of 1.5, 1.5, 3, 4 and 1, 2.5, 2.5, 4


def test_the_daily_use_is_that_of_jobs_with_a_recorded_start() -> None:
    """Three jobs on all GPUs, one after another; of the second no start is recorded, and the third comes at the end."""
    table = jobs((4, 0, 100), (4, 100, 100), (4, 200, 5), start_s=np.array([0.0, np.nan, 200.0]))
    error = replay_error(table, simulate(table, CLUSTER, policy_named("fifo")))
    assert error is not None
    assert [(day.recorded, day.simulated) for day in error.use_by_day] == [(0.5, 0.5)]


def test_waits_count_from_when_a_job_was_eligible() -> None:
    table, result = replayed(2)
    eligible = replace(
        table, submit_s=np.zeros(2), eligible_s=np.array([100.0, np.nan]), start_s=np.array([700.0, 600.0])
    )
    error = replay_error(eligible, replace(result, start_s=np.array([700.0, 600.0])))
    assert error is not None
    assert error.all.recorded_median_s == 600


def test_a_trace_without_starts_has_no_error() -> None:
    table, result = replayed()
    assert replay_error(replace(table, start_s=np.full(40, np.nan)), result) is None
