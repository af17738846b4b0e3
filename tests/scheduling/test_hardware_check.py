"""The trace of a real cluster's run, as the check of replays against it reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hardware_check import LARGEST, PublishedJob, alone_s, differences, read_jobs, replayed
from tests.conftest import require


@pytest.fixture
def jobs(data_dir: Path | None) -> list[PublishedJob]:
    data = require("data", data_dir, "no golden schedules here")
    return read_jobs(data / "golden-schedulers" / "shockwave" / "tacc32_120jobs.trace")


def job(model: str, batch: int, gpus: int, steps: int, mode: str) -> PublishedJob:
    return PublishedJob(model, batch, gpus, steps, mode, 1000.0, 0.0)


def test_a_job_that_keeps_its_batch_takes_what_the_trace_says(jobs: list[PublishedJob]) -> None:
    """To the epoch that it ends in, which is trained whole."""
    static = [(each, took) for each, took in zip(jobs, alone_s(jobs), strict=True) if each.mode == "static"]
    assert len(static) == 4
    for each, took in static:
        assert each.alone_s * 0.99 <= took <= each.alone_s * (1 + 1 / each.epochs) * 1.01


@pytest.mark.parametrize(
    ("model", "batch", "gpus", "steps", "mode", "expected"),
    [
        ("LM", 10, 1, 5968 * 45, "gns", [10] * 11 + [20] * 10 + [40] * 20 + [80] * 4),
        ("LM", 40, 2, 1492 * 11, "gns", [40] * 11),  # over before it would double
        ("Recommendation", 4096, 1, 29 * 50, "accordion", [4096] * 16 + [8192] * 34),
        ("Recommendation", 4096, 1, 29 * 70, "accordion", [4096] * 22 + [8192] * 38 + [4096] * 10),
        ("Transformer", 16, 1, 625 * 3, "accordion", [16] * 3),
    ],
)
def test_batches_by_epoch(model: str, batch: int, gpus: int, steps: int, mode: str, expected: list[int]) -> None:
    assert job(model, batch, gpus, steps, mode).batches() == expected


def test_no_batch_is_larger_than_a_gpu_holds(jobs: list[PublishedJob]) -> None:
    assert all(max(each.batches()) <= max(LARGEST[each.model], each.batch) for each in jobs)


def test_no_job_ends_sooner_than_alone(jobs: list[PublishedJob]) -> None:
    found = replayed(jobs, "gavel-las", 5.0)
    assert all(jct >= alone for jct, alone in zip(found.jct_s, alone_s(jobs), strict=True))


def test_differences_are_of_what_was_measured() -> None:
    assert differences((110.0, 45.0), (100.0, 50.0)) == pytest.approx((10.0, -10.0))
