"""What single policies promise, and how they are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.scheduling.backfill import Forecast
from perdure.scheduling.draws import _mix, uniform
from perdure.scheduling.drf import DominantShare, fill
from perdure.scheduling.gittins import Steps, index_steps, public_steps
from perdure.scheduling.maxmin import UNIT, maxmin_shares
from perdure.scheduling.philly import Philly
from perdure.scheduling.policies import policy_named
from perdure.scheduling.tetris import alignment
from perdure.scheduling.view import View
from perdure.simulation.allocation import PolicyError
from perdure.simulation.simulate import Engine, simulate
from tests.simulation.tables import jobs

EIGHT = Cluster.parse("1x8")


def test_names_of_the_public_simulator_are_aliases() -> None:
    names = ["shortest", "shortest-gpu", "dlas", "dlas-gpu", "dlas-gpu-4", "dlas-gpu-gittins"]
    assert [policy_named(name).name for name in names] == ["srtf", "srsf", "las", "las-2d", "las-2d:4", "gittins-2d"]


@pytest.mark.parametrize("text", ["best", "las-2d:x", "fifo:1", "sjf:first", "dlas-gpu--1", "las-2d:1e6", "las:-0.5"])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        policy_named(text)


def test_dominant_shares_of_the_paper() -> None:
    assert fill(np.array([9.0, 18.0]), np.array([[1.0, 4.0], [3.0, 1.0]])).tolist() == [3, 2]


def test_whose_next_task_does_not_fit_leaves_the_rest_to_the_others() -> None:
    assert fill(np.array([10.0, 10.0]), np.array([[6.0, 0.0], [0.0, 1.0]])).tolist() == [1, 10]


def test_alignment_by_hand() -> None:
    demand = np.array([[1.0, 3, 50], [4, 20, 100], [2, 40, 300], [9, 1, 1]])
    room = np.array([8.0, 64, 500])
    assert alignment(demand, room, room).tolist() == pytest.approx([0.271875, 1.0125, 1.475, -np.inf])


def test_maxmin_shares_fill_the_least_first() -> None:
    assert (maxmin_shares(np.array([8, 1, 4]), 8) / UNIT).tolist() == [3.5, 1.0, 3.5]
    assert (maxmin_shares(np.array([1, 2]), 8) / UNIT).tolist() == [1.0, 2.0]


def test_equal_jobs_take_turns_in_the_order_of_arrival() -> None:
    found = simulate(jobs(*[(8, 0, 1000)] * 3), EIGHT, "maxmin")
    assert found.start_s.tolist() == [0, 360, 720]
    assert found.end_s.tolist() == [2440, 2800, 3160]


def test_who_weighs_three_times_as_much_gets_three_times_the_share() -> None:
    table = jobs(*[(1, 0, 100)] * 16, user=["a", "b"] * 8)
    for weights, shares in (({}, [4, 4]), ({"a": 3.0}, [6, 2]), ({"a": 0.5, "b": 1.5}, [2, 6])):
        first = simulate(table, EIGHT, DominantShare(weights)).start_s == 0
        assert [int(first[table.user == user].sum()) for user in "ab"] == shares


def test_philly_lends_and_takes_back() -> None:
    """b borrows all of a's quota; when a needs it, the last borrower to start makes room."""
    table = jobs((4, 0, 100), (4, 1, 100), (4, 10, 50), vc=["b", "b", "a"])
    found = simulate(table, EIGHT, Philly({"a": 4, "b": 4}))
    assert found.start_s.tolist() == [0, 1, 10]
    assert found.preempted.tolist() == [0, 1, 0]
    assert found.end_s.tolist() == [100, 151, 60]


def test_philly_preempts_nobody_while_gpus_are_left() -> None:
    table = jobs((3, 0, 100), (4, 1, 100), (4, 10, 50), vc=["b", "b", "a"])
    found = simulate(table, EIGHT, Philly({"a": 4, "b": 4}))
    assert found.preempted.tolist() == [0, 0, 0]


def test_easy_backfills_beside_the_reservation_only() -> None:
    """The second job is due at 100; one that ends by then passes it, one that ends later does not."""
    table = jobs((6, 0, 100), (8, 1, 10), (1, 2, 98), (1, 3, 98))
    found = simulate(table, EIGHT, "easy")
    assert found.start_s.tolist() == [0, 100, 2, 110]


