"""What takes which time, and which memory, to the last digit: the program itself takes none here."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.clocks import VirtualClock  # noqa: E402
from perdure.emulation.framework import emulated  # noqa: E402
from perdure.emulation.gpu import EmulatedGpu  # noqa: E402
from perdure.emulation.known_profiles import profile_of  # noqa: E402
from perdure.emulation.node import COPY_S, EmulatedNode, make_node  # noqa: E402
from perdure.emulation.profiles import IMAGE_BYTES, MIB  # noqa: E402
from perdure.emulation.settings import EmulationSettings  # noqa: E402

nn = torch.nn
STEP = profile_of("h100", "resnet50", 64)


@contextmanager
def on_still_gpus(**settings: Any) -> Iterator[EmulatedNode]:
    """A block on emulated GPUs whose clock goes on only where the program waits for them."""
    node = make_node(EmulationSettings(**{"gpu": "h100", "model": "resnet50", "virtual": True, **settings}), clock())
    with node.clock.outside(), emulated(node):
        yield node


def clock() -> VirtualClock:
    return VirtualClock()


def exactly(seconds: float) -> Any:
    return pytest.approx(seconds, rel=1e-9, abs=1e-12)


def taken_by(node: EmulatedNode, act: Any) -> float:
    begin = node.clock.now
    act()
    torch.cuda.synchronize()
    return node.clock.now - begin


def images(examples: int = 64) -> Any:
    return torch.zeros(examples, 16, device="cuda")


def test_each_part_of_a_step_takes_its_time_of_the_table() -> None:
    with on_still_gpus() as node:
        model, data = nn.Linear(16, 4).cuda(), images()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.cuda.synchronize()
        assert taken_by(node, lambda: model(data)) == exactly(STEP.forward_s)
        loss = model(data).sum()
        torch.cuda.synchronize()
        assert taken_by(node, loss.backward) == exactly(STEP.backward_s)
        assert taken_by(node, optimiser.step) == exactly(STEP.optimiser_s)


def test_a_copy_takes_as_long_as_its_bytes_and_a_small_one_its_start() -> None:
    with on_still_gpus() as node:
        nn.Linear(16, 4).cuda()(images())  # the batch that copies are measured by
        torch.cuda.synchronize()
        size = torch.zeros(64, 1000)
        wanted = STEP.transfer_s * size.numel() * 4 / (64 * IMAGE_BYTES)
        assert taken_by(node, lambda: size.to("cuda")) == exactly(wanted)
        assert taken_by(node, lambda: torch.zeros(64, 2000).to("cuda")) == exactly(2 * wanted)
        assert taken_by(node, lambda: torch.zeros(8).cuda()) == exactly(COPY_S)
        there = size.cuda()
        assert taken_by(node, lambda: there.copy_(other=size)) == exactly(wanted)


def test_a_program_waits_where_it_reads_and_where_a_copy_blocks_and_nowhere_else() -> None:
    with on_still_gpus() as node:
        model, data = nn.Linear(16, 4).cuda(), images()
        torch.cuda.synchronize()
        begin = node.clock.now
        out = model(data)
        torch.zeros(64, 1000).to("cuda", non_blocking=True)
        assert node.clock.now == begin
        torch.zeros(64, 1000).to("cuda")
        assert begin < node.clock.now == exactly(node.gpu.busy_until)
        model(data)
        before = node.clock.now
        out.sum().item()
        assert before < node.clock.now == exactly(node.gpu.busy_until)


def test_a_program_is_no_more_than_two_steps_ahead() -> None:
    with on_still_gpus() as node:
        model, data = nn.Linear(16, 4).cuda(), images()
        torch.cuda.synchronize()
        begin = node.clock.now
        for _ in range(6):
            model(data).sum().backward()
        passes = STEP.forward_s + STEP.backward_s
        assert node.clock.now - begin == exactly(4 * passes)
        assert node.gpu.busy_until - begin == exactly(6 * passes)


def test_data_parallelism_in_one_process_gives_each_gpu_its_share_of_a_batch() -> None:
    with on_still_gpus(gpus=4) as node:
        model, data = nn.DataParallel(nn.Linear(16, 4)).cuda(), images()
        torch.cuda.synchronize()
        before, share = [gpu.busy_s for gpu in node.gpus], profile_of("h100", "resnet50", 16)
        assert taken_by(node, lambda: model(data)) == exactly(share.forward_s)
        for gpu, busy_s in zip(node.gpus, before, strict=True):
            assert gpu.busy_s - busy_s == exactly(share.forward_s)
            assert gpu.held_mib == share.persistent_mib
        other = nn.Linear(16, 4).cuda()
        assert taken_by(node, lambda: other(data)) == exactly(STEP.forward_s)  # it is on one GPU


class OverTwoGpus(nn.Module):  # type: ignore[misc,name-defined]
    """A quarter of its parameters are on the first."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.end = nn.Linear(16, 16, bias=False).cuda(0), nn.Linear(16, 48, bias=False).cuda(1)

    def forward(self, given: Any) -> Any:
        return self.end(self.begin(given).to("cuda:1"))


