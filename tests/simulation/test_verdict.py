"""What a comparison says: which policy, how sure that is, and who loses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perdure.simulation.by_day import DayTotals
from perdure.simulation.groups import GroupKind
from perdure.simulation.verdict import PolicyVerdict, judge, share_of

ALL, EVE, BOB, WIDE = (None, ""), (GroupKind.USER, "eve"), (GroupKind.USER, "bob"), (GroupKind.GPUS, "9+")


def totals(slowdown: float = 2.0, **jct_s: Any) -> DayTotals:
    """20 days with a job each of eve, bob and a wide one; JCTs by group."""
    days = np.array([np.broadcast_to(np.asarray(jct_s[name], float), 20) for name in ("eve", "bob", "wide")])
    every = np.concatenate([days.sum(axis=0, keepdims=True), days])
    logs = np.concatenate([np.log(days).sum(axis=0, keepdims=True), np.log(days)])
    many = np.array([[3] * 20, *[[1] * 20] * 3])
    return DayTotals((ALL, EVE, BOB, WIDE), 0, many, np.array([every, logs, many, slowdown * many]))


FIRST = totals(eve=100, bob=100, wide=100)


def says(**others: Any) -> PolicyVerdict:
    return judge(["fifo", *others], [[FIRST], *([each] for each in others.values())])


def test_the_best_is_named_with_how_much_and_who_loses_first_of_all() -> None:
    found = says(srtf=totals(eve=10, bob=10, wide=160))
    which, sure, loses = found.sentences()
    assert which.startswith("Best of 2 is srtf: against fifo jobs end 40 s sooner in the mean, -40% (-40% to -40%);")
    assert "typical job (geometric mean) -75%" in which
    assert sure.startswith("Intervals are at 95%, from 20 days")
    assert loses == "Who loses, by later ends of jobs: 1 of 1 size (9+ GPUs +60% (+60% to +60%))."
    assert [each.mark for each in found.standings] == ["", "best"]


def test_what_no_scheduler_knows_is_a_bound_and_never_the_advice() -> None:
    given = [[FIRST], [totals(eve=10, bob=10, wide=10)], [totals(eve=50, bob=50, wide=50)]]
    which = judge(["fifo", "srtf", "las"], given, [1]).sentences()[0]
    assert which.startswith("Best of the 2 that can be run is las: against fifo jobs end 50 s sooner")
    assert which.endswith(" Bounds, which know what no scheduler knows: srtf -90% (-90% to -90%).")
    stays = judge(["fifo", "srtf"], given[:2], [1])
    assert stays.sentences()[0].startswith(
        "Stay with fifo: none of the others that can be run is better in the mean. Bounds, "
    )
    assert [each.mark for each in stays.standings] == ["best", "bound"]
    alone = judge(["srtf", "srsf"], given[:2], [0, 1])
    assert alone.sentences()[0].startswith("Best of 2 is srsf: ")
    later = judge(["srtf", "fifo"], given[1::-1], [0]).sentences()[0]
    assert later.startswith(
        "Best of the 1 that can be run is fifo: against srtf jobs end 1.5 min later in the mean, +900%"
    )


def test_a_gain_that_may_be_none_is_not_certain() -> None:
    days = np.where(np.arange(20) < 10, 20.0, 170.0)
    which = says(las=totals(eve=days, bob=days, wide=days)).sentences()[0]
    assert ", which is not certain; the typical job" in which


def test_nobody_loses_where_all_gain() -> None:
    loses = says(srtf=totals(eve=10, bob=10, wide=90)).sentences()[2]
    assert loses == "Nobody is seen to lose, of 2 users and 1 size with jobs enough."


def test_where_the_first_is_the_best_nothing_changes() -> None:
    found = says(las=totals(eve=100, bob=100, wide=400), same=FIRST)
    which, _, loses = found.sentences()
    assert which == "Stay with fifo: none of the others is better in the mean. No difference from it: same."
    assert loses == "Nobody loses, since nothing changes."
    assert [each.mark for each in found.standings] == ["best", "", "no difference"]


def test_a_typical_job_that_gains_is_told_where_the_mean_does_not() -> None:
    found = says(some=totals(eve=30, bob=30, wide=400), las=totals(eve=10, bob=10, wide=400))
    assert found.sentences()[0].startswith(
        "Stay with fifo: none of the others is better in the mean. "
        "But the typical job (geometric mean) ends sooner under las: -66% (-66% to -66%)."
    )
    bound = judge(
        ["fifo", "srtf", "las"], [[FIRST], [totals(eve=1, bob=1, wide=400)], [totals(eve=99, bob=99, wide=120)]], [1]
    )
    assert "typical job" not in bound.sentences()[0]


@pytest.mark.parametrize(("slowdown", "said"), [(1.0, True), (1.019, True), (1.03, False), (2.0, False)])
def test_where_jobs_hardly_wait_no_policy_can_gain_much(slowdown: float, said: bool) -> None:
    first = totals(slowdown, eve=100, bob=100, wide=100)
    for other in (totals(eve=100, bob=100, wide=101), totals(eve=99, bob=99, wide=99)):
        which = judge(["fifo", "las"], [[first], [other]]).sentences()[0]
        told = f"Jobs hardly wait under it (slow-down {slowdown:.2f}), so no policy can gain much: try a higher --load."
        assert which.startswith("Stay with fifo")
        assert (told in which) is said


def test_of_many_groups_those_that_differ_by_chance_are_not_named() -> None:
    """Of 200 users none is another; by their own intervals some are."""
    rng = np.random.default_rng(5)
    users = tuple((GroupKind.USER, f"u{n}") for n in range(200))

    def drawn(shift: float) -> DayTotals:
        days = np.exp(rng.normal(4, 0.5, (200, 20)))
        days[0] *= 1 + shift
        every = np.concatenate([days.sum(axis=0, keepdims=True), days])
        many = np.concatenate([np.full((1, 20), 200), np.ones((200, 20), int)])
        return DayTotals((ALL, *users), 0, many, np.array([every, np.log(every), many, many * 2.0]))

    (standing,) = judge(["fifo", "las"], [[drawn(0)], [drawn(9)]]).standings[1:]
    alone = [group for group, of in standing.against_first.items() if of["jct_s"].is_sure and of["jct_s"].change > 0]
    assert users[0] in alone
    assert len(alone) > 3
    assert list(standing.losers) == [users[0]]
    assert {each["name"] for each in standing.to_json()["groups"] if each["changed"]} == {"u0"}


def test_less_than_a_twentieth_is_no_difference() -> None:
    found = says(one=totals(eve=50, bob=50, wide=50), other=totals(eve=51, bob=51, wide=51))
    assert found.best.label == "one"
    assert found.sentences()[0].endswith(" No difference from it: other.")


def test_nobody_is_told_to_change_for_less_than_a_twentieth() -> None:
    which = says(fjf=totals(eve=98, bob=98, wide=98), far=totals(eve=300, bob=300, wide=300)).sentences()[0]
    assert which == (
        "Stay with fifo: best of 3 is fjf, but that is no difference: -2% (-2% to -2%); "
        "the typical job (geometric mean) -2% (-2% to -2%)."
    )


def test_a_mean_alike_is_no_reason_to_stay_where_the_typical_job_gains() -> None:
    which = says(las=totals(eve=10, bob=10, wide=275)).sentences()[0]
    assert which.startswith("Best of 2 is las: against fifo jobs end ")
    assert which.endswith(" No difference from it: fifo.")


def test_a_difference_that_days_do_not_agree_on_is_not_certain() -> None:
    swaying = totals(eve=100, bob=100, wide=100)
    swaying.totals[0, 0] *= np.random.default_rng(0).permutation([0.01, 0.01, 0.01, 8.0] * 5)
    found = judge(["fifo", "sway"], [[FIRST], [swaying]])
    assert found.best.label == "fifo"
    assert found.sentences()[0].endswith("Not certain to be worse: sway.")


@pytest.mark.parametrize(
    ("kind", "said"),
    [(GroupKind.USER, "users (eve"), (GroupKind.CLUSTER, "virtual cluster (eve"), (GroupKind.GPUS, "sizes (eve")],
)
def test_who_loses_is_named_whatever_kind_of_group_it_is(kind: GroupKind, said: str) -> None:
    first, other = (
        replace(each, groups=(ALL, (kind, "eve"), BOB, WIDE)) for each in (FIRST, totals(eve=160, bob=1, wide=1))
    )
    loses = judge(["fifo", "las"], [[first], [other]]).sentences()[2]
    assert loses.startswith("Who loses, by later ends of jobs: 1 of ")
    assert said in loses


def test_who_ends_later_on_some_days_and_sooner_on_others_is_no_loser() -> None:
    days = np.where(np.arange(20) < 10, 20.0, 190.0)
    assert says(las=totals(eve=days, bob=1, wide=1)).sentences()[2].startswith("Nobody is seen to lose, of 2 users")


def test_who_ends_later_but_not_surely_is_named_as_such() -> None:
    days = np.where(np.arange(20) < 10, 20.0, 240.0)
    loses = says(las=totals(eve=days, bob=1, wide=1)).sentences()[2]
    assert loses.startswith(
        "Nobody is seen to lose, of 2 users and 1 size with jobs enough. Later, but not surely: user eve +30% ("
    )
    some = says(las=totals(eve=days, bob=110, wide=1)).sentences()[2]
    assert some.startswith(
        "Who loses, by later ends of jobs: 1 of 2 users (bob +10% (+10% to +10%)). Later, but not surely: user eve"
    )
    assert "Later" not in says(las=totals(eve=np.where(days < 100, 20.0, 184.0), bob=1, wide=1)).sentences()[2]


def test_losers_stand_in_the_order_of_the_time_that_they_lose() -> None:
    found = says(srtf=totals(eve=110, bob=150, wide=1))
    assert [group[1] for group in found.best.losers] == ["bob", "eve"]
    assert found.to_json()["standings"][1]["groups"][1]["name"] == "bob"


def test_who_loses_is_decided_by_the_interval_that_is_shown() -> None:
    """Also where jobs are like a heavy tail: whoever is named has an interval above 0."""
    rng = np.random.default_rng(3)
    users = tuple((GroupKind.USER, f"u{n}") for n in range(100))

    def drawn(shift: float) -> DayTotals:
        days = 1 + rng.pareto(1.1, (100, 40))
        days[:30] *= 1 + shift
        every = np.concatenate([days.sum(axis=0, keepdims=True), days])
        many = np.concatenate([np.full((1, 40), 100), np.ones((100, 40), int)])
        return DayTotals((ALL, *users), 0, many, np.array([every, np.log(every), many, many * 2.0]))

    best = judge(["fifo", "las"], [[drawn(0)], [drawn(2)]]).standings[1]
    assert len(best.losers) > 5
    assert all(each.low is not None and each.low > 0 for each in best.losers.values())


def test_the_time_that_all_jobs_of_a_group_lose_decides_who_is_named_first() -> None:
    first, other = (
        replace(each, jobs=each.jobs.copy(), totals=each.totals.copy())
        for each in (FIRST, totals(eve=120, bob=150, wide=1))
    )
    for each in (first, other):
        each.jobs[1] *= 10
        each.totals[:, 1] *= 10
    assert [group[1] for group in judge(["fifo", "las"], [[first], [other]]).best.losers] == ["eve", "bob"]


def test_groups_of_too_few_days_are_not_counted_among_those_that_were_looked_at() -> None:
    first, other = (replace(each, jobs=each.jobs.copy()) for each in (FIRST, totals(eve=60, bob=60, wide=60)))
    for each in (first, other):
        each.jobs[2, 6:] = 0
    loses = judge(["fifo", "las"], [[first], [other]]).sentences()[2]
    assert loses == "Nobody is seen to lose, of 1 user and 1 size with jobs enough."


def test_all_jobs_together_are_not_one_of_the_many_that_are_tested() -> None:
    assert set(says(las=totals(eve=50, bob=50, wide=50)).best.changed) == {EVE, BOB, WIDE}


def test_how_many_lose_beside_those_that_are_named_is_said() -> None:
    users = tuple((GroupKind.USER, f"u{n}") for n in range(5))

    def five(jct_s: float) -> DayTotals:
        days = np.full((5, 20), jct_s)
        every = np.concatenate([np.full((1, 20), 1000.0 - jct_s), days])
        many = np.concatenate([np.full((1, 20), 5), np.ones((5, 20), int)])
        return DayTotals((ALL, *users), 0, many, np.array([every, np.log(every), many, many * 2.0]))

    loses = judge(["fifo", "las"], [[five(100)], [five(200)]]).sentences()[2]
    assert "5 of 5 users (u0 +100% (+100% to +100%), u1 " in loses
    assert loses.endswith(", and 2 more).")


def test_a_gain_that_comes_of_jobs_that_fail_sooner_is_told() -> None:
    given = [[FIRST], [totals(eve=10, bob=10, wide=10)], [totals(eve=9, bob=9, wide=9)]]
    which = judge(["fifo, always:2", "fifo, never", "fifo, oracle"], given, [2], [0.7, 0.68, 0.9]).sentences()[0]
    assert which.endswith(
        " But more jobs pass under fifo, always:2: 70.0% instead of 68.0%; jobs that fail for good end sooner."
    )
    assert "more jobs pass" not in judge(["fifo", "las"], given[:2], (), [0.7, 0.7]).sentences()[0]
    stays = judge(["never", "always:2"], [given[1], given[0]], (), [0.68, 0.7]).sentences()[0]
    assert stays.startswith("Stay with never: ")
    assert "But more jobs pass under always:2: 70.0% instead of 68.0%" in stays


@pytest.mark.parametrize(("jct_s", "said"), [(0.3, "-99.7% ("), (0.0001, "-99.9% ("), (20.0, "-80% (")])
def test_what_is_left_of_a_large_gain_is_shown(jct_s: float, said: str) -> None:
    found = says(las=totals(eve=jct_s, bob=jct_s, wide=jct_s)).best
    assert share_of(found.jct).startswith(said)
