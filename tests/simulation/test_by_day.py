"""What jobs got by day and group, and what is said of it: sums, order, and what equal schedules must give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.by_day import LEAST_JOBS, MEASURES, DayTotals, day_totals
from perdure.simulation.difference import LEAST_DAYS, PairedDifference, differences
from perdure.simulation.groups import SIZES, Grouping, GroupKind, groupings, size_name
from perdure.simulation.metrics import slowdown
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate
from perdure.simulation.verdict import judge, length, share_of
from tests.simulation.tables import jobs

DAY = 86_400
CLUSTER = Cluster.parse("1x16")
ALL = (None, "")


def trace(seed: int, days: int, a_day: int) -> JobTable:
    rng = np.random.default_rng(seed)
    n = days * a_day
    submit = np.sort(rng.integers(0, days * DAY, n))
    rows = zip(rng.choice([1, 2, 8, 16], n, p=[0.4, 0.3, 0.2, 0.1]), submit, rng.integers(1, 9000, n), strict=True)
    return jobs(*rows, user=rng.choice(["eve", "bob", "ann"], n).tolist(), vc=rng.choice(["x", "y"], n).tolist())


def got(table: JobTable, result: Result) -> dict[str, np.ndarray]:
    jct_s, wait_s = result.end_s - table.submit_s, result.start_s - table.submit_s
    return {"jct_s": jct_s, "log_jct": np.log(jct_s), "wait_s": wait_s, "slowdown": slowdown(table, result)}


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_totals_are_the_sums_over_the_jobs_of_each_day_and_group(policy: str) -> None:
    table = trace(1, days=5, a_day=40)
    result = simulate(table, CLUSTER, policy)
    parts = groupings(table)
    found = day_totals(table, result, parts)
    day = (table.submit_s // DAY).astype(int)
    members = {(part.kind, name): part.of == place for part in parts for place, name in enumerate(part.names)}
    wanted = [group for group, of in members.items() if of.sum() >= LEAST_JOBS]
    assert found.groups == (ALL, *wanted)
    for place, group in enumerate(found.groups):
        of = members.get(group, np.ones(len(table), bool))  # type: ignore[arg-type]
        for each in range(5):
            then = of & (day == each)
            assert found.jobs[place, each] == then.sum()
            for n, name in enumerate(MEASURES):
                assert found.totals[n, place, each] == pytest.approx(got(table, result)[name][then].sum())


def test_of_many_groups_the_largest_are_looked_at_in_their_order() -> None:
    many = [19, 20, *[25] * 250, 30]
    of = np.repeat(np.arange(len(many)), many)
    grouping = Grouping(GroupKind.USER, tuple(f"u{place:03}" for place in range(len(many))), of)
    table = jobs(*[(1, 0, 1)] * len(of))
    found = day_totals(table, simulate(table, Cluster.parse("1x512"), "fifo"), [grouping])
    names = [name for _, name in found.groups[1:]]
    assert names == sorted(names)
    assert len(names) == 200
    assert (names[:2], names[-2:]) == (["u002", "u003"], ["u200", "u252"])  # of equal ones the first


def test_no_jobs_have_no_days_to_speak_of() -> None:
    table = jobs()
    found = day_totals(table, simulate(table, CLUSTER, "fifo"), groupings(table))
    assert (found.groups, found.jobs.tolist(), found.totals.sum()) == ((ALL,), [[0]], 0.0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_each_job_is_in_the_class_of_its_size_and_no_class_is_empty(gpus: list[int]) -> None:
    sizes = groupings(jobs(*((many, 0, 1) for many in gpus)))[2]
    names = {size_name(low, high): (low, high) for low, high in SIZES}
    assert set(sizes.of.tolist()) == set(range(len(sizes.names)))
    assert list(sizes.names) == [name for name in names if name in sizes.names]
    for many, place in zip(gpus, sizes.of, strict=True):
        low, high = names[sizes.names[place]]
        assert low <= many <= high


@given(st.lists(st.sampled_from(["", "ann", "bob", "Zoe"]), min_size=1, max_size=12))
def test_groups_have_sorted_names_and_each_row_its_own(users: list[str]) -> None:
    found = groupings(jobs(*[(1, 0, 1)] * len(users), user=users))[1]
    assert list(found.names) == sorted(set(users))
    assert [found.names[place] for place in found.of] == users


def totals_of(table: JobTable, *policies: str) -> list[list[DayTotals]]:
    return [[day_totals(table, simulate(table, CLUSTER, policy), groupings(table))] for policy in policies]


@pytest.mark.parametrize("policies", [("fifo",), ("fifo", "fifo"), ("srtf", "srtf", "srtf")])
def test_equal_schedules_differ_by_nothing_and_the_first_is_kept(policies: tuple[str, ...]) -> None:
    verdict = judge([f"p{i}" for i in range(len(policies))], totals_of(trace(2, 9, 8), *policies))
    assert verdict.best.label == "p0"
    assert [each.mark for each in verdict.standings] == ["best", *["no difference"] * (len(policies) - 1)]
    which, _, loses = verdict.sentences()
    assert which.startswith("Stay with p0: none of the others is better in the mean.")
    assert loses == "Nobody loses, since nothing changes."
    assert all(not each.losers and each.jct.change == 0 for each in verdict.standings)


def test_the_best_has_the_least_mean_and_two_policies_mirror_each_other() -> None:
    table = trace(3, 10, 20)
    fifo, srtf = totals_of(table, "fifo", "srtf")
    there, back = differences(srtf, fifo), differences(fifo, srtf)
    for group, of in there.items():
        for name, one in of.items():
            other = back[group][name]
            assert (one.jobs, one.mean, one.other) == (other.jobs, other.other, other.mean)
            assert one.is_sure == other.is_sure
    better = min(("fifo", fifo), ("srtf", srtf), key=lambda each: each[1][0].totals[0, 0].sum())[0]
    assert judge(["fifo", "srtf"], [fifo, srtf]).best.label == better
    assert judge(["srtf", "fifo"], [srtf, fifo]).best.label == better


@settings(max_examples=20, deadline=None)
@given(st.integers(1, LEAST_DAYS - 1))
def test_of_few_days_nothing_is_said_to_be_certain(days: int) -> None:
    verdict = judge(["a", "b"], totals_of(jobs(*((16, day * DAY, 9) for day in range(days))), "fifo", "srtf"))
    assert verdict.days == days
    assert f"jobs came on {days} day{'s' * (days > 1)}, and {LEAST_DAYS} are needed" in verdict.sentences()[1]


@given(st.floats(0, 1e7))
def test_a_length_is_told_in_the_largest_unit_of_which_it_has_one(seconds: float) -> None:
    number, unit = length(seconds).split()
    units = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
    unit_s = units[unit]
    assert float(number) * unit_s == pytest.approx(seconds, abs=0.51 if unit == "s" else 0.051 * unit_s)
    assert unit == max((each for each in units if units[each] <= seconds), key=units.__getitem__, default="s")


def test_a_share_is_told_with_its_interval_where_there_is_one() -> None:
    assert share_of(PairedDifference(9, 80.0, 100.0)) == "-20%"
    assert share_of(PairedDifference(9, 80.0, 100.0, -0.3, 0.05)) == "-20% (-30% to +5%)"
    nothing = PairedDifference(9, 0.0, 0.0)
    assert (nothing.share, nothing.is_sure, share_of(nothing)) == (0.0, False, "+0%")
    assert [PairedDifference(1, 1, 1, low, high).is_sure for low, high in ((-0.2, 0), (0.1, 0.2), (-1, -0.1))] == [
        False, True, True,
    ]  # fmt: skip
