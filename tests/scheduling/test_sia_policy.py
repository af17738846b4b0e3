"""Sia as a policy: how fast a job may grow, what a restart is weighed against, and who is left alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perdure.scheduling import sia_policy
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Share
from perdure.scheduling.sia_policy import Sia
from perdure.throughput.learned import LearnedJob, LearnedSpeed
from perdure.throughput.speed import Floats


def job(seen: int = 0, most: int = 64, **also: object) -> ElasticJob:
    """One that was seen on so many GPUs, 600 s after it came and after two restarts of 30 s."""
    steps = {(1, seen, 1): (1.0, 1.0)} if seen else {}
    learned = LearnedJob(1, 1, [(1, 1)], np.ones(1), [LearnedSpeed("net", {}, steps)])
    found = ElasticJob(0.0, 1, 30.0, most, 1, learned, 1.0, np.ones(1), restarts=2)
    for name, value in also.items():
        setattr(found, name, value)
    return found


def planned(monkeypatch: pytest.MonkeyPatch, jobs: Sequence[ElasticJob], power: float = 1.0) -> dict[int, int]:
    """GPUs of each job on a node of 8, where goodput grows as this power of the GPUs."""

    def expected(learned: Sequence[LearnedJob], gpus: Floats, *_: object) -> Floats:
        return np.tile(gpus.astype(float) ** power, (len(learned), 1))

    monkeypatch.setattr(sia_policy, "expected_goodput", expected)
    view = ElasticView((GpuType("t4", 1, 8),), dict(enumerate(jobs)), 600.0)
    return {row: share.gpus for row, share in Sia().plan(view).items()}


@pytest.mark.parametrize(("seen", "most", "gpus"), [(0, 64, 1), (1, 64, 2), (2, 64, 4), (4, 64, 8), (2, 3, 2)])
def test_a_job_at_most_doubles_the_gpus_that_it_was_seen_on(
    monkeypatch: pytest.MonkeyPatch, seen: int, most: int, gpus: int
) -> None:
    assert planned(monkeypatch, [job(seen, most)]) == {0: gpus}


@pytest.mark.parametrize(("restarts", "gpus"), [(2, 1), (0, 2)])
def test_a_small_gain_is_not_worth_a_restart_to_who_restarted_often(
    monkeypatch: pytest.MonkeyPatch, restarts: int, gpus: int
) -> None:
    # Two GPUs are worth 1.15 of one; a restart leaves (600 - 60) / 630 of that, .99, or 600 / 630, 1.10.
    runs = job(1, share=Share(0, 1, 1), restarts=restarts)
    assert planned(monkeypatch, [runs], power=0.2) == {0: gpus}


def test_who_restarts_keeps_its_gpus_and_nobody_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts = job(4, share=Share(0, 1, 2), restarting=True)
    assert planned(monkeypatch, [restarts, job(4)]) == {0: 2, 1: 4}
