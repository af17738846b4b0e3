"""Apps that search: when their jobs are compared, which are stopped, how long it takes, and what their agents say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.profiles import SEARCHES
from perdure.scheduling.elastic import ElasticJob, Share
from perdure.scheduling.themis_agents import SearchAgent
from perdure.scheduling.themis_policy import Arbiter
from perdure.scheduling.tuning import TUNERS, App, Halving, SearchStage, search_s
from perdure.throughput.learned import LearnedJob
from tests.scheduling.ideal_speed import IdealSpeed


def job(left: float = 1.0, gpus: int = 1, alone_s: float = 900.0, *, rigid: bool = False) -> ElasticJob:
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    return ElasticJob(0.0, gpus, 30.0, 8, 1, nothing, 1.0, np.array([alone_s]), rigid, left, oracle=IdealSpeed())


def app(*jobs: ElasticJob, search: str = "halving") -> App:
    return App("a", TUNERS[search], dict(enumerate(jobs)), {row: float(row) for row in range(len(jobs))})


def test_each_search_that_a_trace_may_name_has_a_tuner() -> None:
    assert set(TUNERS) == set(SEARCHES)


def test_of_jobs_whose_models_are_worth_the_same_the_first_go_on() -> None:
    search = app(*(job(left=8 / 9) for _ in range(9)))
    search.score = dict.fromkeys(range(9), 1.0)
    assert sorted(search.stop()) == [3, 4, 5, 6, 7, 8]


def test_of_nine_three_go_on_after_a_ninth_and_one_after_a_third() -> None:
    search = app(*(job(left=8 / 9) for _ in range(9)))
    search.jobs[0].left = 0.95  # type: ignore[misc]
    assert search.stop() == []
    assert search.due() == [0]
    search.jobs[0].left = 8 / 9  # type: ignore[misc]
    assert sorted(search.stop()) == [0, 1, 2, 3, 4, 5]
    assert search.rung() == pytest.approx(1 / 3)
    for row in (6, 7, 8):
        search.jobs[row].left = 0.6  # type: ignore[misc]
    assert sorted(search.stop()) == [6, 7]
    assert search.going() == search.due() == [8]
    assert search.rung() == 1.0


def test_a_job_at_its_end_may_be_beaten_and_is_not_stopped() -> None:
    search = app(job(left=0.0), *(job(left=8 / 9) for _ in range(8)))
    assert sorted(search.stop()) == [1, 2, 3, 4, 5]
    assert 0 in search.lost


def test_until_the_first_is_done_all_go_on() -> None:
    search = app(job(), job(0.4), job(0.1), search="first")
    assert search.stop() == []
    search.jobs[2].left = 0.0  # type: ignore[misc]
    assert search.stop() == [0, 1]
    assert app(job(), job(0.0), search="all").stop() == []


@given(st.integers(1, 200), st.integers(2, 5))
def test_halving_ends_with_one_or_at_the_end_of_all_work(total: int, eta: int) -> None:
    tuner, going, rungs = Halving(eta), total, list[float]()
    while (rung := tuner.rung(total, going)) < 1.0:
        rungs.append(rung)
        assert 1 <= tuner.keeps(total, going) < going
        going = tuner.keeps(total, going)
    assert rungs == sorted(set(rungs))
    assert going <= max(1, -(-total // eta)) or not rungs


def test_stages_by_hand() -> None:
    nine = app(*(job() for _ in range(9)))
    assert np.array(nine.stages()) == pytest.approx(np.array([(100, 900), (200, 600), (600, 600)]))
    assert search_s(nine.stages(), 9) == pytest.approx(900)
    assert search_s(nine.stages(), 3) == pytest.approx(300 + 200 + 600)
    assert search_s(nine.stages(), 0) == np.inf
    first = app(job(alone_s=300.0), job(0.5), search="first")
    assert first.stages() == [SearchStage(300.0, 300.0)]
    assert app(job(), job(0.5, gpus=4), search="all").stages() == [SearchStage(900.0, 900 + 450 * 4)]


def test_an_agent_says_the_inverse_of_rho_of_the_whole_search() -> None:
    agent = SearchAgent(nine := app(*(job() for _ in range(9))), dict(nine.jobs), 0)  # type: ignore[arg-type]
    bid = agent.bid(500.0, 2.0, 12)
    assert bid[3] == pytest.approx(900 * 2 / (500 + 1100))
    assert bid[9] == bid[12] == pytest.approx(900 * 2 / (500 + 900))
    assert agent.rho(500.0, 2.0) == np.inf
    for row in (0, 1, 2):
        agent.there[row].share = Share(0, 1, 1)
    assert agent.rho(500.0, 2.0) == pytest.approx(1 / bid[3])


def test_those_that_run_go_on_and_those_past_the_comparison_wait() -> None:
    jobs = [job(), job(0.95), job(8 / 9), job()]
    jobs[3].share = Share(0, 1, 1)
    agent = SearchAgent(app(*jobs), dict(enumerate(jobs)), 0)
    assert agent.split(1) == {3: 1}
    assert agent.split(2) == {3: 1, 1: 1}
    assert agent.split(9) == {3: 1, 1: 1, 0: 1}
    assert agent.usable(9) == 3


@st.composite
def agents(draw: st.DrawFn) -> SearchAgent:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs = [
        job(float(rng.uniform(0.05, 1)), int(rng.integers(1, 5)), float(rng.uniform(50, 900)), rigid=rng.random() < 0.5)
        for _ in range(draw(st.integers(1, 9)))
    ]
    search = app(*jobs, search=draw(st.sampled_from(SEARCHES)))
    search.stop()
    return SearchAgent(search, {row: jobs[row] for row in search.going()}, 0)


@settings(deadline=None, max_examples=60)
@given(agents(), st.integers(0, 20))
def test_an_agent_keeps_to_what_it_is_given_and_gangs_whole(agent: SearchAgent, offered: int) -> None:
    counts = [agent.usable(gpus) for gpus in range(offered + 1)]
    assert all(before <= after <= before + offered for before, after in pairwise(counts))
    for gpus, count in enumerate(counts):
        given_ = agent.split(gpus)
        assert sum(given_.values()) == count <= gpus
        for row, has in given_.items():
            assert has == agent.there[row].asked_gpus or (
                has < agent.there[row].asked_gpus and not agent.there[row].rigid
            )
    assert (np.diff(agent.bid(100.0, 3.0, offered)) >= 0).all()


@settings(deadline=None, max_examples=40)
@given(st.lists(agents(), max_size=5), st.integers(0, 20))
def test_an_arbiter_gives_apps_no_more_than_there_is(found: list[SearchAgent], free: int) -> None:
    by_row = dict(enumerate(found))
    given_ = Arbiter(0.5).give(by_row, dict.fromkeys(by_row, 1.0), free, 60.0, np.random.default_rng(0))
    assert sum(given_.values()) <= free
    for row, gpus in given_.items():
        assert by_row[row].usable(gpus) == gpus


def test_of_four_two_go_on_and_then_one() -> None:
    four = app(*(job() for _ in range(4)))
    # 100 s of four jobs, 200 s of two and 600 s of one.
    assert [search_s(four.stages(), gpus) for gpus in (1, 2, 4)] == pytest.approx([1400, 1000, 900])
    for row in four.jobs:
        four.jobs[row].left = 8 / 9  # type: ignore[misc]
    assert sorted(four.stop()) == [0, 1]


def test_an_app_half_done_compares_with_all_that_it_would_take_alone() -> None:
    half = app(job(left=0.5), search="all")
    agent = SearchAgent(half, {0: job(left=0.5)}, 0)
    # 100 s are over and 450 left on its GPU; alone among two apps it would have taken twice 900.
    assert agent.bid(100.0, 2.0, 1)[1] == pytest.approx(2 * 900.0 / (100.0 + 450.0))
