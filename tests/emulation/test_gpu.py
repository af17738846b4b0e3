"""One device: what breaks it, what makes it slow or stand still, and who is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perdure.emulation.clocks import VirtualClock
from perdure.emulation.faults import DeviceError, DeviceFault, read_fault
from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.node import make_node
from perdure.emulation.settings import EmulationSettings


def gpu_with(*specs: str, told: list[DeviceFault] | None = None) -> EmulatedGpu:
    """A device whose clock goes on only where the program waits."""
    clock = VirtualClock()
    clock.enter()
    gpu = EmulatedGpu(0, "h100", 80_000, clock, np.random.default_rng(0), faults=tuple(map(read_fault, specs)))
    if told is not None:
        gpu.on_break = told.append
    return gpu


def test_a_broken_device_says_so_at_each_call_and_its_driver_once() -> None:
    told: list[DeviceFault] = []
    gpu = gpu_with("xid79@0s", told=told)
    for _ in range(3):
        with pytest.raises(DeviceError, match="CUDA error: unknown error"):
            gpu.run(1.0)
    assert [each.xid for each in told] == [79]


def test_the_driver_names_a_gpu_by_its_number_on_the_node(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    settings = EmulationSettings("h100", "resnet50", 1, True, faults=("xid79@0s",), kernel_log=str(log), numbers=(3,))
    clock = VirtualClock()
    clock.enter()
    with pytest.raises(DeviceError):
        make_node(settings, clock).gpus[0].run(1.0)
    assert "PCI:0000:1b:00" in log.read_text()  # 0x18 and 3


def test_a_program_that_waits_meets_what_broke_meanwhile() -> None:
    gpu = gpu_with("ecc@5s")
    gpu.run(10.0)  # asked for before
    with pytest.raises(DeviceError, match="uncorrectable ECC error"):
        gpu.synchronise()


def test_one_call_hangs_and_those_after_it_do_not() -> None:
    gpu = gpu_with("hang600@20s")
    begin = gpu.clock.now
    gpu.run(1.0)
    assert gpu.clock.now == begin
    gpu.clock.advance_to(begin + 30)
    gpu.run(1.0)
    assert gpu.clock.now - begin == pytest.approx(630)
    gpu.run(1.0)
    gpu.synchronise()
    assert gpu.clock.now - begin == pytest.approx(632)


def test_a_slow_link_and_a_hot_device_together_slow_a_copy_by_both() -> None:
    gpu = gpu_with("slow2@0s", "link4@0s")
    begin = gpu.clock.now
    assert gpu.run(1.0) - begin == pytest.approx(2.0)
    assert gpu.run(1.0, link=True) - begin == pytest.approx(10.0)