def test_easy_gives_what_is_spare_at_the_reservation_to_those_alone_who_run_then() -> None:
    """At 100 the second job leaves two GPUs: the third is gone by then, so that the fourth may have them."""
    table = jobs((3, 0, 100), (6, 1, 10), (3, 2, 50), (2, 2, 500))
    found = simulate(table, EIGHT, "easy")
    assert found.start_s.tolist() == [0, 100, 2, 2]


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_easy_leaves_spare_gpus_to_those_who_outlast_the_reservation(engine: Engine) -> None:
    """The third job is gone when the second starts, so that it uses up none of the GPUs that are spare by then."""
    table = jobs((6, 0, 100), (8, 1, 100), (2, 2, 50), (2, 2, 500))
    assert simulate(table, Cluster.parse("1x10"), "easy", engine=engine).start_s.tolist() == [0, 100, 2, 2]


@pytest.mark.parametrize("engine", ["plain", "compiled"])
@pytest.mark.parametrize(("policy", "starts"), [("conservative", 42), ("conservative:replan", 101)])
def test_a_promise_is_kept_when_another_job_ends_early(policy: str, starts: int, engine: Engine) -> None:
    """The last job is promised 61. At 42 a job ends early: made anew, the wide job's promise takes that place."""
    table = jobs((3, 1, 60), (1, 2, 40), (4, 3, 40), (1, 3, 10), walltime_s=np.array([60.0, 80.0, 40.0, 20.0]))
    found = simulate(table, Cluster.parse("1x4"), policy, engine=engine)
    assert found.start_s.tolist()[3] == starts


@pytest.mark.parametrize("policy", ["easy", "conservative", "conservative:replan"])
def test_what_is_left_beside_a_reservation_is_given_once(policy: str) -> None:
    """Two GPUs are left beside the second job: one long job may have them, and not two."""
    table = jobs((4, 0, 100), (6, 1, 10), (2, 2, 500), (2, 2, 500))
    assert simulate(table, EIGHT, policy).start_s.tolist() == [0, 100, 2, 110]


def test_a_forecast_has_room_up_to_the_very_tick_of_the_next_reservation() -> None:
    forecast = Forecast(0, 4)
    forecast.reserve(5, 10, 4)
    assert [forecast.earliest(4, length) for length in (1, 5, 6)] == [0, 0, 15]
    forecast.add(7, 2)
    assert [forecast.earliest(2, length) for length in (5, 6)] == [0, 7]


def test_draws_depend_on_all_that_they_are_for() -> None:
    """The first number that SplitMix64 gives for the seed 0, and others for whatever else is asked for."""
    assert _mix(0) == 0xE220A8397B1DCDAF
    draws = {uniform(seed, row, what) for seed in range(5) for row in range(5) for what in range(-2, 3)}
    assert len(draws) == 125
    assert all(0 <= draw < 1 for draw in draws)


def test_a_policy_that_starts_what_does_not_wait_is_named() -> None:
    @dataclass(frozen=True)
    class Eager:
        name: str = "eager"
        preemptive: bool = False
        blocks: bool = False

        def ranking(self, view: View) -> EagerRanking:
            return EagerRanking()

    class EagerRanking:
        def arrive(self, row: int) -> None: ...

        def leave(self, row: int) -> None: ...

        def order(self) -> list[int]:
            return [1]

        def next_change(self) -> None:
            return None

    with pytest.raises(PolicyError, match=r"policy eager: its order names job j1, which does not wait\. "):
        simulate(jobs((1, 0, 1), (1, 5, 1)), EIGHT, Eager())


def test_a_plan_that_does_not_fit_is_named() -> None:
    @dataclass(frozen=True)
    class Dreamer:
        name: str = "dreamer"
        round_s: float = 10.0

        def planner(self, view: View) -> All:
            return All(view)

    @dataclass
    class All:
        view: View

        def arrive(self, row: int) -> None: ...

        def leave(self, row: int) -> None: ...

        def plan(self) -> list[int]:
            return list(self.view.waiting)

    with pytest.raises(PolicyError, match=r"policy dreamer: job j1 of its plan needs 8 GPUs more than there are\. "):
        simulate(jobs((8, 0, 1), (8, 0, 1)), EIGHT, Dreamer())


@pytest.mark.parametrize("steps", [index_steps, public_steps])
def test_an_index_changes_in_ticks_and_is_0_once_every_sample_is_passed(
    steps: Callable[[NDArray[np.float64], int, int], Steps],
) -> None:
    samples = np.array([10.0, 10.0, 40.0, 100.0])
    slow, fast = steps(samples, 30, 1), steps(samples, 30, 10)
    assert (slow.bounds.tolist(), fast.bounds.tolist()) == ([10, 40, 100], [100, 400, 1000])
    assert slow.ranks.tolist() == fast.ranks.tolist()
    assert [fast.at(ticks) for ticks in (99, 100)] == [slow.at(9), slow.at(10)]
    assert slow.at(39) > slow.at(100) == 0.0
