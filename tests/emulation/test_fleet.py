"""A fleet in virtual time: as many steps as fit, the slowest of a gang sets its pace, what breaks goes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.emulation.faults import read_fault
from perdure.emulation.fleet import GangPlan, run_fleet

PLAN = GangPlan(8, compute_s=0.09, exchange_s=0.01)
NEVER = float("inf")


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_without_faults_a_fleet_steps_as_the_table_says() -> None:
    found = run_fleet(128, PLAN, (), 3600.0, NEVER, rng())
    assert found.gpu_steps == pytest.approx(128 * 8 * 36_000, rel=1e-4)
    assert (found.kept_steps, found.breaks, found.slowed_s) == (found.gpu_steps, 0, 0.0)


def test_the_slowest_gpu_sets_the_pace_of_its_gang_alone() -> None:
    slow = (read_fault("slow2@0s+1800s#9"),)  # of the second gang
    sound, found = (run_fleet(2, PLAN, faults, 3600.0, NEVER, rng()) for faults in ((), slow))
    assert (sound.gpu_steps - found.gpu_steps) // 8 == pytest.approx(1800 / 0.1 - 1800 / 0.19, rel=0.001)
    assert found.slowed_s == pytest.approx(8 * 0.09 * 1800 / 0.19, rel=0.001)  # of all GPUs of the gang


def test_jitter_makes_gangs_slower_the_larger_they_are() -> None:
    taken = [
        gpus * 3600 / run_fleet(1, replace(PLAN, gpus=gpus, jitter=0.1), (), 3600.0, NEVER, rng()).gpu_steps
        for gpus in (1, 8, 64)
    ]
    assert taken[0] == pytest.approx(0.1, rel=0.01)
    assert taken[1] == pytest.approx(0.1 + 0.009 * 1.42, rel=0.01)  # what the largest of 8 and of 64 normal
    assert taken[2] == pytest.approx(0.1 + 0.009 * 2.35, rel=0.02)  # numbers is in the mean


def test_a_gang_that_breaks_loses_what_came_after_its_checkpoint() -> None:
    plan = replace(PLAN, checkpoint_s=600.0, restart_s=100.0)
    found = run_fleet(1, plan, (read_fault("ecc@900s"),), 3600.0, NEVER, rng())
    assert found.breaks == 1
    assert (found.gpu_steps - found.kept_steps) // 8 == pytest.approx(3000, rel=0.4)  # since the checkpoint at 600 s
    assert found.gpu_steps // 8 == pytest.approx(35_000, rel=0.001)


def test_breaks_come_as_often_as_is_said() -> None:
    found = run_fleet(50, PLAN, (), 36_000.0, 100_000.0, rng())
    assert found.breaks == pytest.approx(50 * 8 * 36_000 / 100_000, rel=0.25)


def test_a_device_that_breaks_takes_its_own_gang_down_and_no_other() -> None:
    assert run_fleet(4, PLAN, (read_fault("ecc@900s#9"),), 3600.0, NEVER, rng()).breaks == 1


def test_a_slow_link_slows_what_the_gang_sends_and_a_hang_stops_it_once() -> None:
    sound, linked, hung = (
        run_fleet(2, PLAN, tuple(map(read_fault, specs)), 3600.0, NEVER, rng())
        for specs in ((), ("link4@0s+1800s#9",), ("hang600@100s#9",))
    )
    assert (sound.gpu_steps - linked.gpu_steps) // 8 == pytest.approx(1800 / 0.1 - 1800 / 0.13, rel=0.001)
    assert (sound.gpu_steps - hung.gpu_steps) // 8 == pytest.approx(6000, rel=0.001)
    assert hung.slowed_s == pytest.approx(8 * 600)
