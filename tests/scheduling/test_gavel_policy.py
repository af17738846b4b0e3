"""Gavel as a policy: its own simulator's averages, and what its rounds keep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, permutations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.planning_policies import golden, mean_jct_s
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, RateProfile
from perdure.scheduling import gavel_packing
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType
from perdure.scheduling.elastic_policies import ELASTIC, elastic_named
from perdure.scheduling.gavel import Floats, GavelRound
from perdure.scheduling.gavel_objectives import AlloX, AloneTime, FinishTimeFairness, cheapest, first_come, makespan
from perdure.scheduling.gavel_policy import FractionRequest, Gavel
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.throughput.application import rated_applications
from perdure.throughput.colocation import Colocation
from perdure.throughput.learned import LearnedJob
from perdure.throughput.traits import Traits
from tests.conftest import require

GAVEL = [name for name in ELASTIC if name.startswith("gavel")]


@pytest.mark.parametrize("policy", ["gavel-fifo-blind", "allox", "gavel-gandiva"])
def test_the_average_of_gavels_own_simulator(policy: str, data_dir: Path | None) -> None:
    data = require("data", data_dir, "no golden schedules here")
    assert mean_jct_s(data, policy) == pytest.approx(golden(data, policy), rel=0.005)


RATES = RateProfile(
    np.array(["net", "net", "net", "net"]),
    np.array(["fast", "slow", "fast", "slow"]),
    np.array([1, 1, 2, 2]),
    np.ones(4, bool),
    np.array([4.0, 1.0, 8.0, 2.0]),
)
CLUSTER = Cluster.parse("1x2:fast + 1x2:slow")


def replayed(
    policy: str,
    steps: Sequence[float],
    gpus: list[int] | None = None,
    submit_s: list[float] | None = None,
    pairs: Colocation | None = None,
) -> ElasticResult:
    n = len(steps)
    asked = np.ones(n, np.int64) if gpus is None else np.array(gpus)
    came_s = np.zeros(n) if submit_s is None else np.array(submit_s)
    names = np.array([str(row) for row in range(n)])
    jobs = AdaptiveJobs(names, came_s, np.full(n, "net"), asked, asked, steps=np.array(steps, float))
    known = rated_applications(RATES, ["net"])
    return replay_elastic(jobs, CLUSTER, elastic_named(policy), known, {"net": Traits(0.0, 0.0)}, pairs=pairs)


@pytest.mark.parametrize("policy", [*GAVEL, "sia"])
def test_a_job_alone_takes_its_steps_on_the_fastest_type(policy: str) -> None:
    found, round_s = replayed(policy, [14400.0]), elastic_named(policy).round_s
    blind = policy.endswith("-blind") and policy != "gavel-fifo-blind"
    assert found.end_s[0] >= 3600.0
    if not blind:
        assert found.end_s[0] == pytest.approx(3600.0 + round_s)


@pytest.mark.parametrize("policy", GAVEL)
def test_more_jobs_than_gpus_share_them_and_all_end(policy: str) -> None:
    found = replayed(policy, [20_000.0 + 100 * row for row in range(8)], [1, 2] * 4, [600.0 * row for row in range(8)])
    assert np.isfinite(found.end_s).all()
    work = np.array([20_000.0 + 100 * row for row in range(8)]) / 4
    assert (found.jct_s >= work / np.where(np.arange(8) % 2, 2, 1) - 1e-6).all()


@pytest.mark.parametrize("policy", GAVEL)
def test_asked_twice_it_plans_the_same(policy: str) -> None:
    first, second = (replayed(policy, [9000.0, 30_000.0, 500.0, 700.0, 8000.0]) for _ in range(2))
    assert first.end_s.tolist() == second.end_s.tolist()


def test_equal_jobs_wait_alike_under_least_attained_service() -> None:
    found = replayed("gavel-las", [50_000.0] * 8)
    assert found.end_s.max() < 1.1 * found.end_s.min()


def test_allox_refuses_jobs_of_several_gpus() -> None:
    with pytest.raises(InputError, match=r"job 1: it asks for 2 GPUs"):
        replayed("allox", [100.0, 100.0], [1, 2])


def test_a_kind_without_rates_is_named() -> None:
    with pytest.raises(InputError, match=r"'bert'.*no rates"):
        rated_applications(RATES, ["bert"])


def kept(part: float) -> Colocation:
    """What is left to each of two, whichever GPUs they share."""
    return Colocation({(kind, gpus, True, "net", "net"): part for kind in ("fast", "slow") for gpus in (1, 2)})


PACKED = ["gavel-las-packed", "gavel-ftf-packed", "gavel-makespan-packed", "gavel-fifo-packed"]


@pytest.mark.parametrize("policy", [*PACKED, "gavel-gandiva"])
def test_pairs_that_gain_end_sooner_and_count_for_half(policy: str) -> None:
    alone = replayed(policy, [20_000.0] * 8)
    shared = replayed(policy, [20_000.0] * 8, pairs=kept(0.95))
    assert shared.end_s.max() < 0.8 * alone.end_s.max()
    assert shared.gpu_s.sum() < 0.8 * alone.gpu_s.sum()


@pytest.mark.parametrize("policy", PACKED)
@pytest.mark.parametrize("part", [0.5, 0.0])
def test_pairs_that_do_not_gain_or_do_not_fit_never_share(policy: str, part: float) -> None:
    steps = [20_000.0 + 100 * row for row in range(8)]
    assert replayed(policy, steps, pairs=kept(part)).end_s.tolist() == replayed(policy, steps).end_s.tolist()


def test_gandiva_in_gavel_shares_even_at_a_loss_but_nothing_where_all_fit() -> None:
    steps = [20_000.0 + 100 * row for row in range(8)]
    slow, alone = (replayed("gavel-gandiva", steps, pairs=kept(part)) for part in (0.45, 0.0))
    assert slow.gpu_s.sum() > 1.02 * alone.gpu_s.sum()
    few = [20_000.0] * 4
    assert (
        replayed("gavel-gandiva", few, pairs=kept(0.9)).end_s.tolist() == replayed("gavel-gandiva", few).end_s.tolist()
    )


def matched(takes_s: Sequence[Sequence[float]]) -> dict[int, int]:
    """Of two GPUs of different types, the job that AlloX runs on each; all jobs are there and wait."""
    nothing, one = LearnedJob(1, 1, [(1, 1)], np.ones(1), []), np.ones(2)
    waiting = {
        row: ElasticJob(0.0, 1, 0.0, 1, 1, nothing, 1.0, np.array(seconds)) for row, seconds in enumerate(takes_s)
    }
    view = ElasticView((GpuType("fast", 1, 1), GpuType("slow", 1, 1)), waiting)
    round_ = FractionRequest(view, list(waiting), GavelRound.of(1 / np.array(takes_s), one))
    fractions = AlloX(alpha=1.0)(round_)
    return {place: int(fractions[:, place].argmax()) for place in (0, 1) if fractions[:, place].any()}


@pytest.mark.parametrize("seed", range(6))
def test_allox_runs_first_what_comes_first_in_the_best_of_all_orders(seed: int) -> None:
    """Counted out: each GPU's jobs in each order, by the sum of all ends."""
    takes_s = np.random.default_rng(seed).uniform(10.0, 100.0, (4, 2)).tolist()
    best, first = np.inf, dict[int, int]()
    for order in permutations(range(4)):
        for cut in range(5):
            parts = order[:cut], order[cut:]
            ends = sum(sum(accumulate(takes_s[row][place] for row in part)) for place, part in enumerate(parts))
            if ends < best:
                best, first = ends, {place: part[0] for place, part in enumerate(parts) if part}
    assert matched(takes_s) == first


