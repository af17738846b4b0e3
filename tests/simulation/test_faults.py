"""Faults of nodes: by hand, as laws for every policy and placement, and as the retry policies take them."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.retry.rules import RetryRules
from perdure.scheduling.placement.registry import PLACEMENTS
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.checks import FAULT_LAWS, Replay
from perdure.simulation.failures import NODE_FAULT, REPAIR_DAYS, Failures, Nature, draw_repairs_s, model_named, recorded
from perdure.simulation.faults import MOST_MET, NodeFaults
from perdure.simulation.metrics import summary
from perdure.simulation.result import Result
from perdure.simulation.retries import RETRY_POLICIES, Always, RetryForm, ServiceRetries, TraceClassifier, retry_named
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.simulation.simulate import simulate
from tests.conftest import require
from tests.simulation.tables import faults_of, faulty, jobs, with_attempts

TWO = Cluster.parse("2x8")
DAY_S = 86_400.0


def tried(*lists: list[tuple[float, bool]], gpus: int = 1) -> JobTable:
    rows = [(gpus, 0, 1)] * len(lists)
    return jobs(*rows, attempts=with_attempts(jobs(*rows), lists))


def off_bad_nodes(failed: FailedRun) -> Again:
    return Again(avoid=(failed.bad,) if failed.bad >= 0 else ())


def one_failure(retry: Retry, repair_s: float, cluster: Cluster = TWO, then_s: float = 100.0) -> Result:
    """A job that fails after 60 s for a fault of its node, and else runs for `then_s`."""
    table = tried([(60, False), (then_s, True)])
    return simulate(table, cluster, "fifo", "best-fit", retry, faults=faults_of(table, {0: (0.0, repair_s)}))


def test_who_comes_back_to_a_bad_node_fails_there_again() -> None:
    found = one_failure(Always(3), 10_000.0)
    assert found.attempts.end_s.tolist() == [60, 120, 180, 240]
    assert found.attempts.number.tolist() == [1, 2, 3, 4]
    assert found.attempts.record.tolist() == [0, 0, 0, 0]
    assert not found.passed[0]


def test_who_is_kept_off_it_passes() -> None:
    found = one_failure(off_bad_nodes, 10_000.0)
    assert found.attempts.end_s.tolist() == [60, 160]
    assert found.attempts.node.tolist() == [0, 1]
    assert found.passed[0]


def test_a_repaired_node_harms_nobody() -> None:
    found = one_failure(Always(9), 100.0)  # bad until 160
    assert found.attempts.end_s.tolist() == [60, 120, 180, 280]
    assert found.attempts.node.tolist() == [0, 0, 0, 0]
    assert one_failure(Always(9), 0.0).attempts.end_s.tolist() == [60, 160]


def test_who_ends_before_the_fault_strikes_is_not_harmed() -> None:
    assert one_failure(Always(3), 10_000.0, then_s=59.0).attempts.end_s.tolist() == [60, 119]
    assert one_failure(Always(3), 10_000.0, then_s=60.0).attempts.end_s.tolist() == [60, 120]
    assert one_failure(Always(3), 10_000.0, then_s=61.0).attempts.end_s.tolist() == [60, 120, 180, 240]


def test_a_job_that_finds_no_other_place_goes_where_it_was() -> None:
    found = one_failure(off_bad_nodes, 100.0, Cluster.parse("1x8"))
    assert found.attempts.end_s.tolist() == [60, 120, 180, 280]


def test_a_job_that_meets_one_fault_for_ever_is_over_at_last() -> None:
    assert len(one_failure(Always(10**6), 1e9).attempts.job) == MOST_MET


def test_without_nodes_or_without_a_retry_policy_attempts_are_as_recorded() -> None:
    table = tried([(60, False), (100, True)])
    faults = faults_of(table, {0: (0.0, 1e6)})
    for placement, retry in (("count", Always(3)), ("best-fit", None)):
        assert simulate(table, TWO, "fifo", placement, retry, faults=faults).attempts.end_s.tolist() == [60, 160]


def test_others_are_well_on_a_node_that_is_bad_for_one() -> None:
    table = tried([(60, False), (100, True)], [(500, True)])
    found = simulate(table, TWO, "fifo", "best-fit", Always(1), faults=faults_of(table, {0: (0.0, 1e6)}))
    assert found.attempts.node.tolist() == [0, 0, 0]
    assert found.passed.tolist() == [False, True]


def test_further_tries_against_one_fault_are_made_where_it_is_only() -> None:
    table = tried([(60, False), (60, False), (60, False), (100, True)])
    faults = faults_of(table, dict.fromkeys(range(3), (0.0, 1e6)), again=(1, 2))
    assert simulate(table, TWO, "fifo", "best-fit", off_bad_nodes, faults=faults).attempts.end_s.tolist() == [60, 160]


@pytest.mark.parametrize(("pick", "bad"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.99, 1)])
def test_the_draw_says_which_node_of_a_gang_is_bad(pick: float, bad: int) -> None:
    table = tried([(60, False), (100, True)], gpus=16)
    told = []
    simulate(table, TWO, "fifo", "consolidate", told.append, faults=faults_of(table, {0: (pick, 1e6)}))
    assert [(failed.nodes, failed.bad, failed.all_nodes) for failed in told] == [((0, 1), bad, 2)]


def test_a_preempted_attempt_goes_on_elsewhere_unharmed() -> None:
    """It starts again on the bad node at 60, yields to a shorter job at 80, and goes on from 100 on the other node."""
    rows = [(8, 0, 1), (8, 0, 1), (8, 80, 1)]
    lists = [[(60, False), (2000, True)], [(100, True)], [(500, True)]]
    table = jobs(*rows, attempts=with_attempts(jobs(*rows), lists))
    faults = faults_of(table, {0: (0.0, 1e6)})
    spans = simulate(table, TWO, "srtf", "best-fit", Always(5), faults=faults, spans=True).spans
    assert spans is not None
    columns = spans.job, spans.start_s, spans.end_s, spans.shares
    mine = [(start, end, shares[0][0]) for job, start, end, shares in zip(*columns, strict=True) if job == 0]
    assert mine == [(0, 60, 0), (60, 80, 0), (100, 2080, 1)]


def test_waste_is_charged_to_the_cause_of_the_fault() -> None:
    table = tried([(3600, False), (7200, True)])
    found = simulate(table, TWO, "fifo", "best-fit", Always(2), faults=faults_of(table, {0: (0.0, 1e9)}))
    assert summary(table, found, ["dust", ""]).wasted_gpu_h_by_cause == {"dust": 3.0}


RETRIES: dict[str, Callable[[], Retry]] = {
    "blind": lambda: lambda failed: Again() if failed.number < 9 else None,
    "off bad nodes": lambda: off_bad_nodes,
    "off all": lambda: lambda failed: Again(float(failed.number % 3), failed.nodes),
}


OPTIONS = PolicyOptions(queue_limits=(20.0, 60.0))


@pytest.mark.parametrize("law", FAULT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", ["fifo", "sjf:skip", "srtf", "las-2d", "philly", "easy", "maxmin"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    given_=faulty(),
    placement=st.sampled_from([*PLACEMENTS]),
    racks=st.sampled_from([0, 2]),
    retry=st.sampled_from([*RETRIES]),
)
def test_laws(
    name: str,
    law: Callable[[Replay], None],
    given_: tuple[JobTable, NodeFaults],
    placement: str,
    racks: int,
    retry: str,
) -> None:
    table, faults = given_
    cluster = Cluster.parse("3x4+1x8", rack_nodes=racks)
    law(Replay(table, cluster, policy_named(name, OPTIONS), placement, 7, RETRIES[retry], faults))


def test_only_failures_bound_to_a_node_leave_a_fault_and_tries_against_one_are_told_apart() -> None:
    n = 4000
    column = np.arange(n).astype("U8"), np.zeros(n), np.ones(n, np.int64), np.full(n, 20 * DAY_S)
    failures = model_named("philly+nodes")(JobTable(*column), 2)
    faults = failures.node_faults(5)
    assert np.array_equal(faults.bound, failures.nature == Nature.NODE_BOUND)
    assert not faults.again[failures.causes == NODE_FAULT].any()
    assert not (faults.again & ~faults.bound).any()
    owner = np.repeat(np.arange(n), np.diff(failures.table.attempts.first))
    gray = faults.bound & (failures.causes != NODE_FAULT)
    assert np.array_equal(np.unique(owner[gray & ~faults.again]), np.unique(owner[gray]))
    assert np.bincount(owner[gray & ~faults.again]).max() == 1
    picks = faults.pick[faults.bound]
    assert picks.mean() == pytest.approx(0.5, abs=4 * 0.29 / np.sqrt(len(picks)))
    same = failures.node_faults(5)
    assert np.array_equal(same.pick, faults.pick)
    assert np.array_equal(same.repair_s, faults.repair_s)


def test_repairs_take_as_long_as_in_the_published_trace(data_dir: Path | None) -> None:
    path = (data_dir or Path()) / "traces/gpu_faults/infinitehbd_fault_trace_first250d.json.gz"
    require("data", path.is_file(), "no fault trace here")
    open_: dict[tuple[str, str], list[float]] = defaultdict(list)
    days = []
    for event in json.loads(gzip.decompress(path.read_bytes())):
        fault = event["node_id"], json.dumps(event["fault_type"], sort_keys=True)
        if event["event_type"] == "fault_start":
            open_[fault].append(event["event_time"])
        elif open_[fault]:
            days.append(event["event_time"] - open_[fault].pop(0))
    assert len(days) == 399
    assert [*REPAIR_DAYS.values()] == pytest.approx(np.quantile(days, [*REPAIR_DAYS]), rel=0.01, abs=0.0006)


def test_drawn_repairs_have_the_published_quantiles() -> None:
    drawn = draw_repairs_s(40_000, np.random.default_rng(0)) / DAY_S
    for place, days in REPAIR_DAYS.items():
        assert np.quantile(drawn, place) == pytest.approx(days, rel=0.1)


def gray_failures(users: Sequence[str], cause: str) -> Failures:
    """Of each user one job, that fails once for a fault of a node."""
    lists = [[(60.0, False), (600.0, True)]] * len(users)
    rows = [(1, 0, 660)] * len(users)
    found = recorded(jobs(*rows, user=users, attempts=with_attempts(jobs(*rows), lists)))
    found.nature[found.nature == Nature.TRANSIENT] = Nature.NODE_BOUND
    causes = np.where(found.causes == "", "", np.full(len(found.causes), cause))
    return Failures(found.table, found.nature, causes)


def told(row: int, nodes: tuple[int, ...], bad: int, now_s: float = 60.0) -> FailedRun:
    return FailedRun(row, 1, 2 * row, now_s, 60.0, nodes, bad, frozenset(), 8)


def test_the_service_keeps_a_retry_off_the_nodes_of_the_attempt() -> None:
    service = ServiceRetries(TraceClassifier(gray_failures(["a"], "cuda failure"), 0, 1.0, 0.0))
    answer = service(told(0, (3, 5), 5))
    assert answer is not None
    assert answer.avoid == (3, 5)


def test_the_service_knows_which_node_went_down() -> None:
    service = ServiceRetries(TraceClassifier(gray_failures(["a"], NODE_FAULT), 0, 1.0, 0.0))
    answer = service(told(0, (3, 5), 5))
    assert answer is not None
    assert answer.avoid == (5,)


def test_nodes_on_which_jobs_of_several_users_failed_are_blamed_and_kept_free() -> None:
    service = ServiceRetries(TraceClassifier(gray_failures(["a", "b", "a", "c"], "cuda failure"), 0, 1.0, 0.0))
    for row in range(3):
        service(told(row, (2,), 2))
    answer = service(told(3, (6,), 6))
    assert answer is not None
    assert set(answer.avoid) == {6, 2}


def test_the_service_keeps_the_budgets_that_jobs_share() -> None:
    """Of two retries an hour the third failure of that hour waits for the first to be an hour old."""
    rules = RetryRules(cluster_floor_per_hour=2, cluster_share_per_hour=0.0, user_share=1.0)
    service = ServiceRetries(TraceClassifier(gray_failures(["a", "b", "c"], "connection lost"), 0, 1.0, 0.0), rules)
    waits = [service(told(row, (row,), -1, 60.0 + row)) for row in range(3)]
    first, second, third = (answer.delay_s for answer in waits if answer is not None)
    assert max(first, second) < 600
    assert 62.0 + third >= 60.0 + first + 3600.0


def test_blind_retries_lose_to_bad_nodes_what_those_that_see_nodes_do_not() -> None:
    failures = gray_failures(["a", "b", "c"], "cuda failure")
    faults = failures.node_faults(0)
    faults.repair_s[:] = 1e6
    passed = {
        name: simulate(failures.table, TWO, "fifo", "first-fit", retry_named(name)(failures, 0), faults=faults).passed
        for name in ("never", "always:3", "predicted:1,0", "oracle", "service:1,0")
    }
    assert {name: bool(ok.all()) for name, ok in passed.items()} == {
        "never": False, "always:3": False, "predicted:1,0": True, "oracle": True, "service:1,0": True,
    }  # fmt: skip


def test_a_retry_policy_registered_by_a_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        RETRY_POLICIES,
        "once",
        RetryForm("once", lambda *_: lambda failures, seed: Always(1), "once", "Once", "One retry"),
    )
    failures = recorded(tried([(1.0, True)]))
    assert retry_named("once")(failures, 0) == retry_named("always:1")(failures, 0)
    with pytest.raises(ConfigError, match="service:TPR,FPR, once"):
        retry_named("once:3")
