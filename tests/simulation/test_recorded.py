"""The recorded schedule beside simulated ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import Attempts
from perdure.simulation.metrics import summary
from perdure.simulation.recorded import AS_IT_WAS, as_recorded
from perdure.simulation.replay_error import replay_error
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import as_it_was
from perdure.simulation.use import DAY_S
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("1x4")


def test_a_schedule_that_was_recorded_has_the_figures_that_it_had_when_it_was_made() -> None:
    table = jobs((4, 0, 10), (1, 0, 20), (2, 5, 30), (4, 9, 1))
    made = simulate(table, CLUSTER, "fifo")
    recorded = as_recorded(replace(table, start_s=made.start_s, end_s=made.end_s), CLUSTER.total_gpus)
    assert recorded is not None
    was, expected = summary(*recorded), summary(table, made)
    assert replace(was, events=0) == replace(expected, events=0)


def test_jobs_without_a_recorded_start_are_left_out_and_without_any_there_is_no_row() -> None:
    table = jobs((1, 0, 10), (1, 0, 10))
    assert as_it_was([table], CLUSTER) == []
    (run,) = as_it_was([replace(table, start_s=np.array([np.nan, 7.0]))], CLUSTER)
    assert (run.case.policy, run.metrics.jobs, run.metrics.wait_s.mean, run.metrics.jct_s.mean) == (AS_IT_WAS, 1, 7, 17)


def test_an_end_that_is_recorded_before_the_start_is_the_start() -> None:
    table = replace(jobs((1, 0, 10)), start_s=np.array([7.0]), end_s=np.array([3.0]))
    found = as_recorded(table, CLUSTER.total_gpus)
    assert found is not None
    assert found[1].end_s.tolist() == [7.0]


def test_attempts_between_the_recorded_start_and_end_share_the_time_by_how_long_they_ran() -> None:
    attempts = Attempts(np.array([0, 2]), np.array([10.0, 30.0]), np.array([False, True]))
    table = replace(jobs((2, 0, 40)), attempts=attempts)
    table = replace(table, start_s=np.array([20.0]), end_s=np.array([100.0]))
    recorded = as_recorded(table, 4)
    assert recorded is not None
    log = recorded[1].attempts
    assert (log.start_s.tolist(), log.end_s.tolist()) == ([20, 40], [40, 100])
    assert (recorded[1].busy_gpu_s, recorded[1].passed.tolist()) == (80, [True])


def test_the_use_of_each_day_is_recorded_and_simulated_use_over_what_there_is() -> None:
    half = DAY_S / 2
    table = jobs((4, 0, half), (4, 0, half), (1, 2 * DAY_S, 1))
    simulated = simulate(table, CLUSTER, "fifo")  # all of the first day is in use, and nothing of the second
    error = replay_error(replace(table, start_s=np.array([0, DAY_S, 2 * DAY_S])), simulated)
    assert error is not None
    assert [day.day for day in error.use_by_day] == [0, 1]
    assert [day.recorded for day in error.use_by_day] == pytest.approx([0.5, 0.5])
    assert [day.simulated for day in error.use_by_day] == pytest.approx([1, 0])
    assert error.use_error == pytest.approx(0.5)
