"""Futures of what a look adds up, and Slurm's own estimate of it, on queues so small that the start is known."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.waits.look_rollout import MOST_AHEAD, SLOTS, Draws, starts_h
from perdure.waits.slurm_estimate import ByLimits
from perdure.waits.supply import Demand, Supply
from perdure.waits.table import WaitTable

NAMES = (
    "cpus", "running_cpus_partition", "running_cpu_h_partition", "pending_jobs_partition", "pending_cpus_partition",
    "pending_cpu_h_partition",
)  # fmt: skip
HALVES = Draws(np.full((2, SLOTS), 0.5), np.ones((2, MOST_AHEAD)))  # all end at the mean of their limits


def looks(*rows: tuple[float, ...], partition: int = 3) -> WaitTable:
    n = len(rows)
    zero = np.zeros(n)
    return WaitTable(
        np.arange(n), zero, zero, np.full(n, np.nan), zero, np.full(n, partition), np.zeros(n, np.int64),
        np.array(rows, np.float32).reshape(n, len(NAMES)), NAMES,
    )  # fmt: skip


FULL = (160.0, 160.0, 320.0, 0.0, 0.0, 0.0)  # all in use for two hours yet, and the job wants all


def before(*rows: tuple[float, ...]) -> Demand:
    return Supply.of(looks(FULL)).before(looks(*rows))


def test_a_partition_has_as_many_processors_as_were_seen_in_use() -> None:
    assert before((1, 0, 0, 0, 0, 0)).cpus.tolist() == [160.0]
    elsewhere = Supply.of(looks(FULL)).before(looks((8, 0, 0, 0, 0, 0), partition=9))
    assert elsewhere.cpus.tolist() == [160.0]
    assert Supply.of(looks()).before(looks((8, 0, 0, 0, 0, 0))).cpus.tolist() == [8.0]


@pytest.mark.parametrize(
    ("row", "hours"),
    [
        ((160, 0, 0, 0, 0, 0), 0.0),  # all is free
        (FULL, 2.0),
        ((10, 150, 300, 0, 0, 0), 0.0),  # one slot is left, and it wants no more
        ((160, 160, 320, 1, 160, 480), 5.0),  # one that takes all for three hours comes first
        ((10, 160, 320, 1, 10, 30), 2.0),  # one that takes a slot leaves the others
        ((160, 0, 0, 96, 160 * 96, 160 * 96), 96.0),  # more than are placed one by one, an hour each
    ],
)
def test_a_job_starts_when_those_before_it_have_had_their_turn(
    row: tuple[float, float, float, float, float, float], hours: float
) -> None:
    assert starts_h(before(row), HALVES)[0] == pytest.approx([hours, hours])


def test_more_work_before_it_never_starts_it_sooner() -> None:
    rng = np.random.default_rng(0)
    draws = Draws(rng.random((8, SLOTS)), 2 * rng.random((8, MOST_AHEAD)))
    rows = [(40, 160, 320, jobs, 40 * jobs, 80 * jobs) for jobs in (0, 1, 3, 9, 20, 40)]
    starts = starts_h(before(*rows), draws)
    assert (np.diff(starts, axis=0) >= 0).all()


def test_slurm_adds_the_work_that_waits_to_when_enough_is_free() -> None:
    by_limits = ByLimits(Supply.of(looks(FULL)))
    said, _, _ = by_limits.answer(looks(FULL, (160, 160, 320, 1, 160, 480), (10, 0, 0, 0, 0, 0)))
    assert 10**said / 3600 == pytest.approx(
        [4.0, 7.0, 1 / 3600]
    )  # the last of those that run ends after twice the mean
