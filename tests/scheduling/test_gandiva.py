"""Gandiva: where jobs live, whose turn it is, who shares, moves, makes room, grows and shrinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan
from perdure.scheduling.gandiva import Gandiva, Home, Homes
from perdure.throughput.colocation import Colocation
from perdure.throughput.learned import LearnedJob


@dataclass
class Scales:
    """Twice as fast on twice the GPUs, up to `most`."""

    most: int = 8

    def step_s(self, _gpu_type: int, gpus: int) -> float:
        return 1.0 / min(gpus, self.most)

    def steps_left(self) -> float:
        return 1e6

    def most_gpus(self) -> int:
        return 8


def job(gpus: int = 1, submit_s: float = 0.0, *, rigid: bool = True, most: int = 8, kind: str = "net") -> ElasticJob:
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    return ElasticJob(
        submit_s, gpus, 30.0, 8, 1, nothing, 1.0, np.ones(1), rigid, oracle=Scales(most), application=kind
    )


@dataclass
class Cluster:
    """One GPU type under a policy, whose jobs run as fast as `pairs` and their oracle say."""

    policy: Gandiva
    view: ElasticView

    @classmethod
    def of(cls, nodes: int, size: int, jobs: dict[int, ElasticJob], pairs: Colocation | None = None) -> Cluster:
        view = ElasticView((GpuType("t4", nodes, size),), jobs, 0.0, [0], pairs or Colocation())
        return cls(Gandiva(), view)

    def round(self, count: int = 1) -> Plan:
        """The plan of the last of so many rounds."""
        plan: Plan = {}
        for _ in range(count):
            self.view.now_s += 60.0
            plan = self.policy.plan(self.view)
            for row, each in self.view.jobs.items():
                each.share = plan.get(row)
                if each.share is not None:
                    assert each.oracle is not None
                    kept = 1.0
                    if each.share.shared_with is not None:
                        other = self.view.jobs[each.share.shared_with].application
                        kept = self.view.pairs.kept("t4", each.share.gpus, each.share.nodes, each.application, other)
                    each.steps_per_s = kept / each.oracle.step_s(0, each.share.gpus)
        return plan

    def without(self, row: int) -> None:
        self.view.jobs = {each: job for each, job in self.view.jobs.items() if each != row}


def paired(kept: float) -> Colocation:
    return Colocation({("t4", gpus, True, "net", "net"): kept for gpus in (1, 2, 4)})


def test_a_job_lives_where_fewest_do_and_beside_jobs_of_its_size() -> None:
    homes = Homes([GpuType("t4", 3, 4)])
    homes.settle(0, Home(0, ((0, 0),)))
    homes.settle(1, Home(0, ((1, 0), (1, 1))))
    assert homes.find(1, [0]) == Home(0, ((0, 1),))
    assert homes.find(2, [0]) == Home(0, ((1, 2), (1, 3)))
    assert homes.find(4, [0]) == Home(0, ((2, 0), (2, 1), (2, 2), (2, 3)))
    assert homes.find(8, [0]).nodes() == {0, 1, 2}
    assert homes.find(13, [0]) is None


def test_a_job_that_finds_no_idle_node_spreads_over_idle_gpus() -> None:
    homes = Homes([GpuType("t4", 2, 2)])
    homes.settle(0, Home(0, ((0, 0),)))
    homes.settle(1, Home(0, ((1, 0),)))
    assert homes.find(2, [0]) == Home(0, ((0, 1), (1, 1)))


def test_jobs_of_one_home_take_turns_of_a_round() -> None:
    cluster = Cluster.of(1, 1, {row: job() for row in range(3)}, paired(0.0))
    turns = [list(cluster.round()) for _ in range(6)]
    assert turns == [[0], [1], [2], [0], [1], [2]]


def test_a_gang_gets_its_turn_among_single_gpus() -> None:
    cluster = Cluster.of(1, 2, {0: job(), 1: job(), 2: job(2)})
    turns = [sorted(cluster.round()) for _ in range(4)]
    assert turns == [[0, 1], [2], [0, 1], [2]]


def test_two_that_gain_together_stay_together() -> None:
    cluster = Cluster.of(1, 1, {0: job(), 1: job()}, paired(0.8))
    plans = [cluster.round() for _ in range(5)]
    assert [sorted(plan) for plan in plans[:2]] == [[0], [1]]  # each is seen alone first
    assert all(sorted(plan) == [0, 1] for plan in plans[2:])
    assert plans[-1][0].shared_with == 1


def test_two_that_lose_together_part_and_are_not_tried_again() -> None:
    cluster = Cluster.of(1, 1, {0: job(), 1: job()}, paired(0.5))
    plans = [sorted(cluster.round()) for _ in range(8)]
    assert plans.count([0, 1]) == 1
    assert sorted(map(str, plans[-4:])) == ["[0]", "[0]", "[1]", "[1]"]


def test_what_was_seen_of_a_pair_holds_for_others_of_its_kinds() -> None:
    cluster = Cluster.of(1, 1, {row: job() for row in range(4)}, paired(0.5))
    plans = [sorted(cluster.round()) for _ in range(12)]
    assert sum(len(plan) == 2 for plan in plans) <= 2  # two pairs at most were begun before the first was seen


def test_what_was_seen_of_a_pair_holds_for_its_kinds_in_the_other_order() -> None:
    pairs = Colocation({("t4", 1, True, *names): 0.4 for names in (("a", "b"), ("b", "a"))})
    cluster = Cluster.of(1, 1, {0: job(kind="a"), 1: job(kind="b")}, pairs)
    assert sum(len(cluster.round()) == 2 for _ in range(6)) == 1
    cluster.view.jobs = {2: job(kind="b"), 3: job(kind="a")}
    assert all(len(cluster.round()) == 1 for _ in range(6))


def test_of_pairs_that_were_seen_the_one_that_keeps_most_comes_together() -> None:
    kept = {"ac": 0.4, "ca": 0.4, "ab": 0.6, "ba": 0.6, "cb": 0.9, "bc": 0.9}
    cluster = Cluster.of(1, 1, {}, Colocation({("t4", 1, True, *names): each for names, each in kept.items()}))
    for first, (one, other) in ((0, "ac"), (2, "ab"), (4, "cb")):  # seen one pair after the other
        cluster.view.jobs = {first: job(kind=one), first + 1: job(kind=other)}
        cluster.round(5)
    cluster.view.jobs = {row: job(kind=kind) for row, kind in ((6, "a"), (7, "c"), (8, "b"))}
    assert {tuple(sorted(cluster.round())) for _ in range(12)} == {(6,), (7,), (8,), (7, 8)}


def test_two_that_do_not_fit_are_never_tried() -> None:
    cluster = Cluster.of(1, 1, {0: job(), 1: job()}, paired(0.0))
    assert all(len(cluster.round()) == 1 for _ in range(6))


def test_a_job_moves_to_gpus_that_become_idle() -> None:
    cluster = Cluster.of(1, 2, {row: job() for row in range(3)})
    cluster.round(3)
    cluster.without(0)
    assert sorted(cluster.round()) == [1, 2]


def test_a_job_on_two_nodes_moves_onto_one() -> None:
    cluster = Cluster.of(2, 2, {0: job(), 1: job(), 2: job(2)})
    homes = Homes(cluster.view.types)
    homes.settle(0, Home(0, ((0, 0),)))
    homes.settle(1, Home(0, ((1, 0),)))
    homes.settle(2, Home(0, ((0, 1), (1, 1))))
    cluster.policy._homes = homes
    assert cluster.round()[2].nodes == 2
    cluster.without(1)
    assert cluster.round()[2].where == ((1, 2),)


def test_a_small_job_makes_room_once_all_has_been_quiet() -> None:
    cluster = Cluster.of(2, 2, {0: job(), 1: job(), 2: job(2)})
    homes = Homes(cluster.view.types)
    for row, gpus in enumerate((((0, 0),), ((1, 0),), ((0, 1), (1, 1)))):
        homes.settle(row, Home(0, gpus))
    cluster.policy._homes = homes
    assert cluster.round(4)[2].nodes == 2
    plan = cluster.round(4)
    assert plan[2].nodes == 1
    assert plan[0].where == plan[1].where


def test_a_job_grows_into_gpus_that_stay_idle_and_gives_them_back() -> None:
    cluster = Cluster.of(1, 4, {0: job(rigid=False)})
    assert cluster.round(4)[0].gpus == 1
    assert cluster.round(4)[0].gpus == 2
    cluster.view.jobs = {**cluster.view.jobs, **{row: job(1, 600.0) for row in (1, 2)}}
    assert cluster.round()[0].gpus == 2  # two are idle
    cluster.view.jobs = {**cluster.view.jobs, 3: job(1, 700.0)}
    assert cluster.round()[0].gpus == 1


def test_a_job_that_gains_nothing_from_more_gpus_shrinks_and_does_not_grow_again() -> None:
    cluster = Cluster.of(1, 4, {0: job(rigid=False, most=1)})
    sizes = [cluster.round()[0].gpus for _ in range(30)]
    assert sizes.count(2) == 1
    assert sizes[-1] == 1


def test_a_rigid_job_does_not_grow() -> None:
    cluster = Cluster.of(1, 4, {0: job(rigid=True)})
    assert {cluster.round()[0].gpus for _ in range(20)} == {1}
