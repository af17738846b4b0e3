"""Sweeps: which cases there are, what is kept of them, and how jobs are made to come at a load."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.room import Shares
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import Setting, SweepCase, at_load, cases, check_names, sweep, verdicts
from perdure.traces.generate import generate
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("4x8")


def drawn(seed: int) -> JobTable:
    return generate(40, CLUSTER, 0.9, np.random.default_rng(seed))


def test_cases_are_all_combinations_in_order() -> None:
    found = cases(2, ["fifo", "srtf"], seeds=2)
    assert len(found) == len(set(found)) == 8
    assert found[:3] == [SweepCase(0, "fifo"), SweepCase(0, "fifo", seed=1), SweepCase(0, "srtf")]
    assert [case.trace for case in found] == [0] * 4 + [1] * 4


def test_schedules_are_kept_on_demand_only() -> None:
    (run,) = sweep([drawn(1)], Setting(CLUSTER), cases(1, ["fifo"]))
    assert run.result is None
    assert run.metrics.jobs == 40


def test_the_oracle_among_retries_is_a_bound_and_no_advice() -> None:
    runs = sweep([drawn(1)], Setting(CLUSTER, failures="philly"), cases(1, ["fjf"], ["never", "oracle"]))
    assert [each.is_bound for each in verdicts(runs)[0].standings] == [False, True]
    known = sweep([drawn(1)], Setting(CLUSTER), cases(1, ["fifo", "shortest", "tetris", "las", "sjf:skip"]))
    assert [each.is_bound for each in verdicts(known)[0].standings] == [False, True, True, False, True]


def test_the_seed_draws_the_places_of_a_placement_by_chance_and_of_no_other() -> None:
    def places(placement: str, seed: int) -> tuple[Shares, ...]:
        spans = simulate(drawn(1), CLUSTER, "fifo", placement, seed=seed, spans=True).spans
        assert spans is not None
        return spans.shares

    for placement, kinds in (("random", 4), ("best-fit", 1)):
        found = [places(placement, seed) for seed in range(4)]
        assert len(set(found)) == kinds
        assert found == [places(placement, seed) for seed in range(4)]


def test_names_are_looked_up_before_anything_is_run() -> None:
    for setting, policy in ((Setting(CLUSTER), "nonsense"), (Setting(CLUSTER, "nonsense"), "fifo")):
        with pytest.raises(ConfigError, match="'nonsense'"):
            check_names(setting, cases(1, ["fifo", policy]))


def test_a_load_is_gpu_time_asked_for_over_gpu_time_there_is() -> None:
    table = at_load(jobs((8, 100, 50), (16, 150, 75), (8, 400, 30)), CLUSTER, 0.5)
    asked = 8 * 50 + 16 * 75 + 8 * 30
    assert table.submit_s[0] == 100
    assert table.submit_s[-1] - 100 == asked / (32 * 0.5)
    assert table.submit_s[1] - 100 == round(asked / (32 * 0.5) / 6)


def test_jobs_that_all_come_at_once_have_no_load() -> None:
    with pytest.raises(InputError, match="all come at once"):
        at_load(jobs((1, 5, 10), (1, 5, 10)), CLUSTER, 0.5)
