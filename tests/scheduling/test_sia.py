"""Sia's round: the paper's table, the optimum of every choice on small cases, and what every choice keeps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy import typing
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult

from perdure.scheduling import sia
from perdure.scheduling.sia import NOT_RUN, Configurations, choose, normalised, restart_factor


@pytest.mark.parametrize("name", ["sia-ilp-p1.0", "sia-ilp-p-0.5"])
def test_the_papers_table(hand_cases: dict[str, Any], name: str) -> None:
    given_, wanted = hand_cases[name]["input"], hand_cases[name]["expected"]
    types = sorted(given_["capacity"])
    rows = [(nodes, gpus, types.index(kind)) for nodes, gpus, kind in given_["configs_nodes_gpus_type"]]
    capacity = np.array([given_["capacity"][kind] for kind in types])
    matrix = np.array(given_["goodput_matrix"], float)
    found = choose(matrix, Configurations(*np.array(rows).T), capacity, given_["lambda_"], given_["p"])
    assert found.objective == pytest.approx(wanted["objective"], rel=1e-12)
    assert [given_["configs_nodes_gpus_type"][config] for config in found.config] == wanted["choice"]


def test_restart_factor_by_hand(hand_cases: dict[str, Any]) -> None:
    case = hand_cases["sia-restart-factor"]
    age, restarts, cost = (np.array(case["input"][name], float) for name in ("T", "N", "S"))
    assert float(restart_factor(age, restarts.astype(int), cost)) == pytest.approx(case["expected"]["r"], rel=1e-15)


def test_restart_factor_of_the_young_and_of_those_that_only_restart() -> None:
    assert restart_factor(np.array([10.0, 60.0]), np.array([0, 5]), np.array([30.0, 30.0])).tolist() == [1.0, 0.0]


def test_configurations_of_nodes_whose_size_is_no_power_of_two() -> None:
    found = Configurations.of_cluster(np.array([2]), np.array([6]))
    assert found.gpus.tolist() == [1, 2, 4, 6, 12]


def test_the_lowest_goodput_of_a_job_becomes_its_fewest_gpus() -> None:
    goodput = np.array([[30.0, 60.0, np.nan], [np.nan, np.nan, np.nan]])
    rows = normalised(goodput, np.array([2, 1]))
    assert rows[0, :2].tolist() == [2.0, 4.0]
    assert np.isnan(rows[0, 2])
    assert np.isnan(rows[1]).all()


@st.composite
def rounds(
    draw: st.DrawFn,
) -> tuple[typing.NDArray[np.float64], Configurations, typing.NDArray[np.signedinteger], float, float]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, p = draw(st.integers(1, 4)), draw(st.sampled_from([-1.0, -0.5, 0.5, 1.0]))
    configs = Configurations.of_cluster(np.array([2, 1]), np.array([2, 4]))
    goodput = rng.uniform(0.5, 8.0, (jobs, len(configs.gpus)))
    goodput[rng.random(goodput.shape) < 0.2] = np.nan
    return goodput, configs, rng.integers(0, 5, 2), draw(st.sampled_from([0.0, 1.1, 3.0])), p


def objective(
    goodput: typing.NDArray[np.float64],
    picked: typing.NDArray[np.signedinteger] | tuple[Any, ...],
    lambda_: float,
    p: float,
) -> Any:
    run = [goodput[job, config] ** p for job, config in enumerate(picked) if config != NOT_RUN]
    return sum(run) + (lambda_ if p < 0 else -lambda_) * (len(picked) - len(run))


def used(
    configs: Configurations, picked: typing.NDArray[np.signedinteger] | tuple[Any, ...]
) -> NDArray[np.signedinteger] | NDArray[np.float64]:
    run = [config for config in picked if config != NOT_RUN]
    return np.bincount(configs.gpu_type[run], weights=configs.gpus[run], minlength=2) if run else np.zeros(2)


@pytest.mark.parametrize("counted", [sia.MOST_COUNTED, -1], ids=["counted out", "branched"])
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=rounds())
def test_no_other_choice_is_better(
    case: tuple[typing.NDArray[np.float64], Configurations, typing.NDArray[np.signedinteger], float, float],
    counted: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All choices of up to four jobs, counted out."""
    monkeypatch.setattr(sia, "MOST_COUNTED", counted)
    goodput, configs, capacity, lambda_, p = case
    found = choose(goodput, configs, capacity, lambda_, p)
    assert (used(configs, found.config) <= capacity).all()
    assert found.objective == pytest.approx(objective(goodput, found.config, lambda_, p))
    options = [[NOT_RUN, *np.flatnonzero(row > 0)] for row in goodput]
    every = [
        objective(goodput, picked, lambda_, p)
        for picked in itertools.product(*options)
        if (used(configs, picked) <= capacity).all()
    ]
    best = min(every) if p < 0 else max(every)
    assert found.objective == pytest.approx(best, rel=2e-4, abs=1e-6)


