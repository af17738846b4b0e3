"""Clocks: a jump, what does not count, and what loaders would have done while the GPU was busy."""

from __future__ import annotations

import os
import threading
import time

import pytest

from perdure.emulation import clocks
from perdure.emulation.clocks import MOST_LATE_S, RealClock, VirtualClock, programs_time


def test_a_real_clock_waits_no_less_than_it_should() -> None:
    clock = RealClock()
    begin = time.perf_counter()
    clock.advance_to(clock.now + 0.02)
    clock.advance_to(0.0)  # which has passed
    assert time.perf_counter() - begin >= 0.02


def test_a_thread_that_waits_keeps_its_nice_and_its_policy() -> None:
    """It asks for short slices of time, and for nothing that it has no right to."""
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getscheduler(0)
    clock = RealClock()
    clock.advance_to(clock.now + 0.002)
    assert (os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getscheduler(0)) == before


def test_a_virtual_clock_jumps_and_stands_still_inside_the_emulation() -> None:
    clock = VirtualClock()
    begin = time.perf_counter()
    clock.advance_to(clock.now + 3600)
    assert clock.now >= 3600
    assert time.perf_counter() - begin < 60
    with clock.outside(), clock.outside():
        before = clock.now
        time.sleep(0.01)
        assert clock.now == before
    assert clock.now - before < 0.01


def test_a_wait_for_loaders_is_shortened_by_what_they_would_have_done() -> None:
    clock = VirtualClock()
    begin = clock.now
    with clock.waiting():
        time.sleep(0.02)
    assert clock.now - begin >= 0.02  # nothing came before
    clock.advance_to(clock.now + 0.015)
    begin = clock.now
    with clock.waiting():
        time.sleep(0.03)
    assert 0.015 <= clock.now - begin < 0.03 + 1.0


def test_a_program_is_told_virtual_time_and_sleeps_by_jumps() -> None:
    clock = VirtualClock()
    with programs_time(clock):
        begin, wall = time.perf_counter(), time.time()
        time.sleep(1000)
        assert time.perf_counter() - begin >= 1000
        assert time.time() - wall >= 1000
        assert time.time_ns() > wall * 1e9
        with pytest.raises(ValueError, match="must be non-negative"):
            time.sleep(-1)
        before = clock.now
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()
        assert clock.now - before >= 0.001  # another thread sleeps for real
    assert time.perf_counter() - begin < 1000


class LateKernel:
    """A time that goes on by itself a little, and by more than is asked for in a sleep."""

    def __init__(self, late_s: float) -> None:
        self.at, self.late_s = 100.0, late_s

    def monotonic(self) -> float:
        self.at += 1e-6
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds + self.late_s


def late_by(late_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[LateKernel, RealClock]:
    kernel = LateKernel(late_s)
    monkeypatch.setattr(clocks, "_monotonic", kernel.monotonic)
    monkeypatch.setattr(clocks, "_sleep", kernel.sleep)
    return kernel, RealClock()


def test_what_the_kernel_wakes_too_late_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, clock = late_by(0.004, monkeypatch)
    begin = kernel.at
    for _ in range(100):
        clock.advance_to(clock.now + 0.01)
    assert kernel.at - begin == pytest.approx(1.004, abs=0.002)
    assert clock.now == pytest.approx(1.0, abs=0.002)
    assert clock.passed == pytest.approx(1.004, abs=0.002)


def test_what_is_woken_much_too_late_was_stopped_and_nothing_is_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, clock = late_by(2 * MOST_LATE_S, monkeypatch)
    begin = kernel.at
    for _ in range(10):
        clock.advance_to(clock.now + 0.01)
    assert kernel.at - begin == pytest.approx(10 * (0.01 + 2 * MOST_LATE_S), abs=0.002)
    assert clock.now == pytest.approx(clock.passed, abs=1e-4)
