"""Searches in a replay: ends by closed form under several policies, figures of apps, and what holds of random ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, AppJobs, RateProfile
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType
from perdure.scheduling.elastic_policies import elastic_named
from perdure.scheduling.themis_policy import Themis
from perdure.scheduling.tuning import TUNERS, App
from perdure.simulation.app_times import app_times
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics, rho
from perdure.simulation.elastic_report import elastic_page
from perdure.throughput.application import rated_applications
from perdure.throughput.learned import LearnedJob
from perdure.throughput.traits import Traits
from perdure.traces.apps import draw_apps, write_apps
from perdure.traces.profiles import read_adaptive
from tests.scheduling.ideal_speed import IdealSpeed

NINE = 9
WHOLE_S = 1080.0  # of a job: a ninth is two rounds, a third six


def searched(policy: str, gpus: int, score: list[int], search: str = "halving") -> ElasticResult:
    """Nine jobs of one GPU that come at once; restarts are free."""
    rates = RateProfile(np.array(["net"]), np.array(["x"]), np.array([1]), np.ones(1, bool), np.ones(1))
    n, known = len(score), rated_applications(rates, ["net"])
    apps = AppJobs(np.full(n, "a"), np.array(score, float), np.full(n, search))
    one, names = np.ones(n, np.int64), np.array([str(row) for row in range(n)])
    jobs = AdaptiveJobs(names, np.zeros(n), np.full(n, "net"), one, one, steps=np.full(n, WHOLE_S), apps=apps)
    cluster = Cluster.parse(f"{gpus}x1:x")
    return replay_elastic(jobs, cluster, elastic_named(policy), known, {"net": Traits(0.0, 0.0)})


UP, DOWN = list(range(NINE)), list(reversed(range(NINE)))


@pytest.mark.parametrize(
    ("policy", "gpus", "score", "search", "end_s"),
    [
        ("themis", 9, UP, "halving", 60 + 1080),  # wide enough: as long as the best job
        ("themis", 3, UP, "halving", 60 + 3 * 120 + 240 + 720),
        ("themis", 1, DOWN, "halving", 60 + 9 * 120 + 3 * 240 + 720),
        ("themis", 3, UP, "first", 60 + 1080),
        ("themis", 3, UP, "all", 60 + 3 * 1080),
        ("mesos", 3, UP, "all", 60 + 3 * 1080),
        # Nobody is preempted: the last three are seen once the others are at their ends, and are the best, or are not.
        ("mesos", 3, UP, "halving", 60 + 2 * 1080 + 1080),
        ("mesos", 3, DOWN, "halving", 60 + 2 * 1080 + 120),
    ],
)
def test_a_search_ends_when_it_must(policy: str, gpus: int, score: list[int], search: str, end_s: float) -> None:
    found = searched(policy, gpus, score, search)
    assert found.end_s.max() == pytest.approx(end_s, abs=1e-6)
    figures = ElasticMetrics.of(found)
    assert figures.apps == 1
    assert figures.app_jct_mean_s == pytest.approx(end_s)
    assert figures.success_rate == 1.0


def test_what_an_app_needs_no_more_it_gives_back_of_the_leases_that_end_first() -> None:
    # Two jobs of one GPU whose leases began a minute apart; when one of them is over, the later lease goes on.
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    jobs = {
        row: ElasticJob(60.0 * row, 1, 0.0, 1, 1, nothing, 1.0, np.array([9e3]), oracle=IdealSpeed())
        for row in range(2)
    }
    app = App("a", TUNERS["all"], jobs, dict.fromkeys(jobs, 0.0))
    policy, told = Themis(lease_s=600.0), list[list[tuple[float, int]]]()
    for turn in range(3):
        there = {row: job for row, job in jobs.items() if job.submit_s <= 60.0 * turn and job.left > 0}
        for row, share in policy.plan(ElasticView((GpuType("x", 2, 1),), there, 60.0 * turn, [0], apps=[app])).items():
            jobs[row].share = share
        told.append(policy._leases[0])
        jobs[0].left -= 0.5
    assert told == [[(600.0, 1)], [(600.0, 1), (660.0, 1)], [(660.0, 1)]]


def test_the_page_tells_the_times_of_apps_where_there_are_some() -> None:
    none = {"allocation": b"", "rho": b""}
    page = elastic_page([searched("themis", 3, UP)], none, none)
    # 60 + 3 * 120 + 240 + 720 s are .38 h; of nine jobs one goes on to its end.
    assert "<td>1</td><td>0.38</td><td>0.38</td><td>8</td></tr>" in page
    alone = elastic_page([replace(searched("themis", 3, UP), searches={}, app=None)], none, none)
    assert "app JCT mean" in page
    assert "app JCT mean" not in alone


def test_rho_of_an_app_is_of_its_whole_search() -> None:
    found = searched("themis", 3, UP)
    assert rho(found) == pytest.approx([1380 / 1320])
    assert found.stopped is not None
    assert found.stopped.sum() == 8
    assert found.gpu_s.sum() == pytest.approx(9 * 120 + 3 * 240 + 720)


def test_gandiva_sees_all_jobs_early_and_so_finds_the_best_sooner_than_runs_to_their_end() -> None:
    sliced, queued = searched("gandiva", 1, UP), searched("mesos", 1, UP)
    assert queued.end_s.max() == pytest.approx(60 + 9 * 1080)
    assert sliced.end_s.max() < queued.end_s.max() / 3


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["themis", "gandiva", "mesos", "gavel-las", "tiresias"])
def test_the_best_of_each_app_is_found_whatever_the_policy(policy: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    sizes = (1, 2, 4)
    rates = RateProfile(
        np.array(["net"] * 3), np.array(["x"] * 3), np.array(sizes), np.ones(3, bool), np.array(sizes, float)
    )
    n = 20
    app = rng.choice(["a", "b", "c", ""], n)
    search = np.where(app == "b", "all", "halving")
    gpus = rng.choice(sizes, n)
    fails = tuple((0.3,) if rng.random() < 0.2 else () for _ in range(n))
    jobs = AdaptiveJobs(
        np.array([str(row) for row in range(n)]),
        np.sort(rng.uniform(0, 2000, n)),
        np.full(n, "net"),
        gpus,
        gpus,
        fails,
        steps=rng.uniform(300, 3000, n) * gpus,
        apps=AppJobs(app, rng.permutation(n).astype(float), search),
    )
    cluster, known = Cluster.parse("2x4:x"), rated_applications(rates, ["net"])
    found, again = (
        replay_elastic(jobs, cluster, elastic_named(policy), known, {"net": Traits(30.0, 30.0)}) for _ in range(2)
    )
    assert found.end_s.tolist() == again.end_s.tolist()
    assert (found.end_s >= found.submit_s).all()
    assert found.stopped is not None
    assert jobs.apps is not None
    for name in ("a", "c"):
        rows = np.flatnonzero(app == name)
        assert not found.stopped[rows[jobs.apps.score[rows].argmax()]]
    assert found.stopped.any()
    assert not found.stopped[(app == "b") | (app == "")].any()
    assert len(app_times(found).jct_s) == 3 + (app == "").sum()


def test_drawn_apps_are_as_described_and_read_as_written(tmp_path: Path) -> None:
    drawn = draw_apps(300, 1200.0, "halving", np.random.default_rng(0))
    assert drawn.apps is not None
    counts = np.unique(drawn.apps.app, return_counts=True)[1]
    assert (counts.min(), counts.max()) == (1, 98)
    assert np.median(counts) == pytest.approx(23, rel=0.2)
    assert drawn.submit_s[-1] / 300 == pytest.approx(1200, rel=0.2)
    write_apps(drawn, tmp_path / "apps.csv")
    found = read_adaptive(tmp_path / "apps.csv")
    assert found.apps is not None
    for name in ("job_id", "submit_s", "application", "gpus", "batch", "work"):
        assert getattr(found, name).tolist() == getattr(drawn, name).tolist(), name
    assert found.apps.score.tolist() == drawn.apps.score.tolist()
    assert found.apps.app.tolist() == drawn.apps.app.tolist()
    with pytest.raises(InputError, match="cannot be written"):
        write_apps(drawn, tmp_path / "no" / "apps.csv")


def test_a_trace_names_apps(tmp_path: Path) -> None:
    trace = tmp_path / "apps.csv"
    head = "name,time,application,num_replicas,batch_size,app,score,search,work"
    lines = [head, "1,0,net,2,64,a,0.5,halving,0.25", "2,0,net,2,64,a,0.7,halving,1", "3,0,net,2,64,,,,2"]
    trace.write_text("\n".join(lines))
    found = read_adaptive(trace)
    assert found.apps is not None
    assert found.work is not None
    assert found.apps.app.tolist() == ["a", "a", ""]
    assert found.work.tolist() == [0.25, 1.0, 2.0]
    for row, says in (
        ("4,0,net,2,64,b,,halving,1", "score is no number"),
        ("4,0,net,2,64,b,,halving-81,1", "score is no number"),
        ("4,0,net,2,64,b,1,best,1", "search is none of halving, halving-81, first, all"),
        ("4,0,net,2,64,a,1,first,1", "its app has another search"),
        ("4,0,net,2,64,,,,0", "work is no number above 0"),
    ):
        trace.write_text("\n".join([*lines, row]))
        with pytest.raises(InputError, match=rf"apps.csv:5: {says}") as refused:
            read_adaptive(trace)
        assert "--skip-bad" not in str(refused.value)  # which there is not
    trace.write_text("name,time,application,num_replicas,batch_size,app,search\n1,0,net,2,64,a,halving\n")
    with pytest.raises(InputError, match="score is no number"):
        read_adaptive(trace)
