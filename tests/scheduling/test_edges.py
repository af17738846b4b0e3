"""Policies and placements one tick, one GPU and one job beside their limits, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.scheduling.backfill import Conservative, Easy, Forecast, ReplannedConservative, reservation
from perdure.scheduling.capacity import Capacity
from perdure.scheduling.draws import uniform
from perdure.scheduling.drf import DominantShare, fill
from perdure.scheduling.gittins import GittinsIndex, public_steps
from perdure.scheduling.las import Gittins2D, LeastAttained, Sinking
from perdure.scheduling.maxmin import UNIT, MaxMin, maxmin_shares
from perdure.scheduling.philly import Philly
from perdure.scheduling.placement.consolidate import Consolidate
from perdure.scheduling.placement.fit import BestFit, RandomFit
from perdure.scheduling.placement.ladder import Ladder
from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, gather
from perdure.scheduling.placement.placed import Placed, PlacementError
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.placement.room import Counted
from perdure.scheduling.placement.skew import Skew
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.scheduling.shares import quotas, used
from perdure.scheduling.shortest import FewestGpus, ShortestJob, ShortestRemaining, ShortestService
from perdure.scheduling.tetris import Tetris
from perdure.scheduling.view import View
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs


def view(*gpus: int, total: int = 8, owners: tuple[int, ...] = (), **columns: list[int]) -> View:
    """All submitted at once and waiting; each runs for 100 ticks; owners are users and virtual clusters alike."""
    n = len(gpus)
    names = tuple("abcd"[: max(owners, default=0) + 1])
    given: dict[str, Any] = {"submit": [0] * n, "work": [100] * n, "walltime": [0] * n, **columns}
    of = list(owners) or [0] * n
    seen = View(list(gpus), group=of, user=of, groups=names, users=names, total_gpus=total, ticks_per_s=1, **given)
    seen.waiting = dict.fromkeys(range(n))
    return seen


def start(seen: View, *rows: int) -> None:
    for row in rows:
        del seen.waiting[row]
        seen.running[row] = seen.now
        seen.free_gpus -= seen.gpus[row]


def stop(seen: View, row: int) -> None:
    seen.before[row] = seen.executed(row)
    del seen.running[row]
    seen.waiting[row] = None
    seen.free_gpus += seen.gpus[row]


# What a policy may see


def test_a_view_counts_what_this_attempt_ran_and_what_earlier_ones_did() -> None:
    seen = view(2)
    seen.earlier[0] = 1000
    seen.now = 5
    start(seen, 0)
    seen.now = 25
    assert (seen.executed(0), seen.remaining(0), seen.attained(0)) == (20, 80, 1020)
    stop(seen, 0)
    seen.now = 40
    assert (seen.executed(0), seen.remaining(0), seen.attained(0)) == (20, 80, 1020)
    start(seen, 0)
    seen.now = 41
    assert (seen.executed(0), seen.remaining(0)) == (21, 79)


def test_an_end_is_expected_by_the_walltime_and_never_in_the_past() -> None:
    seen = view(1, 1, walltime=[150, 0])
    assert [seen.expected_end(row) for row in (0, 1)] == [150, 100]
    start(seen, 0, 1)
    seen.now = 99
    assert [seen.expected_end(row) for row in (0, 1)] == [150, 100]
    seen.now = 100
    assert seen.expected_end(1) == 101
    seen.now = 200
    assert [seen.expected_end(row) for row in (0, 1)] == [201, 201]


# Shares


def test_without_quotas_each_gets_the_share_that_its_jobs_ask_for() -> None:
    seen = view(1, 3, 2, owners=(0, 1, 0), work=[100, 100, 50])
    assert quotas(seen, {}, "here") == [8 * 200 / 500, 8 * 300 / 500]
    assert quotas(view(1, 1, owners=(0, 1), work=[0, 0]), {}, "here") == [4.0, 4.0]


def test_named_quotas_are_taken_by_name_and_none_may_be_missing() -> None:
    seen = view(1, 1, owners=(0, 1))
    assert quotas(seen, {"b": 6, "a": 2, "z": 9}, "here") == [2.0, 6.0]
    with pytest.raises(ConfigError, match="'b'"):
        quotas(seen, {"a": 2}, "here")


def test_what_is_held_is_counted_by_owner() -> None:
    seen = view(1, 2, 4, owners=(0, 1, 0))
    assert used(seen, seen.user, 2) == [0, 0]
    start(seen, 0, 2)
    assert used(seen, seen.user, 2) == [5, 0]


@pytest.mark.parametrize(
    "policy", [DominantShare(), DominantShare({"a": 1.0, "b": 1.0}), Capacity({"a": 4, "b": 4})], ids=repr
)
def test_turns_go_to_the_smallest_share_and_among_equals_to_the_first(policy: DominantShare | Capacity) -> None:
    seen = view(1, 1, 2, 1, 1, owners=(0, 0, 1, 1, 0))
    order = iter(policy.ranking(seen).order())
    taken = []
    for row in order:
        taken.append(row)
        start(seen, row)
    assert taken == [0, 2, 1, 4, 3]  # a has 1, b 2, a 2, a ties with b at 2 and is the first, then has 3


def test_who_has_no_room_has_no_further_turn_while_others_go_on() -> None:
    seen = view(8, 1, 1, 1, owners=(0, 0, 1, 1))
    taken = []
    for row in DominantShare().ranking(seen).order():
        taken.append(row)
        if row:
            start(seen, row)
    assert taken == [0, 2, 3]


def test_running_jobs_count_for_the_turn_and_a_capacity_of_nothing_goes_last() -> None:
    seen = view(3, 1, 1, owners=(0, 0, 1))
    start(seen, 0)
    assert next(iter(DominantShare().ranking(seen).order())) == 2
    assert next(iter(DominantShare({"a": 8.0}).ranking(seen).order())) == 2
    start(seen, 2)
    assert next(iter(DominantShare({"b": 0.3}).ranking(view(1, 1, owners=(1, 0))).order())) == 1
    assert next(iter(Capacity({"a": 0, "b": 8}).ranking(view(1, 1, owners=(0, 1))).order())) == 0  # nobody holds any


def test_weights_of_the_dominant_share() -> None:
    capacity, demand = np.array([8.0]), np.array([[1.0], [1.0]])
    assert fill(capacity, demand).tolist() == [4, 4]
    assert fill(np.array([9.0]), demand).tolist() == [5, 4]  # the lower row wins a tie
    assert fill(capacity, demand, np.array([3.0, 1.0])).tolist() == [6, 2]


# Order by a key


def test_shortest_is_by_work_by_what_remains_by_service_or_by_size() -> None:
    seen = view(4, 1, 2, work=[10, 60, 25])
    assert list(ShortestJob().ranking(seen).order()) == [0, 2, 1]
    for policy, wanted in ((ShortestRemaining(), [0, 2, 1]), (ShortestService(), [0, 2, 1]), (FewestGpus(), [1, 2, 0])):
        ranking = policy.ranking(seen)
        for row in seen.waiting:
            ranking.arrive(row)
        assert list(ranking.order()) == wanted, policy
    seen = view(4, 1, work=[20, 60])
    service = ShortestService().ranking(seen)
    remaining = ShortestRemaining().ranking(seen)
    for row in (0, 1):
        service.arrive(row)
        remaining.arrive(row)
    assert (list(service.order()), list(remaining.order())) == ([1, 0], [0, 1])


def test_among_equals_who_runs_is_first_then_who_came_first() -> None:
    seen = view(1, 1, 1, 1)
    ranking = FewestGpus().ranking(seen)
    for row in (2, 0, 1, 3):
        ranking.arrive(row)
    assert list(ranking.order()) == [2, 0, 1, 3]
    start(seen, 1)
    assert list(ranking.order()) == [1, 2, 0, 3]
    stop(seen, 1)
    assert list(ranking.order()) == [2, 0, 1, 3]
    ranking.leave(0)
    ranking.arrive(0)
    assert list(ranking.order()) == [2, 1, 3, 0]


@pytest.mark.parametrize("policy", [ShortestRemaining(inert=True), ShortestService(inert=True)], ids=repr)
def test_inert_equals_stay_as_they_stood(policy: ShortestRemaining | ShortestService) -> None:
    seen = view(1, 1, 1, work=[30, 20, 10])
    ranking = policy.ranking(seen)
    for row in (0, 1, 2):
        ranking.arrive(row)
    assert list(ranking.order()) == [2, 1, 0]
    seen.work[:] = [10, 10, 10]
    start(seen, 0)
    assert list(ranking.order()) == [2, 1, 0]


# Least attained service


def sinking(seen: View, **options: object) -> Sinking:
    policy = LeastAttained(**({"queue_limits": (100.0, 200.0)} | options))  # type: ignore[arg-type]
    ranking = policy.ranking(seen)
    for row in seen.waiting:
        ranking.arrive(row)
    return ranking


@pytest.mark.parametrize(("two_d", "first", "second"), [(True, 25, 50), (False, 100, 200)])
def test_a_job_sinks_at_the_very_tick_of_the_limit(two_d: bool, first: int, second: int) -> None:
    seen = view(4, 1, work=[1000, 1000])
    ranking = sinking(seen, counts_gpus=two_d)
    assert list(ranking.order()) == [0, 1]
    start(seen, 0)
    assert ranking.next_change() == first
    for now, level in ((first - 1, 0), (first, 1), (second - 1, 1), (second, 2), (second + 500, 2)):
        seen.now = now
        assert list(ranking.order()) == ([0, 1] if level == 0 else [1, 0])
        assert ranking.level == {0: level, 1: 0}
        assert ranking.next_change() == {0: first, 1: second, 2: None}[level]


def test_limits_are_in_seconds_whatever_a_tick_is() -> None:
    seen = view(1, work=[10_000])
    seen.ticks_per_s = 10
    ranking = sinking(seen)
    start(seen, 0)
    assert ranking.next_change() == 1000


def test_a_demotion_is_due_when_the_service_reaches_the_limit_even_within_a_tick() -> None:
    """Three GPUs have 99 GPU-ticks after 33 ticks, and 102 after 34."""
    seen = view(3, work=[1000])
    ranking = sinking(seen)
    start(seen, 0)
    assert ranking.next_change() == 34
    assert sinking(view(3), late_demotion=True).next_change() is None
    late = sinking(view(3), late_demotion=True)
    start(late.view, 0)
    assert late.next_change() == 33  # as the public simulator: rounded down
    late.view.now = 99
    late._count(0)
    assert late.next_change() == 100  # never now


def test_who_passes_two_limits_at_once_sinks_twice_but_late_ones_once_an_event() -> None:
    for late, level in ((False, 2), (True, 1)):
        ranking = sinking(view(8, work=[1000]), late_demotion=late)
        start(ranking.view, 0)
        ranking.view.now = 50
        ranking.order()
        assert ranking.level == {0: level}


def test_a_job_that_waits_neither_sinks_nor_is_it_served() -> None:
    seen = view(8, 1, work=[1000, 1000])
    ranking = sinking(seen, promote_knob=100.0)  # without promotion nobody asks what it waited
    start(seen, 0)
    seen.now = 10
    ranking.order()
    stop(seen, 0)
    seen.now = 1000
    assert list(ranking.order()) == [0, 1]
    assert ranking.served == {0: 10}
    assert ranking.waited == {0: 990, 1: 0}


def test_a_promotion_comes_after_k_times_the_service_and_forgets_it() -> None:
    seen = view(8, 1, work=[1000, 1000])
    ranking = sinking(seen, promote_knob=2.0)
    start(seen, 0)
    seen.now = 13
    ranking.order()
    assert ranking.level[0] == 1
    stop(seen, 0)
    assert ranking.next_change() == 13 + 26
    for now in (20, 38):
        seen.now = now
        ranking.order()
        assert (ranking.level[0], ranking.next_change(), seen.promotions) == (1, 39, [0, 0])
    seen.now = 39
    ranking.order()
    assert (ranking.level[0], ranking.next_change(), seen.promotions) == (0, None, [1, 0])
    assert (ranking.served[0], ranking.waited[0]) == (0, 0)


def test_who_never_sank_or_has_no_knob_is_not_promoted() -> None:
    for knob, level in ((0.0, 1), (2.0, 0)):
        seen = view(8, work=[1000])
        ranking = sinking(seen, promote_knob=knob)
        start(seen, 0)
        seen.now = 13 if level else 12
        ranking.order()
        stop(seen, 0)
        assert ranking.next_change() is None
        seen.now = 500
        ranking.order()
        assert (ranking.level[0], seen.promotions) == (level, [0])


@pytest.mark.parametrize(("resets", "level"), [(False, 1), (True, 0)])
def test_the_next_attempt_goes_on_where_its_service_stands_unless_told(resets: bool, level: int) -> None:
    seen = view(8, work=[1000])
    ranking = sinking(seen, resets_on_retry=resets)
    start(seen, 0)
    seen.now = 13
    ranking.leave(0)
    assert not ranking.level
    stop(seen, 0)
    seen.now = 50
    ranking.arrive(0)
    assert ranking.level == {0: level}
    assert (ranking.waited[0], ranking.settled[0]) == (0, 50)


def test_in_a_queue_who_runs_comes_first_and_higher_queues_before_lower_ones() -> None:
    seen = view(1, 1, 1, 8, work=[1000] * 4)
    ranking = sinking(seen)
    start(seen, 3)
    seen.now = 13
    assert list(ranking.order()) == [0, 1, 2, 3]
    stop(seen, 3)
    start(seen, 2)
    assert list(ranking.order()) == [2, 0, 1, 3]


# Gittins


def test_an_index_is_the_chance_to_end_within_the_quantum_over_the_service_until_then() -> None:
    index = GittinsIndex.of([100, 10, 40, 10], 30)
    assert index.at(0) == pytest.approx((2 / 4) / ((10 + 10 + 30 + 30) / 4))
    assert index.at(10) == pytest.approx((1 / 2) / ((30 + 30) / 2))  # a sample at a + D ends within it
    assert index.at(9) == pytest.approx((2 / 4) / ((1 + 1 + 30 + 30) / 4))
    assert index.at(40) == 0.0
    assert index.at(70) == pytest.approx(1 / 30)
    assert index.at(100) == 0.0


def test_the_public_table_by_hand() -> None:
    """Of 10, 10, 40, 100 with a quantum of 30: 2 of 4 end by 39; 1 of 2 by 69; the last sample never ends."""
    steps = public_steps(np.array([10.0, 10.0, 40.0, 100.0]), 30, 1)
    assert steps.bounds.tolist() == [10, 40, 100]
    assert steps.ranks.tolist() == [
        round(0.5 * 1e6 / ((20 + 60) // 4), 4),
        round(0.5 * 1e6 / ((40 + 30) // 2), 4),
        0.0,
        0.0,
    ]


def test_the_greatest_index_is_first_and_service_counts_the_gpus() -> None:
    seen = view(2, 1, 1, work=[1000] * 3)
    ranking = Gittins2D(samples=(10.0, 10.0, 40.0, 100.0), quantum=30.0, queue_limits=(1000.0,)).ranking(seen)
    for row in seen.waiting:
        ranking.arrive(row)
    assert list(ranking.order()) == [0, 1, 2]
    start(seen, 0)
    seen.now = 5  # 10 GPU-ticks: the index of half of two over 30 is less than half of four over 20
    assert list(ranking.order()) == [1, 2, 0]


def test_without_samples_those_of_the_trace_count() -> None:
    own = Gittins2D(quantum=30.0)
    seen = view(1, 2, work=[10, 20])
    assert own.steps(seen).bounds.tolist() == [10, 40]
    seen.ticks_per_s = 10
    assert own.steps(seen).bounds.tolist() == [10, 40]  # one and four GPU-seconds
    assert own.steps(seen).ranks.tolist() == Gittins2D(samples=(1.0, 4.0), quantum=30.0).steps(seen).ranks.tolist()
    assert Gittins2D(samples=(7.0,), quantum=30.0).steps(seen).bounds.tolist() == [70]


# Philly


def test_nobody_makes_room_until_so_much_of_the_cluster_is_busy() -> None:
    seen = view(4, 3, 4, owners=(1, 1, 0))
    ranking = Philly({"a": 4, "b": 4}, crowded=0.875).ranking(seen)
    start(seen, 0, 1)
    assert ranking.order() == [0, 2, 1]  # 7 of 8 are busy
    assert Philly({"a": 4, "b": 4}, crowded=0.876).ranking(seen).order() == [0, 1, 2]


def test_who_borrowed_is_who_started_last_and_all_is_taken_that_is_there() -> None:
    seen = view(4, 4, 4, 1, owners=(1, 1, 0, 1))
    ranking = Philly({"a": 4, "b": 4}).ranking(seen)
    start(seen, 1)
    seen.now = 5
    start(seen, 0)
    assert ranking.order() == [1, 2, 0, 3]
    seen = view(2, 3, 2, owners=(0, 0, 0))
    assert Philly({"a": 4}).ranking(seen).order() == [0, 2, 1]  # all fit: within quota before what borrows


def test_running_jobs_use_a_quota_up() -> None:
    seen = view(3, 1, 1, 1, owners=(0, 0, 0, 1))
    ranking = Philly({"a": 4, "b": 4}).ranking(seen)
    start(seen, 0)
    assert ranking.order() == [1, 3, 2]
    over = view(3, 3, 1, 1, owners=(0, 0, 0, 1))
    ranking = Philly({"a": 4, "b": 4}).ranking(over)
    start(over, 0, 1)
    assert ranking.order() == [2, 3]  # the second borrows all: the quota has 1 left


# Backfilling


def test_a_reservation_is_when_so_many_are_free_with_all_that_ends_at_that_tick() -> None:
    seen = view(3, 3, 2, 6, work=[50, 50, 90, 10])
    start(seen, 0, 1, 2)
    assert reservation(seen, 3) == (50, 3)
    assert reservation(seen, 6) == (50, 0)
    assert reservation(seen, 7) == (90, 1)
    seen.now = 20
    assert reservation(seen, 3) == (50, 3)
    empty = view(4)
    assert reservation(empty, 4) == (0, 4)


BACKFILLING = [Easy(), Conservative(), ReplannedConservative()]


@pytest.mark.parametrize("policy", BACKFILLING, ids=repr)
def test_who_ends_at_the_very_tick_of_the_reservation_passes(policy: Policy) -> None:
    for length, wanted in ((98, 2), (99, 110)):
        found = simulate(jobs((6, 0, 100), (8, 1, 10), (1, 2, length)), Cluster.parse("1x8"), policy)
        assert found.start_s.tolist() == [0, 100, wanted]


@pytest.mark.parametrize("policy", BACKFILLING[1:], ids=repr)
def test_conservative_starts_whose_turn_is_now_and_reserves_for_all(
    policy: Conservative | ReplannedConservative,
) -> None:
    seen = view(6, 4, 2, 2, 1, work=[100, 10, 100, 101, 5])
    ranking = policy.ranking(seen)
    start(seen, 0)
    assert list(ranking.order()) == [2]  # 1 from 100, 2 now, 3 from 100, 4 from 100
    assert Forecast(3, 2).earliest(2, 1) == 3


def test_a_forecast_adds_and_takes_only_from_where_it_is_told() -> None:
    forecast = Forecast(0, 1)
    forecast.add(10, 2)
    forecast.add(5, 1)
    assert (forecast.ticks, forecast.free) == ([0, 5, 10], [1, 2, 4])
    forecast.reserve(5, 3, 2)
    assert (forecast.ticks, forecast.free) == ([0, 5, 8, 10], [1, 0, 2, 4])
    assert [forecast.earliest(gpus, 1) for gpus in (1, 2, 3, 4)] == [0, 8, 10, 10]
    assert [forecast.earliest(1, length) for length in (5, 6)] == [0, 8]


# Tetris


def test_tetris_weighs_the_fit_against_what_is_soon_done() -> None:
    seen = view(4, 1, 9, work=[100, 50, 1])
    assert list(Tetris().ranking(seen).order()) == [1, 0]  # 0.57 and 0.68; 9 does not fit
    assert list(Tetris(packing=10.0).ranking(seen).order()) == [0, 1]
    assert list(Tetris().ranking(view(9, total=8)).order()) == []
    tied = view(2, 2, 2, work=[50, 10, 50])
    assert list(Tetris(packing=0.0).ranking(tied).order()) == [1, 0, 2]
    tied.before[0] = 45  # 5 ticks remain
    assert list(Tetris(packing=0.0).ranking(tied).order()) == [0, 1, 2]


# Max-min


def test_what_was_not_given_is_owed() -> None:
    seen = view(8, 8, work=[1000, 1000])
    plan = MaxMin().planner(seen)
    for row in (0, 1):
        plan.arrive(row)
    assert plan.plan() == [0]
    start(seen, 0)
    seen.now = 10
    assert plan.plan() == [1]
    assert plan.owed.tolist() == [(4 * 10 - 8 * 10) * UNIT, 40 * UNIT]
    stop(seen, 0)
    start(seen, 1)
    seen.now = 20
    assert plan.plan() == [0]
    assert plan.owed.tolist() == [0, 0]
    plan.leave(0)
    assert plan.plan() == [1]


def test_who_comes_is_owed_nothing_for_what_it_ran_before() -> None:
    seen = view(4, 4)
    seen.earlier[0] = 500
    plan = MaxMin().planner(seen)
    plan.arrive(0)
    plan.arrive(1)
    seen.now = 7
    assert plan.plan() == [0, 1]
    assert plan.owed.tolist() == [0, 0]


def test_a_plan_holds_what_fits_by_what_is_owed_for_each_gpu() -> None:
    seen = view(6, 3, 2)
    plan = MaxMin().planner(seen)
    for row in range(3):
        plan.arrive(row)
    assert plan.plan() == [1, 2]  # shares 3, 3, 2: a half, 1 and 1 for each GPU
    plan.owed[0] = 30 * UNIT
    assert plan.plan() == [0, 2]  # 6 of 8, then 3 do not fit beside it and 2 do


def test_nobody_gets_more_than_it_asks_for_nor_more_than_there_is() -> None:
    for asked, shares in (([], []), ([8], [8]), ([9], [8]), ([2, 2, 100], [2, 2, 6])):
        assert (maxmin_shares(np.array(asked, np.int64), 8 if len(asked) < 3 else 10) / UNIT).tolist() == shares


# Names


def test_options_reach_the_policies_that_they_concern() -> None:
    options = PolicyOptions((1.0,), (5.0,), {"a": 3.0}, "tiresias")
    for name in ("las", "las-2d", "gittins-2d"):
        policy = policy_named(name, options)
        assert isinstance(policy, LeastAttained)
        assert (policy.queue_limits, policy.late_demotion) == ((1.0,), True)
        assert policy.counts_gpus == (name != "las")
    gittins = policy_named("gittins-2d", options)
    assert isinstance(gittins, Gittins2D)
    assert gittins.samples == (5.0,)
    for name in ("philly", "capacity"):
        policy = policy_named(name, options)
        assert isinstance(policy, Philly | Capacity)
        assert policy.gpus == {"a": 3.0}
    for name in ("srtf", "srsf", "fewest-gpus"):
        assert (policy_named(name, options).inert, policy_named(name).inert) == (True, False)
    assert policy_named("sjf", options) == FewestGpus(inert=True)
    assert [policy_named(name).blocks for name in ("sjf", "sjf:skip", "fifo", "fjf")] == [True, False, True, False]


def test_a_knob_is_from_nothing_to_less_than_a_million() -> None:
    assert [policy_named(f"las:{knob}").promote_knob for knob in ("0", "999999", "0.5")] == [0, 999999, 0.5]
    assert policy_named("las:0.5").name == "las:0.5"
    for knob in ("1000000", "-0.1", "nan"):
        with pytest.raises(ConfigError):
            policy_named(f"las:{knob}")


def test_arguments_of_placements_at_their_limits() -> None:
    assert placement_named("skew:1", 3) == Skew(1.0, 3)
    assert placement_named("skew", 3) == Skew(0.5, 3)
    assert placement_named("ladder:999999999") == Ladder(999999999.0)
    assert placement_named("spread-ladder:1") == Ladder(1.0, spreads=True)
    assert placement_named("count") is None
    for text in ("skew:0", "skew:1.1", "ladder:0", "ladder:1e9", "count:1"):
        with pytest.raises(ConfigError):
            placement_named(text)


# Room


def test_counted_gpus_are_given_and_taken_back_by_job() -> None:
    room = Counted(8)
    assert room.take(0, 5, 0)
    assert not room.take(1, 4, 0)
    assert room.take(1, 3, 0)
    assert (room.free_gpus, room.give_back(0), room.free_gpus) == (0, ((-1, 5),), 5)
    assert not room.retake(2, ((0, 4), (1, 2)))
    assert room.retake(2, ((0, 3), (1, 2)))
    assert (room.held, room.next_change(0)) == ({1: ((-1, 3),), 2: ((-1, 5),)}, None)


def test_the_same_gpus_are_retaken_only_if_all_are_free() -> None:
    room = Placed.on(Cluster.parse("2x8"), BestFit(), ticks_per_s=1)
    assert room.take(0, 12, 0)
    assert room.held == {0: ((0, 8), (1, 4))}
    shares = room.give_back(0)
    assert (room.free_gpus, room.nodes.free) == (16, [8, 8])
    assert room.retake(0, shares)
    assert (room.free_gpus, room.nodes.free) == (4, [0, 4])
    assert not room.retake(1, ((1, 5),))
    assert room.retake(1, ((1, 4),))
    assert room.free_gpus == 0


def test_refusals_climb_rung_by_rung_and_are_forgotten_once_there_is_a_place() -> None:
    room = Placed.on(Cluster.parse("4x4", rack_nodes=2), Ladder(relax_s=10.0), ticks_per_s=10)
    for row in range(4):
        assert room.take(row, 2, 0)  # two on each of the nodes 0 and 1
    assert room.nodes.free == [0, 0, 4, 4]
    assert room.take(9, 3, 0)
    assert room.nodes.free == [0, 0, 1, 4]
    room.give_back(0)
    assert not room.take(5, 6, 100)  # 2 and 5 are free in the racks
    assert [room._rung(5, now) for now in (100, 199, 200, 299, 300, 10_000)] == [0, 0, 1, 1, 2, 2]
    assert [room.next_change(now) for now in (100, 199, 200, 299, 300)] == [200, 200, 300, 300, None]
    assert room._rung(6, 10_000) == 0
    assert not room.take(5, 6, 299)
    assert room.take(5, 6, 300)
    assert sum(gpus for _, gpus in room.held[5]) == 6
    assert (room.refused, room.launches[5]) == ({}, 1)


def test_a_rung_that_nobody_waits_for_any_more_wakes_nobody() -> None:
    room = Placed.on(Cluster.parse("2x8"), Ladder(relax_s=100.0), ticks_per_s=1)
    room.take(0, 4, 0)
    room.take(1, 5, 0)
    assert not room.take(2, 6, 10)
    room.give_back(0)
    assert room.take(2, 6, 20)
    assert room.next_change(20) is None
    assert Placed.on(Cluster.parse("2x8"), Consolidate(), ticks_per_s=1).next_change(0) is None


def test_a_gang_larger_than_what_is_free_does_not_climb() -> None:
    room = Placed.on(Cluster.parse("2x8"), Ladder(relax_s=100.0), ticks_per_s=1)
    assert room.take(0, 8, 0)
    assert not room.take(1, 9, 0)
    assert (room.refused, room.next_change(0)) == ({}, None)
    room.avoid(2, 8, (1,))
    assert not room.take(2, 8, 0)  # 8 are free, on the node that it is kept off
    assert not room.refused


@pytest.mark.parametrize(
    "shares", [((0, 3),), ((0, 5),), ((0, 2), (0, 2)), ((0, 4), (1, 0)), ((0, 5), (1, -1)), ((1, 4),)], ids=str
)
def test_a_placement_gives_what_is_asked_and_free_on_different_nodes(shares: tuple[tuple[int, int], ...]) -> None:
    class Odd(BestFit):
        def choose(self, nodes: Nodes, ask: Ask) -> tuple[tuple[int, int], ...]:
            return shares if ask.row else BestFit.choose(self, nodes, ask) or ()

    room = Placed.on(Cluster.parse("2x8"), Odd(), ticks_per_s=1)
    room.nodes.free[1] = 3
    with pytest.raises(PlacementError):
        room.take(1, 4, 0)
    assert not room.held


def test_each_launch_is_told_apart() -> None:
    asked: list[Ask] = []

    class Told(BestFit):
        def choose(self, nodes: Nodes, ask: Ask) -> tuple[tuple[int, int], ...] | None:
            asked.append(ask)
            return BestFit.choose(self, nodes, ask)

    room = Placed.on(Cluster.parse("1x8"), Told(), ticks_per_s=1)
    for row in (3, 3, 4):
        room.take(row, 2, 0)
        room.give_back(row)
    assert asked == [Ask(3, 2, 0, 0), Ask(3, 2, 0, 1), Ask(4, 2, 0, 0)]


# Choosing nodes


def test_gathering_takes_all_of_one_node_after_the_other() -> None:
    assert gather([2, 0, 3], 4, (0, 1, 2)) == ((0, 2), (2, 2))
    assert gather([2, 0, 3], 5, (2, 1, 0)) == ((2, 3), (0, 2))
    assert gather([2, 0, 3], 6, (0, 1, 2)) is None
    assert gather([2, 0, 3], 2, (0, 1, 2)) == ((0, 2),)
    assert emptiest_first([2, 3, 3, 0], range(4)) == [1, 2, 0, 3]


def test_best_fit_splits_only_what_no_node_holds_and_then_the_emptiest_first() -> None:
    free = Nodes([8] * 3, [3, 6, 4], [0] * 3)
    assert BestFit().choose(free, Ask(0, 4, 0, 0)) == ((2, 4),)
    assert BestFit().choose(free, Ask(0, 7, 0, 0)) == ((1, 6), (2, 1))
    assert BestFit().choose(free, Ask(0, 14, 0, 0)) is None


def test_skewed_gangs_are_consolidated_and_others_fill_the_smallest_gaps() -> None:
    free = Nodes([8] * 3, [8, 1, 2], [0] * 3)
    assert Skew(share=1.0).choose(free, Ask(0, 2, 0, 0)) == ((2, 2),)
    assert Skew(share=0.0).choose(free, Ask(0, 2, 0, 0)) == ((1, 1), (2, 1))
    mixed = [Skew(0.5, seed).choose(free, Ask(row, 2, 0, 0)) for seed in (0, 1) for row in range(40)]
    drawn = [((2, 2),) if uniform(seed, row, 0) < 0.5 else ((1, 1), (2, 1)) for seed in (0, 1) for row in range(40)]
    assert mixed == drawn
    assert 20 < mixed.count(((2, 2),)) < 60


def test_each_job_and_each_launch_draws_nodes_of_its_own() -> None:
    """One of 64 free nodes, for each of ten jobs and three launches."""
    free = Nodes([8] * 64, [8] * 64, [0] * 64)
    for same in ("row", "launch"):
        drawn = {RandomFit(1).choose(free, Ask(n * (same == "launch"), 1, 0, n * (same == "row"))) for n in range(30)}
        assert len(drawn) > 10, same


def test_ladders_order_racks_by_what_is_free_or_by_its_share() -> None:
    uneven = Nodes([8, 8, 8, 8, 8], [4, 4, 8, 3, 8], [0, 0, 1, 2, 2])
    assert Ladder()._by_occupancy(uneven, 4) == [0, 1, 2]
    assert Ladder()._by_occupancy(uneven, 9) == [2]
    assert Ladder(spreads=True)._by_occupancy(uneven, 4) == [1, 2, 0]
    assert Ladder().choose(uneven, Ask(0, 4, 0, 0)) == ((0, 4),)
    assert Ladder(spreads=True).choose(uneven, Ask(0, 4, 0, 0)) == ((2, 4),)


def test_the_rest_of_a_gang_goes_beside_whole_nodes_not_on_them() -> None:
    rack = Nodes([4] * 4, [4, 4, 3, 2], [0] * 4)
    assert Ladder().choose(rack, Ask(0, 6, 0, 0)) == ((0, 4), (3, 2))
    assert Ladder(spreads=True).choose(rack, Ask(0, 6, 0, 0)) == ((0, 4), (1, 2))
    assert Ladder().choose(rack, Ask(0, 8, 0, 0)) == ((0, 4), (1, 4))
    assert Ladder().choose(rack, Ask(0, 12, 0, 0)) is None
    assert Ladder().choose(rack, Ask(0, 12, 1, 0)) == ((0, 4), (1, 4), (2, 3), (3, 1))
