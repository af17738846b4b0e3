"""Generated traces look like the published ones, within stated tolerances, and keep their own accounts."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable, TableEnding
from perdure.traces.failure_table import REASONS, draw_reasons, draw_rtf_s, draw_trials
from perdure.traces.generate import generate

PHILLY = Cluster.parse("321x2+231x8")
LOAD = 0.6


@pytest.fixture(scope="module")
def plain() -> JobTable:
    return generate(300_000, PHILLY, LOAD, np.random.default_rng(1), failures=False)


@pytest.fixture(scope="module")
def failing() -> JobTable:
    return generate(300_000, PHILLY, LOAD, np.random.default_rng(2))


def wide(jobs: JobTable, low: int, high: int) -> np.ndarray:
    return (jobs.gpus >= low) & (jobs.gpus <= high)


@pytest.mark.parametrize(
    ("low", "high", "share", "median_s", "p90_s", "gpu_time"),
    [
        (1, 1, 0.932, 1_117, 8_500, 0.181),
        (2, 4, 0.045, 367, 166_000, 0.199),
        (8, 8, 0.020, 23_684, 352_000, 0.484),
        (9, 128, 0.0035, 21_137, 248_000, 0.136),
    ],
)
def test_each_size_has_its_share_and_its_durations(
    plain: JobTable, low: int, high: int, share: float, median_s: int, p90_s: int, gpu_time: float
) -> None:
    rows = wide(plain, low, high)
    service = plain.gpus * plain.duration_s
    assert rows.mean() == pytest.approx(share, rel=0.1)
    assert np.median(plain.duration_s[rows]) == pytest.approx(median_s, rel=0.25)
    assert np.quantile(plain.duration_s[rows], 0.9) == pytest.approx(p90_s, rel=0.15)
    assert service[rows].sum() / service.sum() == pytest.approx(gpu_time, abs=0.04)


@pytest.mark.parametrize(
    ("place", "seconds", "rel"),
    [(0.05, 48, 0.3), (0.25, 115, 0.1), (0.5, 1_144, 0.1), (0.75, 2_932, 0.2), (0.9, 11_265, 0.2), (0.95, 43_646, 0.2)],
)
def test_durations_of_all_jobs_have_the_published_quantiles(
    plain: JobTable, failing: JobTable, place: float, seconds: int, rel: float
) -> None:
    assert np.quantile(plain.duration_s, place) == pytest.approx(seconds, rel=rel)
    attempts = failing.attempts
    never_failed = (np.diff(attempts.first) == 1) & (failing.ending != TableEnding.FAILED)
    assert np.quantile(failing.duration_s[never_failed], place) == pytest.approx(seconds, rel=rel)


def test_with_failures_jobs_run_for_as_long_in_the_mean_as_those_of_the_whole_log(failing: JobTable) -> None:
    """18,006 s, by a published summary; the list without failed jobs, to which durations are fitted, has 13,558 s."""
    assert failing.duration_s.mean() == pytest.approx(18_006, rel=0.1)


def test_the_longest_jobs_are_as_long_as_published(plain: JobTable) -> None:
    assert np.quantile(plain.duration_s, 0.99) == pytest.approx(254_758, rel=0.25)
    assert (plain.duration_s > 7 * 86_400).mean() == pytest.approx(0.0029, rel=0.5)


def test_arrivals_come_in_bursts_and_follow_the_day(plain: JobTable) -> None:
    gaps = np.diff(plain.submit_s)
    assert (gaps >= 0).all()
    assert 0.05 < np.median(gaps) / gaps.mean() < 0.2  # published: 8 s of 77 s
    assert gaps.std() / gaps.mean() > 2.5  # a Poisson process has 1
    by_hour = np.bincount((plain.submit_s % 86_400 // 3_600).astype(int), minlength=24)
    assert 2.3 < by_hour.max() / by_hour.min() < 5  # published: 3.3


def test_wide_jobs_come_more_evenly_than_narrow_ones(plain: JobTable) -> None:
    """In the published list jobs a day vary by 0.44 of their mean on several GPUs, by 0.71 on one (from October on)."""
    day = (plain.submit_s // 86_400).astype(int)
    wide, narrow = (np.bincount(day[rows])[:-1] for rows in (plain.gpus > 1, plain.gpus == 1))
    assert wide.std() / wide.mean() == pytest.approx(0.44, abs=0.15)
    assert narrow.std() / narrow.mean() == pytest.approx(0.71, abs=0.2)


def test_the_use_of_gpus_swings_as_published(plain: JobTable) -> None:
    """If all jobs start at once: at most 2.1 times the mean, with a spread of 0.21 of it (from October on)."""
    edges = np.concatenate([plain.submit_s, plain.submit_s + plain.duration_s])
    order = np.argsort(edges, kind="stable")
    held = np.cumsum(np.concatenate([plain.gpus, -plain.gpus])[order])
    grid = np.arange(14 * 86_400, plain.submit_s[-1], 600)
    used = held[np.searchsorted(edges[order], grid, side="right") - 1]
    assert used.std() / used.mean() == pytest.approx(0.21, abs=0.07)
    assert 1.5 < used.max() / used.mean() < 3.2


def test_few_virtual_clusters_have_most_jobs_and_others_most_gpu_time(plain: JobTable) -> None:
    names, number = np.unique(plain.vc, return_inverse=True)
    jobs = np.sort(np.bincount(number))[::-1] / len(plain)
    assert len(names) == 15
    assert jobs[:4] == pytest.approx([0.501, 0.196, 0.121, 0.090], rel=0.1)  # published
    service = np.bincount(number, plain.gpus * plain.duration_s)
    assert np.argmax(service) != np.argmax(np.bincount(number))


def test_the_load_is_the_one_asked_for(failing: JobTable) -> None:
    offered = float(failing.gpus @ failing.duration_s) / (PHILLY.total_gpus * failing.submit_s[-1])
    assert offered == pytest.approx(LOAD, rel=0.01)


def test_endings_have_the_published_shares(failing: JobTable) -> None:
    shares = np.bincount(failing.ending, minlength=4) / len(failing)
    assert shares[TableEnding.PASSED] == pytest.approx(0.693, abs=0.015)
    assert shares[TableEnding.KILLED] == pytest.approx(0.135, abs=0.015)
    assert shares[TableEnding.FAILED] == pytest.approx(0.172, abs=0.015)


def test_gpu_time_by_ending_has_the_published_shares(failing: JobTable) -> None:
    service = np.bincount(failing.ending, failing.gpus * failing.duration_s, 4)
    shares = service / service.sum()
    assert shares[TableEnding.PASSED] == pytest.approx(0.445, abs=0.04)
    assert shares[TableEnding.KILLED] == pytest.approx(0.377, abs=0.04)
    assert shares[TableEnding.FAILED] == pytest.approx(0.178, abs=0.04)


def test_attempts_add_up_to_jobs_and_agree_with_endings(failing: JobTable) -> None:
    attempts = failing.attempts
    assert attempts is not None
    counts = np.diff(attempts.first)
    assert counts.min() == 1
    np.testing.assert_array_equal(np.add.reduceat(attempts.duration_s, attempts.first[:-1]), failing.duration_s)
    np.testing.assert_array_equal(attempts.passed[attempts.first[1:] - 1], failing.ending == TableEnding.PASSED)
    assert attempts.passed.sum() == (failing.ending == TableEnding.PASSED).sum()


def test_failed_trials_are_as_many_as_published(failing: JobTable) -> None:
    """39,776 failed trials of 96,260 jobs."""
    attempts = failing.attempts
    assert attempts is not None
    killed = (failing.ending == TableEnding.KILLED).sum()
    trials = (~attempts.passed).sum() - killed
    assert trials / len(failing) == pytest.approx(39_776 / 96_260, rel=0.05)


@pytest.mark.parametrize("place", range(5))
def test_a_reason_is_drawn_with_its_trials_and_its_run_times(place: int) -> None:
    rng = np.random.default_rng(3)
    rows = np.full(100_000, place)
    reason = REASONS[place]
    assert draw_trials(rows, rng).mean() == pytest.approx(reason.trials / reason.jobs, rel=0.05)
    assert np.quantile(draw_rtf_s(rows, rng), [0.5, 0.9, 0.95]) == pytest.approx(reason.rtf_s, rel=0.1)


def test_all_trials_of_a_reason_lost_their_published_share_of_time() -> None:
    rng = np.random.default_rng(5)
    mean_s = np.array([draw_rtf_s(np.full(100_000, row), rng).mean() for row in range(len(REASONS))])
    lost_s = mean_s * [reason.trials for reason in REASONS]
    assert sum(reason.lost for reason in REASONS) == pytest.approx(1, abs=0.001)
    np.testing.assert_allclose(lost_s / lost_s.sum(), [reason.lost for reason in REASONS], atol=0.006)


def test_no_attempt_fails_later_than_the_longest_job_of_the_log_ran() -> None:
    rng = np.random.default_rng(6)
    assert draw_rtf_s(np.arange(len(REASONS)).repeat(20_000), rng).max() < 4_240_676


def test_reasons_come_as_often_as_their_jobs() -> None:
    drawn = np.bincount(draw_reasons(200_000, np.random.default_rng(4)), minlength=len(REASONS)) / 200_000
    jobs = np.array([reason.jobs for reason in REASONS])
    np.testing.assert_allclose(drawn, jobs / jobs.sum(), atol=0.005)


def test_limits_are_never_shorter_than_the_job_and_mostly_far_longer(plain: JobTable) -> None:
    assert (plain.walltime_s >= plain.duration_s).all()
    used = plain.duration_s / plain.walltime_s
    assert np.median(used[plain.duration_s < 86_400]) == pytest.approx(0.24, rel=0.2)  # published: 0.24


@given(n=st.integers(1, 300), gpus=st.integers(1, 64), load=st.floats(0.05, 2), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_any_size_is_valid_and_the_same_seed_draws_the_same(n: int, gpus: int, load: float, seed: int) -> None:
    cluster = Cluster.parse(f"1x{gpus}")
    jobs, again = (generate(n, cluster, load, np.random.default_rng(seed)) for _ in range(2))
    assert len(jobs) == n
    assert jobs.gpus.max() <= gpus
    assert (jobs.duration_s >= 1).all()
    assert (np.diff(jobs.submit_s) >= 0).all()
    for field in fields(JobTable):
        if field.name != "attempts":
            np.testing.assert_array_equal(getattr(jobs, field.name), getattr(again, field.name))


@pytest.mark.parametrize(("n", "load"), [(0, 0.5), (5, 0.0), (5, -1.0), (5, float("nan")), (5, float("inf"))])
def test_what_cannot_be_drawn_is_refused(n: int, load: float) -> None:
    with pytest.raises(InputError, match="Ask for at least 1 job"):
        generate(n, PHILLY, load, np.random.default_rng(0))
