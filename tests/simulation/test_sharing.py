"""Jobs that share GPUs or are suspended in the loop of work: how fast they are, what it costs, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, RateProfile
from perdure.scheduling.elastic import ElasticView, Plan, Share
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_plan import ElasticError
from perdure.throughput.application import rated_applications
from perdure.throughput.colocation import Colocation
from perdure.throughput.traits import Traits

RATES = RateProfile(
    np.array(["lm", "a3c"]), np.array(["v100"] * 2), np.ones(2, int), np.ones(2, bool), np.full(2, 10.0)
)
PAIRS = Colocation({("v100", 1, True, "lm", "a3c"): 0.8, ("v100", 1, True, "a3c", "lm"): 0.6})
FIRST, SECOND = Share(0, 1, 1, ((0, 1),)), Share(0, 1, 1, ((1, 1),))


@dataclass
class Scripted:
    """Plans one round after the other, the last for ever; what is over is left out."""

    plans: list[dict[int, Share]]
    name: str = "scripted"
    round_s: float = 60.0
    adaptive: bool = False

    def plan(self, view: ElasticView) -> Plan:
        plan = self.plans[min(round(view.now_s / self.round_s), len(self.plans)) - 1]
        left = {row: share for row, share in plan.items() if row in view.jobs}
        return {row: share if share.shared_with in left else share.spot for row, share in left.items()}


@dataclass
class Suspending(Scripted):
    resume_s: float = 2.0


def replayed(
    policy: Scripted,
    pairs: Colocation | None = PAIRS,
    restart_s: float = 30.0,
    fails: tuple[tuple[float, ...], ...] = (),
) -> ElasticResult:
    jobs = AdaptiveJobs(
        np.array(["0", "1"]),
        np.zeros(2),
        np.array(["lm", "a3c"]),
        np.ones(2, int),
        np.ones(2, int),
        steps=np.full(2, 6000.0),
        fails=fails,
    )
    known = rated_applications(RATES, ["lm", "a3c"])
    traits = dict.fromkeys(known, Traits(restart_s, restart_s))
    return replay_elastic(jobs, Cluster.parse("2x1:v100"), policy, known, traits, pairs=pairs)


def pair() -> dict[int, Share]:
    return {0: FIRST._replace(shared_with=1), 1: FIRST._replace(shared_with=0)}


def test_each_of_two_keeps_its_part_of_the_speed_until_the_round_in_which_one_ends_is_over() -> None:
    found = replayed(Scripted([pair()]))
    # 30 s to start, then 8 steps a second.
    assert found.end_s[0] == pytest.approx(60 + 30 + 6000 / 8)
    # The other ends with a round: 750 s at 6 steps a second, and the rest alone.
    assert found.end_s[1] == pytest.approx(840 + (6000 - 6 * 750) / 10)
    assert found.restarts.tolist() == [0, 0]


def test_without_measurements_two_take_turns() -> None:
    found = replayed(Scripted([pair()]), None)
    assert found.end_s.tolist() == pytest.approx([60 + 30 + 6000 / 5] * 2)


def test_shared_gpus_count_by_half_for_each() -> None:
    found = replayed(Scripted([pair()]))
    assert found.gpu_s[0] == pytest.approx((found.end_s[0] - 60) / 2)
    assert found.restart_gpu_s.tolist() == [15.0, 15.0]


def test_company_that_comes_or_goes_costs_no_restart() -> None:
    found = replayed(Scripted([{0: FIRST}, {0: FIRST}, pair(), {0: FIRST, 1: SECOND}]))
    # Job 1 starts beside the other, and then moves: a restart.
    assert found.restarts.tolist() == [0, 1]
    assert found.end_s[0] == pytest.approx(60 + 30 + 600 + 60 * 0.2)


def test_the_same_gpus_again_cost_a_resume_where_jobs_are_suspended() -> None:
    turns = [{0: FIRST}, {1: FIRST}] * 40
    restarted, resumed = replayed(Scripted(turns)), replayed(Suspending(turns))
    assert resumed.restarts.tolist() == [0, 0]
    assert restarted.restarts.min() > 5
    # 300 steps in its first turn, 580 in each of the next nine, and the rest in the one that begins at 1,260 s.
    assert resumed.end_s[0] == pytest.approx(1260 + 2 + 48)
    assert restarted.end_s[0] > 1.8 * resumed.end_s[0]


def test_other_gpus_are_a_restart_there_too() -> None:
    found = replayed(Suspending([{0: FIRST}, {1: FIRST}, {0: SECOND, 1: FIRST}]))
    assert found.restarts.tolist() == [1, 0]


def test_a_restart_cut_short_is_gone_on_with() -> None:
    found = replayed(Suspending([{0: FIRST}, {}, {0: FIRST, 1: SECOND}]), restart_s=100.0)
    assert found.restart_gpu_s.tolist() == [100.0, 100.0]


def test_a_failed_job_is_not_in_memory() -> None:
    found = replayed(Suspending([{0: FIRST, 1: SECOND}]), fails=((0.5,), ()))
    assert found.restarts.tolist() == [1, 0]
    assert found.restart_gpu_s.tolist() == [60.0, 30.0]


@pytest.mark.parametrize(
    "plan",
    [
        {0: FIRST._replace(shared_with=1), 1: FIRST},
        {0: FIRST._replace(shared_with=1), 1: SECOND._replace(shared_with=0)},
        {0: FIRST._replace(shared_with=0)},
        {0: FIRST._replace(shared_with=5)},
    ],
)
def test_a_share_that_only_one_of_two_has_is_refused(plan: dict[int, Share]) -> None:
    class Blunt(Scripted):
        def plan(self, view: ElasticView) -> Plan:
            return plan

    with pytest.raises(ElasticError, match="lets 0 share GPUs with"):
        replayed(Blunt([]))


def test_two_that_do_not_fit_into_the_memory_together_are_refused() -> None:
    with pytest.raises(ElasticError, match="does not fit"):
        replayed(Scripted([pair()]), Colocation({("v100", 1, True, "a3c", "lm"): 0.0}))


def test_a_pair_takes_the_room_of_one() -> None:
    class Third(Scripted):
        def plan(self, view: ElasticView) -> Plan:
            return {0: FIRST, 1: FIRST}

    with pytest.raises(ElasticError, match="find no place"):
        replayed(Third([]))
