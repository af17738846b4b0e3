"""Failure models: what the record tells, what is drawn, and that it looks like the tables that it is drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable, TableEnding
from perdure.simulation.failures import (
    DAY_S,
    FAILURE_WORDS,
    GPU_FAULTS_PER_DAY,
    NODE_FAULT,
    NODE_FAULTS_PER_DAY,
    Failures,
    Nature,
    model_named,
    nothing_fails,
    recorded,
    with_node_faults,
)
from perdure.simulation.metrics import summary
from perdure.simulation.simulate import simulate
from perdure.traces.failure_table import REASONS, SHARE_FAILING
from tests.simulation.tables import jobs, tables, with_attempts

MODELS = list(FAILURE_WORDS)


def many(n: int, duration_s: float = 3600.0, ending: int = 0, gpus: int = 1) -> JobTable:
    names = np.arange(n).astype("U8")
    column = np.full(n, ending, np.int8)
    return JobTable(names, np.zeros(n), np.full(n, gpus, np.int64), np.full(n, duration_s), ending=column)


def owner_of(failures: Failures) -> np.ndarray:
    return np.repeat(np.arange(len(failures.table)), np.diff(failures.table.attempts.first))


def test_a_record_tells_which_failures_healed() -> None:
    lists = [[(5, False), (9, True)], [(5, False), (5, False)], [(5, False), (7, False)], []]
    endings = np.array([TableEnding.PASSED, TableEnding.FAILED, TableEnding.KILLED, TableEnding.PASSED], np.int8)
    rows = [(1, 0, 3)] * 4
    found = recorded(jobs(*rows, attempts=with_attempts(jobs(*rows), lists), ending=endings))
    healed, failed, killed, passed = Nature.TRANSIENT, Nature.DETERMINISTIC, Nature.KILLED, Nature.PASSED
    assert found.nature.tolist() == [healed, passed, failed, failed, healed, killed, passed]
    assert found.table.attempts.duration_s.tolist() == [5, 9, 5, 5, 5, 7, 3]
    assert found.heals(0)
    assert not found.heals(3)


def test_a_job_of_which_only_the_ending_is_told_ended_so() -> None:
    table = many(4)
    table.ending[:] = TableEnding.UNKNOWN, TableEnding.PASSED, TableEnding.KILLED, TableEnding.FAILED
    found = recorded(table)
    assert found.nature.tolist() == [Nature.PASSED, Nature.PASSED, Nature.KILLED, Nature.DETERMINISTIC]
    assert found.table.attempts.duration_s.tolist() == [3600.0] * 4
    assert not found.heals(3)
    figures = summary(found.table, simulate(found.table, Cluster.parse("1x8"), "fifo"), found.causes.tolist())
    assert (figures.success_rate, figures.killed_gpu_h) == (0.5, 1.0)
    assert figures.wasted_gpu_h_by_cause == {"failed for good": 1.0}


def test_without_failures_every_job_takes_its_duration() -> None:
    table = many(3)
    found = nothing_fails(table)
    assert found.table.attempts.passed.all()
    assert simulate(found.table, Cluster.parse("1x8"), "fifo").end_s.tolist() == [3600.0] * 3


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=25)
@given(table=tables(attempts=True), seed=st.integers(0, 5))
def test_every_model_keeps_jobs_and_says_what_each_attempt_is(name: str, table: JobTable, seed: int) -> None:
    found, again = model_named(name)(table, seed), model_named(name)(table, seed)
    tries = found.table.attempts
    assert (np.diff(tries.first) >= 1).all()
    assert len(found.nature) == len(found.causes) == len(tries.passed)
    assert ((found.nature == Nature.PASSED) == tries.passed).all()
    assert ((found.causes == "") == tries.passed).all()
    assert np.array_equal(tries.duration_s, again.table.attempts.duration_s)
    assert np.array_equal(found.table.job_id, table.job_id)
    assert simulate(found.table, Cluster.parse("1x8"), "fifo").end_s.min() >= 0


def test_drawn_failures_look_like_the_table_of_philly() -> None:
    found = model_named("philly")(many(60_000), 3)
    fails = (found.nature != Nature.PASSED).astype(int)
    trials = np.bincount(owner_of(found), fails)
    assert (trials > 0).mean() == pytest.approx(SHARE_FAILING, rel=0.03)
    by_name = {reason.name: reason for reason in REASONS}
    for name in ("cpu out of memory", "incorrect inputs", "cuda failure"):
        mine = found.causes == name
        rtf_s = found.table.attempts.duration_s[mine]
        jobs_of = len(np.unique(owner_of(found)[mine]))
        assert mine.sum() / jobs_of == pytest.approx(by_name[name].trials / by_name[name].jobs, rel=0.12)
        assert np.median(rtf_s) == pytest.approx(by_name[name].rtf_s[0], rel=0.2)
    everyone = sum(reason.jobs for reason in REASONS)
    healing = sum(reason.jobs for reason in REASONS if reason.heals)
    healed = np.bincount(owner_of(found), found.nature >= Nature.NODE_BOUND) > 0
    assert healed.sum() / (trials > 0).sum() == pytest.approx(healing / everyone, rel=0.12)


def test_what_is_deterministic_fails_after_the_same_time_on_each_try() -> None:
    found = model_named("philly")(many(4000), 0)
    owner, took_s = owner_of(found), found.table.attempts.duration_s
    mine = found.nature == Nature.DETERMINISTIC
    for row in np.unique(owner[mine])[:50]:
        assert len(set(took_s[owner == row].tolist())) == 1
    assert not found.table.attempts.passed[np.isin(owner, owner[mine])].any()


def test_what_heals_then_runs_the_whole_duration() -> None:
    found = model_named("philly")(many(4000), 0)
    owner = owner_of(found)
    healed = np.unique(owner[(found.nature == Nature.TRANSIENT) | (found.nature == Nature.NODE_BOUND)])
    last = found.table.attempts.first[1:][healed] - 1
    assert found.table.attempts.passed[last].all()
    assert (found.table.attempts.duration_s[last] == 3600.0).all()


def test_jobs_that_the_trace_says_failed_are_those_that_fail_for_good() -> None:
    table = many(300, ending=TableEnding.PASSED)
    table.ending[:100] = TableEnding.FAILED
    table.ending[100:150] = TableEnding.KILLED
    found = model_named("philly")(table, 1)
    for_good = np.bincount(owner_of(found), found.nature == Nature.DETERMINISTIC) > 0
    assert for_good.tolist() == [True] * 100 + [False] * 200
    assert np.allclose(found.table.duration_s[:100], 3600.0, rtol=0.01)
    assert (found.nature[found.table.attempts.first[1:][100:150] - 1] == Nature.KILLED).all()


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (8, 1), (9, 2), (64, 8)])
def test_nodes_fail_as_often_as_their_rates_say(gpus: int, nodes: int) -> None:
    days, n = 10, 4000
    found = with_node_faults(nothing_fails(many(n, days * DAY_S, gpus=gpus)), 5)
    faults = found.causes == NODE_FAULT
    assert (found.nature[faults] == Nature.NODE_BOUND).all()
    exposed = found.table.attempts.duration_s.sum() / DAY_S
    expected = exposed * (nodes * NODE_FAULTS_PER_DAY + gpus * GPU_FAULTS_PER_DAY)
    assert faults.sum() == pytest.approx(expected, rel=0.1)
    last = found.table.attempts.first[1:] - 1
    assert (found.table.attempts.duration_s[last] == days * DAY_S).all()
    assert found.table.attempts.passed.sum() == n


@pytest.mark.parametrize("name", ["", "titan", "nodes+philly", "philly+nodes+nodes", "philly+"])
def test_unknown_models_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no failure model"):
        model_named(name)
