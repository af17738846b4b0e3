"""Answers about the past, held against what came."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.simulation.simulate import simulate
from perdure.waits.forecast import LEVELS, of_samples
from perdure.waits.hindcast import ENOUGH, FLOOR_S, Fit, before, fit, queue_at, share_in_use, shifts_of
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedNode, QueuedPartition
from perdure.waits.unfinished import with_unfinished
from tests.waits.test_past import NOW_S

HOUR_S = 3600.0
QUEUE = Queue(NOW_S, (), tuple(QueuedNode(f"n{i}", ("main",), gpus=4) for i in range(4)), (QueuedPartition("main"),))


def recorded(gpus: int, days: int = 3, seed: int = 0) -> Past:
    """A busy past of a site with so many GPUs, as its own Slurm would have scheduled it."""
    rng = np.random.default_rng(seed)
    n = days * 110
    submit = np.sort(rng.uniform(0, days * 24 * HOUR_S, n)).round()
    limit = rng.choice([1.0, 2.0, 4.0, 8.0], n) * HOUR_S
    table = JobTable(
        job_id=np.arange(n).astype(str),
        submit_s=submit,
        gpus=rng.choice([1, 2, 4], n),
        duration_s=(limit * rng.uniform(0.05, 1.0, n)).round(),
        user=rng.choice(["a", "b", "c"], n),
        walltime_s=limit,
        partition=np.full(n, "main"),
    )
    result = simulate(table, Cluster.parse(f"{gpus}x1"), Slurm())
    began = NOW_S - days * 24 * HOUR_S
    done = replace(table, start_s=result.start_s, end_s=result.end_s, began_s=began)
    return Past.of(done, NOW_S)


def test_the_queue_of_an_instant_holds_who_ran_and_who_waited_then() -> None:
    past = recorded(12)
    now_s = NOW_S - 20 * HOUR_S
    then = queue_at(past, now_s, QUEUE)
    jobs = past.jobs
    runs = {job.job_id for job in then.running()}
    assert runs == set(jobs.job_id[(jobs.start_s <= now_s) & (jobs.end_s > now_s)])
    assert {job.job_id for job in then.waiting()} == set(jobs.job_id[(jobs.submit_s <= now_s) & (jobs.start_s > now_s)])
    assert sum(job.gpus for job in then.running()) <= 12


def test_what_came_later_is_not_known_before() -> None:
    past = recorded(12)
    now_s = NOW_S - 20 * HOUR_S
    known = before(past, now_s)
    assert (known.jobs.submit_s <= now_s).all()
    longest = past.jobs.duration_s[past.jobs.end_s <= now_s].max()
    assert known.run_times.seconds["", ""].max() <= longest


def test_a_site_that_uses_fewer_gpus_than_it_has_is_found_out() -> None:
    past = recorded(13)  # of 16
    made = fit(QUEUE, SchedulerSettings(), past, np.random.default_rng(0), instants=24, samples=4)
    assert made.is_known
    assert made.gpus_share == 13 / 16


def test_a_site_that_uses_all_its_gpus_is_let_have_them() -> None:
    assert share_in_use(recorded(16), 16) == 1.0


def test_where_hardly_anybody_waits_nothing_is_known_of_what_may_be_used() -> None:
    past = recorded(64)
    assert share_in_use(past, 640) == 1.0


@pytest.mark.parametrize("off", [0.3, -0.4])
def test_answers_that_were_always_off_are_moved_by_as_much(off: float) -> None:
    rng = np.random.default_rng(0)
    truth = 10 ** rng.normal(4.0, 0.5, 4000)
    told = np.tile(10 ** (np.quantile(np.log10(truth), LEVELS) - off), (4000, 1))
    assert shifts_of(truth, told) == pytest.approx([off] * len(LEVELS), abs=0.05)


def test_corrected_intervals_hold_as_often_as_they_promise() -> None:
    """Conformal: on exchangeable answers, a share of the starts within 0.8 and 0.8 + 2 / (n + 1)."""
    rng = np.random.default_rng(1)
    held = []
    for _ in range(200):
        centre = rng.normal(4.0, 0.5, 61)
        truth = 10 ** (centre + rng.normal(0.2, 0.4, 61))
        told = 10 ** (centre[:, None] + np.linspace(-0.05, 0.05, len(LEVELS)))  # far too narrow
        shifts = shifts_of(truth[:60], told[:60])
        moved = np.log10(told[60]) + shifts
        held.append(moved[LEVELS.index(0.1)] <= np.log10(truth[60]) <= moved[LEVELS.index(0.9)])
    assert 0.72 <= np.mean(held) <= 0.92


def test_waits_that_go_on_count_as_no_shorter_than_they_are() -> None:
    """Of 200 waits the longer half is only known to pass its middle: dropped, they would make quantiles too short."""
    rng = np.random.default_rng(2)
    truth = 10 ** rng.normal(4.0, 0.5, 200)
    told = np.full((200, len(LEVELS)), 1e4)
    goes_on = truth > np.quantile(truth, 0.85)
    seen = np.where(goes_on, np.quantile(truth, 0.85), truth)
    whole, censored = shifts_of(truth, told), shifts_of(seen, told, goes_on)
    assert censored[: LEVELS.index(0.8)] == pytest.approx(whole[: LEVELS.index(0.8)], abs=1e-9)
    assert censored[-1] >= shifts_of(truth[~goes_on], told[~goes_on])[-1]


def test_jobs_that_are_there_still_are_in_the_queue_of_an_instant() -> None:
    """Without those that run now, instants close to now would seem to have but the short ones."""
    past = recorded(12)
    now_s = NOW_S - HOUR_S
    over = past.jobs.end_s <= NOW_S - 0.5 * HOUR_S
    known = Past(past.jobs.take(np.flatnonzero(over)), NOW_S, past.run_times)
    there = queue_at(past, NOW_S - 0.5 * HOUR_S, QUEUE)
    whole = queue_at(with_unfinished(known, there.jobs), now_s, QUEUE)
    assert {job.job_id for job in whole.jobs} == {job.job_id for job in queue_at(past, now_s, QUEUE).jobs}
    assert len(queue_at(known, now_s, QUEUE).jobs) < len(whole.jobs)


def test_a_correction_keeps_the_quantiles_in_order() -> None:
    forecast = of_samples(0.0, np.array([10.0, 600.0, 7200.0]))
    made = Fit(0.0, ENOUGH, shifts=tuple(np.random.default_rng(0).uniform(-0.5, 0.5, len(LEVELS)).tolist()))
    moved = made.corrected(forecast).wait_s
    assert list(moved) == sorted(moved)


def test_instants_at_which_jobs_seem_to_hold_more_than_there_is_are_left_out() -> None:
    """So it is where jobs were put back: between two attempts they seem to run, while others have their GPUs."""
    past = recorded(13)
    spells = past.jobs.start_s - NOW_S + 30 * HOUR_S
    held = (spells > 0) & (spells < 4 * HOUR_S)
    jobs = replace(past.jobs, end_s=np.where(held, past.jobs.end_s + 8 * HOUR_S, past.jobs.end_s))
    made = fit(QUEUE, SchedulerSettings(), replace(past, jobs=jobs), np.random.default_rng(0), instants=24, samples=4)
    assert made.is_known


def test_too_little_history_corrects_nothing() -> None:
    forecast = of_samples(0.0, np.array([10.0, 600.0, 7200.0]))
    made = fit(QUEUE, SchedulerSettings(), Past(), np.random.default_rng(0))
    assert not made.is_known
    assert made.corrected(forecast) == forecast
    assert FLOOR_S == 60


def test_a_wait_of_seconds_is_made_longer_by_minutes() -> None:
    made = Fit(0.0, 100, shifts=(0.5,) * len(LEVELS))
    assert made.corrected(of_samples(0.0, np.ones(9))).median_s == pytest.approx(60 * 10**0.5)
