"""A PyTorch program on emulated GPUs: times of the table, shapes and errors of its own, memory, copies, checkpoints."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.clocks import RealClock, VirtualClock, programs_time  # noqa: E402
from perdure.emulation.framework import emulated  # noqa: E402
from perdure.emulation.known_profiles import profile_of  # noqa: E402
from perdure.emulation.node import EmulatedNode, make_node  # noqa: E402
from perdure.emulation.settings import EmulationSettings  # noqa: E402


@contextmanager
def on_gpus(virtual: bool = True, **settings: Any) -> Iterator[EmulatedNode]:
    """A block that runs as a program of ``perdure emulate run`` does."""
    given = EmulationSettings(**{"gpu": "h100", "model": "resnet50", "virtual": virtual, **settings})
    clock = VirtualClock() if virtual else RealClock()
    node = make_node(given, clock)
    with emulated(node):
        if isinstance(clock, VirtualClock):
            with programs_time(clock):
                yield node
        else:
            yield node


def small_model() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 10))


class SlowFiles:
    """A data set whose items take 10 ms to read."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return torch.zeros(3, 16, 16)


def train(steps: int, batch: int, model: Any, images: Any) -> list[float]:
    """Seconds of each step by the program's own clock."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")
    taken = []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return taken


@pytest.mark.parametrize("batch", [1, 8, 64, 100, 512])
def test_a_step_takes_the_time_of_the_table_in_virtual_time(batch: int) -> None:
    with on_gpus():
        images = torch.zeros(batch, 3, 16, 16, device="cuda")
        taken = train(8, batch, small_model().cuda(), images)
    wanted = profile_of("h100", "resnet50", batch).step_s
    assert min(taken) == pytest.approx(wanted, rel=0.02)  # others may hold what a busy machine did meanwhile


def test_a_program_meets_a_node_with_gpus() -> None:
    with on_gpus(gpus=4):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 4
        assert torch.cuda.get_device_name(0) == "h100"
        assert torch.cuda.get_device_properties(0).total_memory == 81559 << 20
        assert torch.accelerator.current_accelerator().type == "cuda"
        tensor = torch.ones(2, 3).to("cuda:0")
        assert (tensor.device, tensor.is_cuda, tensor.is_meta) == (torch.device("cuda", 0), True, False)
        assert (tensor + 1).cuda().shape == (2, 3)
        assert tensor.cpu().device == torch.device("cpu")
        assert tensor.sum().item() == 0.0  # nothing is computed
        assert f"{tensor.mean():.2f}" == "0.00"
        assert torch.nonzero(tensor).shape == (0, 2)
        with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
            tensor.numpy()
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            tensor.cpu().to("cuda:7")
    assert not torch.cuda.is_available()
    assert torch.ones(1).sum().item() == 1.0


def test_parameters_stay_the_same_objects_on_the_gpu() -> None:
    with on_gpus():
        model = small_model()
        before = list(model.parameters())
        model.to("cuda")
        assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
        assert {each.device.type for each in model.parameters()} == {"cuda"}


def test_a_wrong_shape_is_the_programs_own_error() -> None:
    with on_gpus(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        small_model().cuda()(torch.zeros(4, 3, 20, 20, device="cuda"))


def test_gradients_have_the_shapes_of_their_parameters_and_hooks_of_amp_and_clipping_work() -> None:
    with on_gpus():
        model, scaler = small_model().cuda(), torch.amp.GradScaler("cuda")
        optimiser = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            with torch.autocast("cuda"):
                loss = model(torch.zeros(4, 3, 16, 16).cuda(non_blocking=True)).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimiser)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimiser)
            scaler.update()
        assert all(each.grad.shape == each.shape for each in model.parameters())


def test_a_batch_that_does_not_fit_gets_the_frameworks_own_error() -> None:
    with on_gpus(gpu="v100"):
        model = small_model().cuda()
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
            model(torch.zeros(512, 3, 16, 16, device="cuda"))
        with torch.no_grad():
            assert model(torch.zeros(2, 3, 16, 16, device="cuda")).shape == (2, 10)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 34, device="cuda")


def test_memory_is_that_of_the_table() -> None:
    with on_gpus():
        train(1, 64, small_model().cuda(), torch.zeros(64, 3, 16, 16, device="cuda"))
        wanted = profile_of("h100", "resnet50", 64)
        assert torch.cuda.max_memory_allocated() == int(wanted.peak_mib * (1 << 20))
        assert torch.cuda.memory_allocated() == int(wanted.persistent_mib * (1 << 20))
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()


def test_a_copy_of_a_batch_takes_the_time_of_the_table() -> None:
    with on_gpus() as node:
        images = torch.zeros(32, 3, 224, 224)
        before = node.gpu.busy_s
        images.to("cuda", non_blocking=True)
        assert node.gpu.busy_s - before == pytest.approx(profile_of("h100", "resnet50", 32).transfer_s)


def test_a_checkpoint_has_all_bytes_and_comes_back_to_the_gpu() -> None:
    with on_gpus():
        model, file = small_model().cuda(), io.BytesIO()
        torch.save(model.state_dict(), file)
        assert file.tell() > sum(4 * each.numel() for each in model.parameters())
        for where in (None, "cpu", "cuda", torch.device("cuda:0")):
            file.seek(0)
            found = torch.load(file, map_location=where)
            assert {each.device.type for each in found.values()} == {"cpu" if where == "cpu" else "cuda"}
            model.load_state_dict(found)


def test_a_fault_is_raised_as_cuda_tells_it_and_slowness_is_slow() -> None:
    with on_gpus(faults=("slow3@step2", "xid79@step4")) as node:
        model, images = small_model().cuda(), torch.zeros(8, 3, 16, 16, device="cuda")
        taken: list[float] = []
        for _ in range(4):
            before = node.gpu.busy_s
            train(1, 8, model, images)
            taken.append(node.gpu.busy_s - before)
        with pytest.raises(RuntimeError, match="CUDA error: unknown error"):
            train(1, 8, model, images)
    wanted = profile_of("h100", "resnet50", 8).step_s
    assert taken == pytest.approx([wanted, wanted, 3 * wanted, wanted])


def test_events_tell_the_gpus_time() -> None:
    with on_gpus():
        model, images = small_model().cuda(), torch.zeros(8, 3, 16, 16, device="cuda")
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        model(images)  # so that the queue is not empty at the first event
        begin.record()
        model(images)
        end.record()
        torch.cuda.synchronize()
        assert begin.elapsed_time(end) == pytest.approx(1e3 * profile_of("h100", "resnet50", 8).forward_s, rel=1e-6)


@pytest.mark.parametrize("virtual", [True, False])
def test_loading_data_is_real_and_goes_on_while_the_gpu_computes(virtual: bool) -> None:
    with on_gpus(virtual=virtual):
        model, begin = small_model().cuda(), time.perf_counter()
        for images in torch.utils.data.DataLoader(SlowFiles(), batch_size=4, num_workers=1, pin_memory=True):
            assert images.is_pinned()
            model(images.cuda(non_blocking=True)).sum().backward()
        torch.cuda.synchronize()
        taken = time.perf_counter() - begin
    assert taken >= 24 * 0.01  # the files are what takes longest
