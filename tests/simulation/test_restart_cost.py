"""What a preemption costs: by hand, as laws, and on both engines."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.metrics import summary
from perdure.simulation.restart_cost import FREE, PUBLISHED, RestartCost, restart_cost
from perdure.simulation.retry_hook import Again
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, tables, with_attempts

ONE = Cluster.parse("1x1")
EngineChoice = Literal["plain", "compiled"]
ENGINES = pytest.mark.parametrize("engine", ["plain", "compiled"])


@ENGINES
def test_a_preempted_job_holds_its_gpu_for_the_restart_too(engine: EngineChoice) -> None:
    """srtf: the long job is preempted at 10 and 30, each time by one of 5 s, and restarts for 7 s each time."""
    table = jobs((1, 0, 100), (1, 10, 5), (1, 30, 5))
    found = simulate(table, ONE, "srtf", cost=PUBLISHED, engine=engine)
    assert found.end_s.tolist() == [100 + 5 + 5 + 7 + 7, 15, 35]
    assert found.attempts.lost_s.tolist() == [0, 0, 14]
    figures = summary(table, found)
    assert (figures.preemptions, figures.restart_gpu_h, figures.utilisation) == (2, 14 / 3600, 1.0)
    assert figures.goodput == pytest.approx(110 / 124)
    assert figures.slowdown.p99 == 124 / 100


@ENGINES
def test_the_restart_counts_in_what_remains(engine: EngineChoice) -> None:
    """With 10 s left and 30 s of restart, the first job yields to one of 35 s."""
    table = jobs((1, 0, 100), (1, 85, 5), (1, 86, 35))
    found = simulate(table, ONE, "srtf", cost=RestartCost((), 30.0), engine=engine)
    assert found.start_s.tolist() == [0, 85, 90]
    assert found.end_s.tolist() == [170, 90, 125]


@ENGINES
def test_a_restart_that_was_cut_short_begins_again(engine: EngineChoice) -> None:
    """srtf: preempted at 10, the first job restarts from 15 to 20, and again, whole, from 25 to 55; 90 s were left."""
    table = jobs((1, 0, 100), (1, 10, 5), (1, 20, 5))
    found = simulate(table, ONE, "srtf", cost=RestartCost((), 30.0), engine=engine)
    assert found.end_s.tolist() == [145, 15, 25]
    assert found.attempts.lost_s.tolist() == [0, 0, 35]


@ENGINES
@pytest.mark.parametrize("compat", [None, "tiresias"])
def test_a_restart_is_no_service(engine: EngineChoice, compat: Literal["tiresias"] | None) -> None:
    """Queues end at 20 and 60 s of service. The first job sinks at 20; the second, come at 10, runs to 25. The first
    restarts until 55, and would have sunk in the midst of it; it reaches 60 s at 95, and then yields to the third.
    """
    table = jobs((1, 0, 100), (1, 10, 5), (1, 96, 30))
    options = PolicyOptions((20.0, 60.0), compat=compat)
    found = simulate(table, ONE, policy_named("las-2d", options), cost=RestartCost((), 30.0), engine=engine)
    assert found.end_s.tolist() == [195, 25, 126]
    assert found.attempts.lost_s.tolist() == [0, 0, 60]


@ENGINES
@pytest.mark.parametrize("policy", ["las-2d:0.5", "las-2d:2", "gittins-2d"])
def test_jobs_whose_restarts_are_longer_than_queues_do_not_preempt_each_other_for_ever(
    policy: str, engine: EngineChoice
) -> None:
    rng = np.random.default_rng(7)
    rows = [(int(rng.choice([1, 2, 4])), int(at), int(rng.integers(1, 60))) for at in range(30)]
    table = jobs(*rows)
    options = PolicyOptions((2.0, 6.0))
    found = simulate(
        table, Cluster.parse("1x4"), policy_named(policy, options), cost=RestartCost((), 50.0), engine=engine
    )
    assert found.preempted.sum() > 10
    assert (found.attempts.ran_s - found.attempts.lost_s).tolist() == table.duration_s[found.attempts.job].tolist()


@ENGINES
@pytest.mark.parametrize("restart_s", [360, 720, 1000])
def test_jobs_whose_restarts_take_whole_rounds_take_turns_all_the_same(restart_s: int, engine: EngineChoice) -> None:
    """Two jobs share one GPU in rounds of 360 s. One that restarts until the very end of a round works in the next."""
    table = jobs((1, 0, 2000), (1, 0, 2000))
    found = simulate(table, ONE, "maxmin", cost=RestartCost((), float(restart_s)), engine=engine)
    assert found.preempted.sum() > 1
    assert found.attempts.lost_s.sum() == restart_s * found.preempted.sum()


@ENGINES
def test_a_further_attempt_begins_without_the_restarts_of_the_one_before(engine: EngineChoice) -> None:
    rows = (1, 0, 200), (1, 10, 5)
    table = jobs(*rows, attempts=with_attempts(jobs(*rows), [[(100, False), (100, True)], [(5, True)]]))
    found = simulate(table, ONE, "srtf", retry=lambda _: Again(), cost=PUBLISHED, engine=engine)
    assert found.attempts.ran_s.tolist() == [5, 107, 100]
    assert found.attempts.lost_s.tolist() == [0, 7, 0]


@given(tables(attempts=True), st.sampled_from(["srtf", "las", "philly", "maxmin"]))
@settings(max_examples=40, deadline=None)
def test_gpu_time_is_work_and_restarts(table: JobTable, policy: str) -> None:
    cost = RestartCost(((2, 3.0),), 7.0)
    found = simulate(table, Cluster.parse("1x8"), policy, cost=cost)
    log = found.attempts
    assert log.lost_s.sum() <= float(found.preempted @ cost.of(table.gpus))  # one that was cut short begins again
    worked_s = np.bincount(log.job, log.ran_s - log.lost_s, len(table))
    plain = simulate(table, Cluster.parse("1x8"), "fifo").attempts
    assert worked_s.tolist() == np.bincount(plain.job, plain.ran_s, len(table)).tolist()


def test_what_is_not_preempted_costs_nothing() -> None:
    table = jobs((1, 0, 100), (1, 10, 5))
    assert simulate(table, ONE, "fifo", cost=PUBLISHED).digest() == simulate(table, ONE, "fifo").digest()


def test_costs_as_they_are_written() -> None:
    assert restart_cost("30") == RestartCost((), 30.0)
    assert restart_cost("0") == FREE
    assert restart_cost("4:1.5, 9") == RestartCost(((4, 1.5),), 9.0)
    assert PUBLISHED.of(np.array([1, 8, 64])).tolist() == [7, 30, 60]


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "8:30", "8:30,1:7,60", "0:5,6", "1e9", "1:2:3,4"])
def test_what_is_no_cost_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="is not a cost"):
        restart_cost(text)
