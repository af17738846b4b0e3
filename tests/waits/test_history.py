"""Looks at a queue of the past, made of accounting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.table import JobTable
from perdure.waits.features import wait_table
from perdure.waits.history import looks_of

EVERY_S = 100.0


def past(seed: int, n: int = 30) -> JobTable:
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 2000, n)).astype(np.float64)
    start = submit + rng.integers(0, 600, n)
    return JobTable(
        job_id=np.arange(n).astype(str),
        submit_s=submit,
        gpus=rng.integers(1, 5, n),
        duration_s=np.full(n, 100.0),
        start_s=start,
        end_s=start + 100.0,
        walltime_s=np.full(n, 3600.0),
        partition=rng.choice(["a", "b"], n),
        account=rng.choice(["x", "y"], n),
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 999))
def test_what_waits_and_runs_at_a_look_is_what_a_count_by_hand_gives(seed: int) -> None:
    jobs = past(seed)
    looks = looks_of(jobs, 2500.0, EVERY_S)
    gpus = jobs.gpus.astype(float)
    for i in np.random.default_rng(seed).integers(0, len(looks), 8):
        now = looks.poll_s[i]
        own = np.flatnonzero(jobs.job_id == looks.job[i])[0]
        same = {"": np.ones(len(jobs), bool), "_partition": jobs.partition == jobs.partition[own]}
        for scope, group in same.items():
            waits = group & (jobs.submit_s <= now) & (jobs.start_s > now)
            runs = group & (jobs.start_s <= now) & (jobs.end_s > now)
            assert looks.state[f"pending_gpus{scope}"][i] == gpus[waits].sum()
            assert looks.state[f"running_gpus{scope}"][i] == gpus[runs].sum()
            assert looks.state[f"pending_jobs{scope}"][i] == waits.sum()


@given(seed=st.integers(0, 999))
@settings(max_examples=30)
def test_each_job_is_seen_once_as_it_came_and_again_while_it_waits(seed: int) -> None:
    jobs = past(seed)
    looks = looks_of(jobs, 3000.0, EVERY_S)
    fresh = looks.submit_s == looks.poll_s
    assert sorted(looks.job[fresh]) == sorted(jobs.job_id)
    wait = dict(zip(jobs.job_id.tolist(), (jobs.start_s - jobs.submit_s).tolist(), strict=True))
    for job, seen in zip(looks.job[fresh], (looks.start_s - looks.poll_s)[fresh], strict=True):
        assert seen == pytest.approx(wait[job])
    assert ((looks.start_s > looks.poll_s) | fresh).all()


def test_a_start_that_is_still_to_come_is_not_known() -> None:
    jobs = past(3)
    looks = looks_of(jobs, 1000.0, EVERY_S)
    table = wait_table(looks)
    started = np.isfinite(looks.start_s)
    assert (looks.poll_s <= 1000).all()
    assert not started.all()
    assert (looks.start_s - (looks.poll_s - looks.submit_s).clip(0) <= 1000 + EVERY_S + 600)[started].all()
    assert len(table) == len(looks)


def test_nothing_is_seen_of_no_past() -> None:
    assert len(looks_of(past(0, 1).take(np.empty(0, np.intp)), 100.0)) == 0