def asked(
    steps: Sequence[float], left: Sequence[float], came_s: Sequence[float] | None = None, kinds: Sequence[str] = ("t4",)
) -> FractionRequest:
    """Jobs of one step a second on each type, at 1,000 s, with one GPU of each type."""
    nothing, one = LearnedJob(1, 1, [(1, 1)], np.ones(1), []), np.ones(len(kinds))
    came_s = came_s or [0.0] * len(steps)
    jobs = {
        row: ElasticJob(came, 1, 0.0, 1, 1, nothing, work, work * one, left=part)
        for row, (work, part, came) in enumerate(zip(steps, left, came_s, strict=True))
    }
    view = ElasticView(tuple(GpuType(kind, 1, 1) for kind in kinds), jobs, 1000.0)
    return FractionRequest(view, list(jobs), GavelRound.of(np.ones((len(steps), len(kinds))), one))


def test_time_alone_adds_up_at_the_share_of_each_time() -> None:
    alone = AloneTime()
    assert alone(asked([100.0, 100.0], [1.0, 1.0])).tolist() == [100.0, 100.0]
    halved = asked([100.0, 100.0], [0.6, 1.0])
    halved = FractionRequest(halved.view, halved.rows, GavelRound.of(np.full((2, 1), 0.5), np.ones(1)))
    assert alone(halved).tolist() == [40.0 + 60.0 / 0.5, 200.0]
    assert alone(asked([100.0, 100.0], [0.5, 1.0])).tolist() == pytest.approx([40.0 + 10.0 / 0.5 + 50.0, 100.0])


def test_who_waited_long_has_most_of_the_time_for_its_rho() -> None:
    # The first spent 1,000 s on what takes 100: 10 + 1 / x of it is to be as little as the newcomer's 1 / (1 - x).
    fractions = FinishTimeFairness()(asked([100.0, 100.0], [1.0, 1.0], [0.0, 1000.0]))
    x = float(fractions[0, 0])
    assert 10 + 1 / x == pytest.approx(1 / (1 - x), rel=1e-3)


def test_makespan_is_of_what_is_left() -> None:
    fractions = makespan(asked([3000.0, 1000.0], [0.1, 0.9]))[:, 0]
    assert fractions[1] > 2.5 * fractions[0]  # 300 steps and 900, the last end up to 5% late


