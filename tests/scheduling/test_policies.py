"""What single policies promise, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.scheduling.drf import fill
from perdure.scheduling.maxmin import maxmin_shares
from perdure.scheduling.philly import Philly
from perdure.scheduling.policies import policy_named
from perdure.scheduling.tetris import alignment
from perdure.scheduling.view import View
from perdure.simulation.giving import PolicyError
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs

EIGHT = Cluster.parse("1x8")


def test_names_of_the_public_simulator_are_aliases() -> None:
    names = ["shortest", "shortest-gpu", "dlas", "dlas-gpu", "dlas-gpu-4", "dlas-gpu-gittins"]
    assert [policy_named(name).name for name in names] == ["srtf", "srsf", "las", "las-2d", "las-2d:4", "gittins-2d"]


@pytest.mark.parametrize("text", ["best", "las-2d:x", "fifo:1", "sjf:first", "dlas-gpu--1"])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        policy_named(text)


def test_dominant_shares_of_the_paper() -> None:
    assert fill(np.array([9.0, 18.0]), np.array([[1.0, 4.0], [3.0, 1.0]])).tolist() == [3, 2]


def test_alignment_by_hand() -> None:
    demand = np.array([[1.0, 3, 50], [4, 20, 100], [2, 40, 300], [9, 1, 1]])
    room = np.array([8.0, 64, 500])
    assert alignment(demand, room, room).tolist() == pytest.approx([0.271875, 1.0125, 1.475, -np.inf])


def test_maxmin_shares_fill_the_least_first() -> None:
    assert maxmin_shares([8, 1, 4], 8.0) == [3.5, 1.0, 3.5]
    assert maxmin_shares([1, 2], 8.0) == [1.0, 2.0]


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
    table = jobs((6, 0, 100), (8, 1, 10), (2, 2, 98), (2, 3, 98))
    found = simulate(table, EIGHT, "easy")
    assert found.start_s.tolist() == [0, 100, 2, 110]


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
