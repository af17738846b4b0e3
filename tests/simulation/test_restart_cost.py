"""What a preemption costs: by hand, as laws, and on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.simulation.metrics import summary
from perdure.simulation.restart_cost import FREE, PUBLISHED, RestartCost, restart_cost
from perdure.simulation.retry_hook import Again
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, tables, with_attempts

ONE = Cluster.parse("1x1")
ENGINES = pytest.mark.parametrize("engine", ["plain", "compiled"])


@ENGINES
def test_a_preempted_job_holds_its_gpu_for_the_restart_too(engine):
    """srtf: the long job is preempted at 10 and 20, each time by one of 5 s, and restarts for 7 s each time."""
    table = jobs((1, 0, 100), (1, 10, 5), (1, 20, 5))
    found = simulate(table, ONE, "srtf", cost=PUBLISHED, engine=engine)
    assert found.end_s.tolist() == [100 + 5 + 5 + 7 + 7, 15, 25]
    assert found.attempts.lost_s.tolist() == [0, 0, 14]
    figures = summary(table, found)
    assert (figures.preemptions, figures.restart_gpu_h, figures.utilisation) == (2, 14 / 3600, 1.0)
    assert figures.goodput == pytest.approx(110 / 124)
    assert figures.slowdown.p99 == 124 / 100


@ENGINES
def test_the_restart_counts_in_what_remains(engine):
    """With 10 s left and 30 s of restart, the first job yields to one of 35 s."""
    table = jobs((1, 0, 100), (1, 85, 5), (1, 86, 35))
    found = simulate(table, ONE, "srtf", cost=RestartCost((), 30.0), engine=engine)
    assert found.start_s.tolist() == [0, 85, 90]
    assert found.end_s.tolist() == [170, 90, 125]


@ENGINES
def test_a_further_attempt_begins_without_the_restarts_of_the_one_before(engine):
    rows = (1, 0, 200), (1, 10, 5)
    table = jobs(*rows, attempts=with_attempts(jobs(*rows), [[(100, False), (100, True)], [(5, True)]]))
    found = simulate(table, ONE, "srtf", retry=lambda _: Again(), cost=PUBLISHED, engine=engine)
    assert found.attempts.ran_s.tolist() == [5, 107, 100]
    assert found.attempts.lost_s.tolist() == [0, 7, 0]


@given(tables(attempts=True), st.sampled_from(["srtf", "las", "philly", "maxmin"]))
@settings(max_examples=40, deadline=None)
def test_gpu_time_is_work_and_restarts(table, policy):
    cost = RestartCost(((2, 3.0),), 7.0)
    found = simulate(table, Cluster.parse("1x8"), policy, cost=cost)
    log = found.attempts
    assert log.lost_s.sum() == float(found.preempted @ cost.of(table.gpus))
    worked_s = np.bincount(log.job, log.ran_s - log.lost_s, len(table))
    plain = simulate(table, Cluster.parse("1x8"), "fifo").attempts
    assert worked_s.tolist() == np.bincount(plain.job, plain.ran_s, len(table)).tolist()


def test_what_is_not_preempted_costs_nothing():
    table = jobs((1, 0, 100), (1, 10, 5))
    assert simulate(table, ONE, "fifo", cost=PUBLISHED).digest() == simulate(table, ONE, "fifo").digest()


def test_costs_as_they_are_written():
    assert restart_cost("30") == RestartCost((), 30.0)
    assert restart_cost("0") == FREE
    assert restart_cost("4:1.5, 9") == RestartCost(((4, 1.5),), 9.0)
    assert PUBLISHED.of(np.array([1, 8, 64])).tolist() == [7, 30, 60]


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "8:30", "8:30,1:7,60", "0:5,6", "1e9", "1:2:3,4"])
def test_what_is_no_cost_is_refused_in_one_line(text):
    with pytest.raises(InputError, match="is not a cost"):
        restart_cost(text)