def test_the_oldest_is_who_came_first_wherever_it_stands() -> None:
    # A rank, and not an order: of these the order of rows by their submit is (1, 2, 0).
    assert first_come(asked([9.0] * 3, [1.0] * 3, [30.0, 10.0, 20.0]))[:, 0].tolist() == [0.0, 1.0, 0.0]
    two = first_come(asked([9.0] * 3, [1.0] * 3, [30.0, 10.0, 20.0], ["t4", "rtx"]))
    assert two.sum(axis=1).tolist() == [0.0, 1.0, 1.0]


def test_types_cost_what_the_cloud_asked_for_them() -> None:
    # A step costs 5.5 times as much on the last: one job keeps to the first type, and to its own without a price.
    assert cheapest(asked([9.0], [1.0], kinds=["k80", "v100"])).tolist() == [[1.0, 0.0]]
    assert cheapest(asked([9.0], [1.0], kinds=["p100", "t4"])).tolist() == [[0.0, 1.0]]
    # A type without a price costs 1: for .45 a K80 makes more than half of its steps, and is worth more.
    unpriced = asked([9.0], [1.0], kinds=["k80", "t4"])
    unpriced = FractionRequest(unpriced.view, unpriced.rows, GavelRound.of(np.array([[1.0, 2.0]]), np.ones(2)))
    assert cheapest(unpriced).tolist() == [[1.0, 0.0]]


def test_who_got_less_than_its_fraction_before_a_change_goes_first_after_it() -> None:
    # Half of one GPU each: of three rounds the first has two. Then a third job comes that gets nothing.
    def halves(asked: FractionRequest) -> Floats:
        return np.array([[0.5], [0.5], [0.0]])[: len(asked.rows)]

    jobs = dict(asked([9.0] * 3, [1.0] * 3).view.jobs)
    policy, ran = Gavel("halves", halves, only_granted=True, reset_s=1000.0), list[int]()
    for turn in range(5):
        there = {row: jobs[row] for row in range(2 if turn < 3 else 3)}
        plan = policy.plan(ElasticView((GpuType("t4", 1, 1),), there, 360.0 * turn, (0,)))
        for row, job in there.items():
            job.share = plan.get(row)
        ran += plan
    assert ran == [0, 1, 0, 1, 0]


def test_fractions_are_computed_at_most_every_32_minutes_and_newcomers_wait_for_them() -> None:
    jobs, asked_for, ran = dict(asked([9.0] * 2, [1.0] * 2).view.jobs), list[int](), list[list[int]]()

    def counted(request: FractionRequest) -> Floats:
        asked_for.append(len(request.rows))
        return np.full((len(request.rows), 1), 1.0)

    policy = Gavel("counted", counted)
    for turn in range(7):
        there = {row: jobs[row] for row in range(1 if turn == 0 else 2)}
        plan = policy.plan(ElasticView((GpuType("t4", 1, 2),), there, 360.0 * turn, (0,)))
        for row, job in there.items():
            job.share = plan.get(row)
        ran.append(sorted(plan))
    assert asked_for == [1, 2]
    assert ran == [[0]] * 6 + [[0, 1]]


@pytest.mark.parametrize(("kept", "stays"), [(0.6, True), (0.5, True), (0.4, False)])
def test_a_pair_drawn_by_chance_stays_as_long_as_both_keep_one_in_all(kept: float, stays: bool) -> None:
    given = asked([9.0] * 6, [1.0] * 6)
    given.view.pairs = Colocation({("t4", 1, True, "", ""): kept})
    draws = gavel_packing.RandomPairs()
    pairs = {frozenset(unit for unit in draws(given) if len(unit) == 2) for _ in range(8)}
    assert (len(pairs) == 1) == stays


def test_without_pairs_that_gain_fairness_is_that_of_jobs_alone() -> None:
    came_late = asked([100.0, 300.0], [1.0, 0.5], [0.0, 900.0])
    half = FractionRequest(came_late.view, came_late.rows, GavelRound.of(np.array([[0.5], [0.25]]), np.ones(1)))
    found = gavel_packing.PackedFinishTimeFairness()(half)
    alone = FinishTimeFairness()(half)
    assert [float(found[row,][0]) for row in range(2)] == pytest.approx(alone[:, 0].tolist(), abs=1e-4)


def test_who_takes_all_types_as_equal_takes_them_to_be_like_the_best() -> None:
    blind = GavelRound.of(np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 2.0]]), np.ones(3)).blind()
    assert blind.throughput.tolist() == [[4.0, 4.0, 0.0], [3.0, 3.0, 3.0]]


def test_with_pairs_too_the_oldest_comes_first() -> None:
    found = gavel_packing.first_come(asked([9.0] * 3, [1.0] * 3, [30.0, 10.0, 20.0]))
    assert [float(found[row,][0]) for row in range(3)] == [0.0, 1.0, 0.0]
