"""Schedules that other simulators printed, or that are derived by hand, come out the same to the second."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.gittins import GittinsIndex
from perdure.scheduling.las import LeastAttained
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.result import Result
from perdure.simulation.retry_hook import Again, FailedRun
from perdure.simulation.simulate import simulate
from tests.conftest import SCHEDULES, require
from tests.simulation.tables import jobs, with_attempts

Case = dict[str, Any]
THEIRS = [("60_job", 8), ("60_job", 16)]  # a trace that came with Tiresias
OURS = [("syn40b", 16), ("syn200", 32), ("syn480", 60)]
GITTINS = "dlas-gpu-gittins"


@pytest.fixture(scope="module")
def tiresias(data_dir: Path | None) -> Path:
    where = require("data", data_dir, "no golden schedules here") / "golden-schedulers" / "tiresias"
    require("data", where.is_dir(), "no golden schedules here")
    return where


def rows_of(result: Result) -> list[tuple[int, int, int, int]]:
    columns = result.start_s, result.end_s, result.preempted, result.promoted
    return list(zip(*(column.astype(int).tolist() for column in columns), strict=True))


def given(folder: Path, trace: str) -> JobTable:
    with gzip.open(folder / f"{trace}.csv.gz", "rt") as lines:
        rows = csv.DictReader(lines)
        asked = [(r["job_id"], int(r["submit_time"]), int(r["num_gpu"]), int(r["duration"])) for r in rows]
    ids, submit, width, duration = zip(*asked, strict=True)
    return JobTable(np.array(ids), np.array(submit, float), np.array(width), np.array(duration, float))


def printed(folder: Path, trace: str, gpus: int, table: JobTable) -> dict[str, list[tuple[int, ...]]]:
    """By policy, the rows that Tiresias printed for the jobs of the table, in their order."""
    expected: dict[str, list[tuple[int, ...]]] = {}
    with gzip.open(folder / f"{trace}@{gpus}gpu.expected.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            wanted = tuple(int(row[key]) for key in ("start", "end", "preempt", "promote"))
            assert row["job_id"] == table.job_id[len(expected.setdefault(row["policy"], []))]
            expected[row["policy"]].append(wanted)
    assert len(expected) >= 9
    return expected


@pytest.mark.parametrize(("trace", "gpus"), OURS)
def test_schedules_that_tiresias_printed(trace: str, gpus: int) -> None:
    table = given(SCHEDULES, trace)
    expected = printed(SCHEDULES, trace, gpus, table)
    for policy in expected.keys() - {GITTINS}:
        found = simulate(table, Cluster.parse(f"1x{gpus}"), policy, compat="tiresias")
        assert rows_of(found) == expected[policy], policy


@pytest.mark.parametrize(("trace", "gpus"), [*THEIRS, *OURS])
def test_schedules_of_its_own_trace_or_by_its_samples(tiresias: Path, trace: str, gpus: int) -> None:
    with (tiresias / "yarn-gput1000.csv").open() as lines:
        samples = tuple(float(row["duration"]) for row in csv.DictReader(lines))
    table = given(tiresias, trace)
    expected = printed(tiresias, trace, gpus, table)
    options = PolicyOptions(gittins_samples=samples)
    for policy in expected if (trace, gpus) in THEIRS else (GITTINS,):
        found = simulate(table, Cluster.parse(f"1x{gpus}"), policy, compat="tiresias", options=options)
        assert rows_of(found) == expected[policy], policy


def by_hand(case: Case) -> tuple[JobTable, Cluster, list[tuple[int, ...]]]:
    given = case["input"]
    wanted = [tuple(row[key] for key in ("start", "end", "preempt", "promote")) for row in case["expected"]]
    return jobs(*given["jobs_g_submit_dur"]), Cluster.parse(f"1x{given['gpus']}"), wanted


@pytest.mark.parametrize("policy", ["fifo", "fjf", "srtf", "srsf"])
def test_basic_schedules_by_hand(hand_cases: dict[str, Case], policy: str) -> None:
    table, cluster, wanted = by_hand(hand_cases[f"basic-{policy}"])
    assert rows_of(simulate(table, cluster, policy)) == wanted
    assert rows_of(simulate(table, cluster, policy, compat="tiresias")) == wanted


@pytest.mark.parametrize(("name", "late"), [("2dlas-exact", False), ("2dlas-tiresias-repo", True)])
def test_demotion_by_hand(hand_cases: dict[str, Case], name: str, late: bool) -> None:
    table, cluster, wanted = by_hand(hand_cases[name])
    limits = tuple(map(float, hand_cases[name]["input"]["gpu_second_thresholds"]))
    options = PolicyOptions(queue_limits=limits, compat="tiresias" if late else None)
    assert rows_of(simulate(table, cluster, "las-2d", options=options)) == wanted


def test_promotion_by_hand(hand_cases: dict[str, Case]) -> None:
    table, cluster, wanted = by_hand(hand_cases["2dlas-promote-knob"])
    assert rows_of(simulate(table, cluster, LeastAttained(queue_limits=(100.0,), promote_knob=1.0))) == wanted
    options = PolicyOptions(queue_limits=(100.0,), compat="tiresias")
    assert rows_of(simulate(table, cluster, "dlas-gpu-1", options=options)) == wanted


def test_gittins_index_by_hand(hand_cases: dict[str, Case]) -> None:
    case = hand_cases["gittins-index"]
    index = GittinsIndex.of(case["input"]["samples"], case["input"]["delta"])
    for attained, wanted in case["expected"].items():
        assert index.at(float(attained)) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["retry-never", "retry-3", "retry-oracle"])
def test_retries_by_hand(hand_cases: dict[str, Case], name: str) -> None:
    case = hand_cases[name]
    lists = case["input"]["attempts_dur_ok"]
    bare = jobs(*[(1, 0, 1)] * len(lists))
    table = jobs(*[(1, 0, 1)] * len(lists), attempts=with_attempts(bare, lists))

    def retry(failed: FailedRun) -> Again | None:
        if name == "retry-oracle":
            goes_on = any(ok for _, ok in lists[failed.row][failed.number :])
        else:
            goes_on = name == "retry-3" and failed.number <= 3
        return Again() if goes_on else None

    found = simulate(table, Cluster.parse("1x8"), "fifo", retry=retry)
    log = found.attempts
    for row, wanted in enumerate(case["expected"]):
        mine = log.job == row
        assert found.end_s[row] == wanted["jct"]
        assert log.ran_s[mine & ~log.passed].sum() == wanted["wasted"]
        assert mine.sum() == wanted["attempts"]
        assert bool(found.passed[row]) == wanted["success"]