@given(rounds())
@settings(deadline=None, max_examples=10)
def test_asked_twice_it_chooses_the_same(
    case: tuple[typing.NDArray[np.float64], Configurations, typing.NDArray[np.signedinteger], float, float],
) -> None:
    first, second = (choose(*case) for _ in range(2))
    assert first.config.tolist() == second.config.tolist()


def test_out_of_time_a_choice_that_fits_is_made_and_says_that_it_may_not_be_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sia, "linprog", lambda *_, **__: OptimizeResult(success=False))
    monkeypatch.setattr(sia, "_branch", lambda *_: (None, np.inf))
    rng = np.random.default_rng(0)
    configs = Configurations.of_cluster(np.array([4, 2]), np.array([4, 8]))
    goodput = rng.uniform(1, 9, (20, len(configs.gpus)))
    found = choose(goodput, configs, np.array([16, 16]))
    assert (used(configs, found.config) <= [16, 16]).all()
    assert (found.config != NOT_RUN).any()
    assert found.gap == np.inf


def test_jobs_that_fit_nowhere_are_not_run() -> None:
    configs = Configurations.of_cluster(np.array([1]), np.array([2]))
    found = choose(np.full((2, 2), np.nan), configs, np.array([2]))
    assert found.config.tolist() == [NOT_RUN, NOT_RUN]


@pytest.mark.parametrize(("near", "counted"), [(sia.NEAR, -1), (0.0, -1), (0.0, 10_000), (np.inf, 10_000)])
def test_however_few_columns_are_looked_at_the_choice_is_as_good(
    near: float, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    configs = Configurations.of_cluster(np.array([10, 6]), np.array([4, 8]))
    goodput = rng.uniform(1, 3, (60, 1)) * configs.gpus ** rng.uniform(0.5, 0.98, (60, 1))
    capacity = np.array([40, 48])
    whole = choose(goodput, configs, capacity)
    monkeypatch.setattr(sia, "MOST_COUNTED", counted)
    monkeypatch.setattr(sia, "NEAR", near)
    found = choose(goodput, configs, capacity)
    assert found.objective == pytest.approx(whole.objective, rel=2e-4)
    assert found.gap <= 2e-4
    assert (used(configs, found.config) <= capacity).all()


@pytest.mark.parametrize("seed", [77, 112, 183])
def test_a_choice_that_was_proven_says_so_though_its_sum_is_rounded_otherwise(seed: int) -> None:
    """The same jobs added up in another order may be a rounding more: no solver has run out of time."""
    rng = np.random.default_rng(seed)
    configs = Configurations.of_cluster(np.array([6, 2, 3]), np.array([4, 8, 8]))
    slopes = rng.uniform(0.5, 1, size=(3, 1))
    rows = [configs.gpus.astype(float) ** slopes[rng.integers(3), 0] for _ in range(30)]
    scale = rng.choice([1.0, 0.7, 1.3], size=(30, 1)) * rng.uniform(0.9, 1, size=(30, 1))
    assert choose(np.array(rows) * scale, configs, np.array([24, 16, 24])).gap <= sia.GAP


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=6
    ),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
def test_of_choices_that_cost_the_same_one_with_fewest_gpus_is_taken(
    columns: list[tuple[int, int, int, int]], prices: list[int]
) -> None:
    """Against all choices; prices are of three jobs and two types."""
    job, gpus, kind, above = np.array(columns).T
    capacity = np.array([3, 2])
    program = sia._RoundProgram(above.astype(float), job, gpus, kind, 3, capacity)
    costs = dict[tuple[int, ...], tuple[int, int]]()
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(len(job)), n) for n in range(4)):
        taken = np.array(chosen, int)
        left = capacity - np.bincount(kind[taken], weights=gpus[taken], minlength=2).astype(int)
        if len({*job[taken]}) == len(taken) and (left >= 0).all():
            waiting = sum(prices[each] for each in range(3) if each not in job[taken])
            costs[chosen] = int(above[taken].sum() + waiting + left @ prices[3:]), int(gpus[taken].sum())
    found = sia._counted(program, np.arange(len(job)), above.astype(float), np.array(prices, float), 100.0)
    assert found is not None
    assert costs[tuple(sorted(found.tolist()))] == min(costs.values())