def test_a_model_over_two_gpus_takes_its_time_on_one_after_the_other() -> None:
    with on_still_gpus(gpus=2) as node:
        model, data = OverTwoGpus(), images()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        model(data)
        for act, seconds, in_turn in (
            (lambda: model(data), STEP.forward_s, True),
            (lambda: model(data).sum().backward(), STEP.forward_s + STEP.backward_s, True),
            (optimiser.step, STEP.optimiser_s, False),  # parameters of one wait for no other
        ):
            for index in range(2):
                torch.cuda.synchronize(index)
            begin, before = node.clock.now, [gpu.busy_s for gpu in node.gpus]
            act()
            assert [gpu.busy_s - s for gpu, s in zip(node.gpus, before, strict=True)] == [
                exactly(seconds / 4), exactly(seconds * 3 / 4),
            ]  # fmt: skip
            last = max(gpu.busy_until for gpu in node.gpus)
            assert last - begin == exactly(seconds if in_turn else seconds * 3 / 4)


def test_a_copy_from_one_gpu_to_another_waits_for_what_is_computed_there() -> None:
    with on_still_gpus(gpus=2) as node:
        model, data = nn.Linear(16, 4).cuda(), images()
        torch.cuda.synchronize()
        begin = node.clock.now
        model(data).to("cuda:1")
        assert node.clock.now - begin == exactly(STEP.forward_s + COPY_S)


def test_a_smaller_model_is_charged_its_share_of_the_largest() -> None:
    with on_still_gpus() as node:
        large, small, data = nn.Linear(16, 99, bias=False).cuda(), nn.Linear(16, 33, bias=False).cuda(), images()
        torch.cuda.synchronize()
        assert taken_by(node, lambda: large(data)) == exactly(STEP.forward_s)
        assert taken_by(node, lambda: small(data)) == exactly(STEP.forward_s / 3)


def test_jitter_has_the_mean_and_the_spread_that_it_should() -> None:
    gpu = EmulatedGpu(0, "h100", 80_000, clock(), np.random.default_rng(2), jitter=0.1)
    with gpu.clock.outside():
        ends = np.array([0.0, *(gpu.run(1.0) for _ in range(4000))])
    taken = np.diff(ends)
    assert taken.mean() == pytest.approx(1.0, rel=0.01)
    assert taken.std() == pytest.approx(0.1, rel=0.05)


def test_a_replayed_graph_takes_as_long_as_what_was_captured() -> None:
    with on_still_gpus() as node:
        model, data, graph = nn.Linear(16, 4).cuda(), images(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(data).sum().backward()
        torch.cuda.synchronize()
        steps = node.gpu.steps
        assert taken_by(node, graph.replay) == exactly(STEP.forward_s + STEP.backward_s)
        assert node.gpu.steps == steps + 1


def test_a_programs_own_tensors_take_memory_until_nothing_refers_to_them() -> None:
    with on_still_gpus() as node:
        kept = [torch.zeros(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
        view = kept[0][5:]
        assert torch.cuda.memory_allocated() == 300 * MIB
        del kept
        gc.collect()
        assert torch.cuda.memory_allocated() == 100 * MIB  # of which a view is left
        del view
        gc.collect()
        assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == (0, 300 * MIB)
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\.00 GiB"):
            hoard = [torch.zeros(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(80)]
        assert node.gpu.used_mib <= node.gpu.capacity_mib
        hoard = []
        gc.collect()
        assert hoard == []


@pytest.mark.parametrize("size", [1, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_tensors_of_a_mebibyte_and_more_are_counted(size: int) -> None:
    with on_still_gpus():
        held = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(3)]
        assert torch.cuda.memory_allocated() == (len(held) * size if size >= MIB else 0)


def test_a_step_fits_up_to_the_last_byte_beside_what_the_program_holds() -> None:
    with on_still_gpus() as node:
        model, data = nn.Linear(16, 4).cuda(), images()
        free = int((node.gpu.capacity_mib - STEP.peak_mib) * MIB)
        held = torch.zeros(free, dtype=torch.uint8, device="cuda")
        model(data).sum().backward()
        more = torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            model(data)
        assert held.numel() + more.numel() > free
        with torch.no_grad():
            model(data)  # no activations are kept


def test_the_inputs_of_a_step_are_in_its_profile_and_count_once() -> None:
    with on_still_gpus() as node:
        model = nn.Linear(1 << 20, 1).cuda()
        data = torch.zeros(64, 1 << 20, device="cuda")  # 256 MiB
        model(data).sum().backward()
        assert node.gpu.peak_mib == pytest.approx(STEP.peak_mib)


def test_a_program_that_allows_itself_a_part_of_the_memory_gets_no_more() -> None:
    with on_still_gpus():
        torch.cuda.set_per_process_memory_fraction(0.01)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")


def test_processes_of_a_job_draw_times_of_their_own() -> None:
    drawn = []
    for rank in (0, 1, 0):
        node = make_node(EmulationSettings(gpu="h100", model="resnet50", jitter=0.1), clock(), rank)
        node.gpu.run(1.0)
        drawn.append(node.gpu.busy_s)
    assert drawn[0] == drawn[2] != drawn[1]
