"""The study of retries, small: what it compares, and its bounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.failures import Nature, philly
from perdure.simulation.simulate import simulate
from perdure.studies import retry as study
from perdure.studies.estimate import stream
from perdure.traces.failure_table import SHARE_FAILING
from perdure.traces.generate import generate
from tests.simulation.tables import jobs, tables


@pytest.fixture(scope="module")
def small() -> study.RetryStudy:
    return study.retry(n_jobs=600, loads=(0.9,), seeds=2, nodes=8, failing=0.3, policies=("sjf", "las-2d"))


def of(found: study.RetryStudy, retry: str) -> list[study.RetryFigures]:
    return [figures for figures in found.figures if figures.retry == retry]


def test_every_load_policy_and_way_of_retrying_has_its_figures() -> None:
    found = study.retry(n_jobs=40, loads=(0.5, 1.3), seeds=1, nodes=8, policies=("sjf", "srtf"))
    cases = {(figures.load, figures.policy, figures.retry) for figures in found.figures}
    assert len(cases) == len(found.figures) == 2 * 2 * 4


def test_full_retry_and_the_oracle_are_measured_against_themselves(small: study.RetryStudy) -> None:
    assert all(figures.jct_saved.mean == figures.success_lost.mean == 0 for figures in of(small, study.FULL))
    assert all(figures.jct_over_oracle.mean == 0 for figures in of(small, study.ORACLE))


def test_an_oracle_loses_no_job_and_wastes_least_among_those_that_retry(small: study.RetryStudy) -> None:
    for full, predicted, oracle in zip(*(of(small, retry) for retry in study.RETRIES[:3]), strict=True):
        assert oracle.success_lost.mean == 0 <= predicted.success_lost.mean
        assert oracle.wasted_gpu_h.mean < full.wasted_gpu_h.mean
        assert predicted.jct_saved.mean > 0


def test_what_is_saved_is_running_or_waiting_and_an_oracle_saves_all_that_is_repeated_in_vain(
    small: study.RetryStudy,
) -> None:
    for figures in small.figures:
        assert figures.saved_running.mean + figures.saved_waiting.mean == pytest.approx(figures.jct_saved.mean)
    uncrowded = study.retry(n_jobs=300, loads=(0.001,), seeds=1, nodes=200, failing=0.5, policies=("sjf", "las-2d"))
    for figures in of(uncrowded, study.ORACLE):
        assert figures.saved_running.mean == pytest.approx(uncrowded.repeated)
        assert figures.saved_waiting.mean == figures.jct_saved_passed.mean == pytest.approx(0, abs=1e-12)


def test_a_perfect_classifier_is_the_oracle() -> None:
    found = study.retry(n_jobs=500, seeds=1, nodes=8, classifier=(1.0, 0.0), policies=("sjf",))
    assert of(found, study.PREDICTED)[0].jct_s == of(found, study.ORACLE)[0].jct_s
    assert of(found, study.PREDICTED)[0].jct_over_oracle.mean == 0


def test_only_policies_that_go_by_service_can_forget_it() -> None:
    kept, forgotten = (
        study.retry(n_jobs=1500, loads=(1.5,), seeds=1, nodes=4, failing=0.5, policies=("sjf", "las-2d"),
                    forgets_service=forgets)
        for forgets in (False, True)
    )  # fmt: skip
    jct = [[figures.jct_s.mean for figures in of(found, study.FULL)] for found in (kept, forgotten)]
    assert jct[0][0] == jct[1][0]
    assert jct[0][1] != jct[1][1]


def test_saved_time_by_hand() -> None:
    """Two tries in vain of 100 s each run before a job that passes; stopped after one, both end 100 s sooner."""
    table = jobs((1, 0, 200), (1, 0, 50), ending=np.array([3, 1], np.int8))
    cluster = Cluster.parse("1x1")
    failures = philly(table, 0)  # nothing is drawn for it: one attempt each
    assert failures.nature.tolist() == [Nature.DETERMINISTIC, Nature.PASSED]
    full, stopped = (simulate(each, cluster, "fifo") for each in (table, jobs((1, 0, 100), (1, 0, 50))))
    found = study._saved(table, stopped, full)
    assert found["jct_saved"] == pytest.approx(200 / 450)
    assert found["saved_running"] == found["saved_waiting"] == pytest.approx(100 / 450)


@settings(deadline=None, max_examples=60)
@given(tables(attempts=True), st.integers(1, 4))
def test_a_job_is_tried_no_more_often_and_what_would_have_healed_later_fails_for_good(
    table: JobTable, tries: int
) -> None:
    whole = philly(table, 0)
    cut = study.at_most(whole, tries)
    before, after = whole.table.attempts, cut.table.attempts
    assert np.array_equal(np.diff(after.first), np.minimum(np.diff(before.first), tries))
    assert cut.table.duration_s.sum() == pytest.approx(after.duration_s.sum())
    for row in range(len(table)):
        kept = slice(after.first[row], after.first[row + 1])
        uncut = slice(before.first[row], before.first[row] + len(after.passed[kept]))
        assert np.array_equal(after.duration_s[kept], before.duration_s[uncut])
        if before.first[row + 1] - before.first[row] > tries:
            assert set(cut.nature[kept]) == {Nature.DETERMINISTIC}
        else:
            assert np.array_equal(cut.nature[kept], whole.nature[uncut])


def test_drawn_failures_are_like_phillys() -> None:
    """17.8 % of its GPU time went to jobs without success, and 1,024 of 17,581 failing jobs had some in the end."""
    cluster = Cluster.parse("200x8")
    drawn = [study._failing(20_000, cluster, 0.9, SHARE_FAILING, seed) for seed in range(4)]
    lost = [failures.gpu_time()[Nature.DETERMINISTIC] for failures in drawn]
    assert np.mean(lost) == pytest.approx(0.178, abs=0.03)
    healing = [np.isin(failures.nature, (Nature.NODE_BOUND, Nature.TRANSIENT)) for failures in drawn]
    first = [failures.table.attempts.first[:-1] for failures in drawn]
    failing = sum((failures.nature[at] != Nature.PASSED).sum() for failures, at in zip(drawn, first, strict=True))
    healed = sum(heals[at].sum() for heals, at in zip(healing, first, strict=True))
    assert healed / failing == pytest.approx(1024 / 17_581, abs=0.01)


def test_published_figures_stand_apart_and_all_is_json(small: study.RetryStudy) -> None:
    told = json.loads(json.dumps(small.to_json()))
    assert told["published"]["source"].startswith("published")
    assert told["figures"][0]["jct_s"].keys() == {"mean", "low", "high"}
    assert sum(told["gpu_time"].values()) == pytest.approx(1.0)
    assert 0 < told["repeated"] < 1


def test_progress_is_told_up_to_the_last_run() -> None:
    seen: list[tuple[int, int]] = []
    study.retry(n_jobs=50, seeds=2, nodes=8, policies=("sjf",), progress=lambda *at: seen.append(at))
    assert seen == [(4, 8), (8, 8)]


def test_the_same_seed_draws_the_same_jobs() -> None:
    cluster = Cluster.parse("8x8")
    once, again = (generate(50, cluster, 0.9, stream(3), failures=False) for _ in range(2))
    assert np.array_equal(once.submit_s, again.submit_s)
