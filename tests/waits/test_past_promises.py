"""What would have been said of jobs of the past when they came, beside what came."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.model.jobs import JobState
from perdure.model.table import JobTable
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.forecast import LEVELS
from perdure.waits.past import Past
from perdure.waits.past_promises import PARTS, promise_then, rows_alike
from perdure.waits.queue import QueuedJob
from tests.waits.test_hindcast import QUEUE, recorded
from tests.waits.test_past import NOW_S

JOB = QueuedJob("", "me", JobState.PENDING, ("main",), gpus=2, walltime_s=4 * 3600.0, submit_s=NOW_S)


@pytest.fixture(scope="module")
def past() -> Past:
    return recorded(16)


def test_jobs_of_the_same_size_and_partition_are_alike_and_come_apart(past: Past) -> None:
    rows = rows_alike(past, JOB, (), 10)
    assert len(rows) == 10
    assert set(past.jobs.gpus[rows]) == {2}
    assert (np.diff(past.jobs.submit_s[rows]) <= -past.span_s / PARTS).all()
    assert past.jobs.submit_s[rows].min() >= NOW_S - past.span_s / 2
    elsewhere = QueuedJob("", "me", JobState.PENDING, ("other",), gpus=2)
    assert rows_alike(past, elsewhere, (), 10) == []


def test_jobs_that_are_left_out_are_not_asked_about(past: Past) -> None:
    first, second, *_ = rows_alike(past, JOB, (), 10)
    without = rows_alike(past, JOB, {str(past.jobs.job_id[first])}, 10)
    assert first not in without
    assert second in without or without[0] > second


def test_what_is_said_knows_nothing_of_what_came_later(past: Past) -> None:
    """Cut off at the instant at which the job came, the past gives the same answer."""
    row = rows_alike(past, JOB, (), 10)[5]
    whole = promise_then(row, past, QUEUE, SchedulerSettings(), 1.0, np.random.default_rng(0))
    jobs = past.jobs
    later = jobs.submit_s > jobs.submit_s[row]
    cut = Past(jobs.take(np.flatnonzero(~later)), past.until_s)  # and nothing is known of how long jobs run
    assert promise_then(row, cut, QUEUE, SchedulerSettings(), 1.0, np.random.default_rng(0)) == whole
    assert whole.start_s == jobs.start_s[row]
    assert whole.asked_s == jobs.submit_s[row]


def test_with_the_true_model_most_waits_are_no_longer_than_was_said(past: Past) -> None:
    rows = rows_alike(past, JOB, (), 12)
    told = [promise_then(row, past, QUEUE, SchedulerSettings(), 1.0, np.random.default_rng(0)) for row in rows]
    wait_s = np.array([(one.start_s or 0.0) - one.asked_s for one in told])
    high_s = np.array([one.raw_s[LEVELS.index(0.95)] for one in told])
    assert (wait_s <= np.maximum(high_s, 60.0)).mean() >= 0.7
    assert all(one.kind == "main 2" for one in told)


def test_a_job_that_fits_nowhere_is_of_no_kind(past: Past) -> None:
    row = rows_alike(past, JOB, (), 1)[0]
    jobs = past.jobs
    gpus = jobs.gpus.copy()
    gpus[row] = 64
    names = ("job_id", "submit_s", "duration_s", "user", "start_s", "end_s", "walltime_s", "partition")
    large = Past(JobTable(**{name: getattr(jobs, name) for name in names}, gpus=gpus), past.until_s, past.run_times)
    assert promise_then(row, large, QUEUE, SchedulerSettings(), 1.0, np.random.default_rng(0)).kind == ""


def test_a_job_does_not_wait_for_itself() -> None:
    """It has the whole of the nodes, on which nobody else ran."""
    table = JobTable(
        job_id=np.array(["1", "2"]), submit_s=NOW_S - np.array([90_000.0, 9_000.0]), gpus=np.array([16, 16]),
        duration_s=np.array([60.0, 60.0]), walltime_s=np.full(2, 7200.0), partition=np.full(2, "main"),
        start_s=NOW_S - np.array([90_000.0, 9_000.0]), end_s=NOW_S - np.array([89_940.0, 8_940.0]),
        user=np.array(["a", "b"]), nodes=np.array([4, 4]),
    )  # fmt: skip
    told = promise_then(1, Past(table, NOW_S), QUEUE, SchedulerSettings(), 1.0, np.random.default_rng(0))
    assert told.wait_s[LEVELS.index(0.5)] <= 60.0


def test_what_came_after_the_past_is_whole_is_not_asked_about(past: Past) -> None:
    until_s = past.until_s - 6 * 3600.0
    shorter = Past(past.jobs, until_s, past.run_times)
    assert max(past.jobs.submit_s[rows_alike(past, JOB, (), 10)]) > until_s
    assert max(past.jobs.submit_s[rows_alike(shorter, JOB, (), 10)]) <= until_s
