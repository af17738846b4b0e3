"""Batches that a GPU prepares: its time, the host's, and none where nothing is emulated."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.clocks import RealClock, VirtualClock  # noqa: E402
from perdure.emulation.framework import emulated  # noqa: E402
from perdure.emulation.node import make_node  # noqa: E402
from perdure.emulation.preprocessing import PreparedOnGpu, burn, on_gpu  # noqa: E402
from perdure.emulation.settings import EmulationSettings  # noqa: E402

H100 = EmulationSettings(gpu="h100", model="resnet50", virtual=True)


def test_the_gpu_is_busy_with_each_batch_before_it_trains_on_it() -> None:
    node = make_node(H100, VirtualClock())
    model = torch.nn.Linear(8, 2)
    with node.clock.outside(), emulated(node):
        model.cuda()
        torch.cuda.synchronize()
        begin, busy = node.clock.now, node.gpu.busy_s
        for batch in PreparedOnGpu([torch.zeros(64, 8)] * 5, gpu_s=0.02):
            model(batch.to("cuda", non_blocking=True)).sum().backward()
        torch.cuda.synchronize()
        step = node.profile(64)
        least = 5 * (0.02 + step.forward_s + step.backward_s)
        assert least <= node.gpu.busy_s - busy <= least + 0.001  # and the copies
        assert node.clock.now - begin == pytest.approx(node.gpu.busy_s - busy)


def test_the_hosts_part_is_real_work_and_goes_on_while_the_program_trains() -> None:
    node = make_node(EmulationSettings(gpu="h100", model="resnet50"), RealClock())
    with emulated(node):
        begin = time.process_time()
        for _ in PreparedOnGpu(range(3), gpu_s=0.0, cpu_s=0.05, cpu_threads=2):
            pass
    assert time.process_time() - begin >= 3 * 2 * 0.05
    begin, used = time.perf_counter(), time.thread_time()
    burn(0.2, share=0.1)
    assert 0.02 <= time.thread_time() - used < 0.1
    assert time.perf_counter() - begin >= 0.18


def test_without_emulation_batches_are_as_they_are() -> None:
    on_gpu(1.0)
    assert list(PreparedOnGpu([1, 2, 3], gpu_s=9.0, cpu_s=9.0)) == [1, 2, 3]
    with pytest.raises(ValueError, match="cpu_share is at most 1"):
        PreparedOnGpu([1], gpu_s=0.1, cpu_share=2.0)
