"""What programs do with GPUs, one thing at a time: each runs as it would on one."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.clocks import VirtualClock  # noqa: E402
from perdure.emulation.framework import emulated  # noqa: E402
from perdure.emulation.node import make_node  # noqa: E402
from perdure.emulation.settings import EmulationSettings  # noqa: E402
from perdure.errors import InputError  # noqa: E402

nn, F = torch.nn, torch.nn.functional


def recurrent() -> None:
    model = nn.LSTM(8, 16, 2, batch_first=True).cuda()
    state = None
    for _ in range(3):
        out, state = model(torch.zeros(4, 5, 8, device="cuda"), state)
        state = tuple(each.detach() for each in state)
        out.sum().backward()
    assert out.shape == (4, 5, 16)


def attention() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, batch_first=True), 2).cuda()
    padding = torch.zeros(2, 10, dtype=torch.bool).cuda()
    for _ in range(2):
        model(torch.zeros(2, 10, 32).cuda(), src_key_padding_mask=padding).mean().backward()
    model.eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 10, 32).cuda()).is_cuda


def named_outputs() -> None:
    class NamedOutput(dict[str, Any]):
        pass

    class TinyNet(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)

        def forward(self, words: Any = None, labels: Any = None) -> NamedOutput:
            logits = self.head(self.embed(words))
            return NamedOutput(loss=F.cross_entropy(logits.view(-1, 10), labels.view(-1)), logits=logits)

    model, words = TinyNet().cuda(), torch.zeros(2, 5, dtype=torch.long, device="cuda")
    for _ in range(3):
        found = model(words=words, labels=words)
        found["loss"].backward()
    assert isinstance(found, NamedOutput)
    assert found["logits"].shape == (2, 5, 10)


def accuracy() -> None:
    model = nn.Linear(8, 10).cuda().eval()
    labels = torch.randint(0, 10, (6,)).to("cuda", non_blocking=True)
    with torch.inference_mode():
        out = model(torch.randn(6, 8, device="cuda"))
        right = out.topk(5, 1, True, True)[1].t().eq(labels.view(1, -1))
        assert right[:1].reshape(-1).float().sum(0, keepdim=True).item() == 0.0
        assert F.softmax(out, 1).cpu().numpy().shape == (6, 10)


def masks() -> None:
    values = torch.randn(5, device="cuda")
    values[values > 0] = 0
    assert values[values > 0].sum().item() == 0
    assert len(values[torch.tensor([0, 1])].tolist()) == 2


def averages() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda()
    average = copy.deepcopy(model)
    for a, b in zip(average.parameters(), model.parameters(), strict=True):
        a.data.mul_(0.9).add_(b.data, alpha=0.1)
    average.load_state_dict(model.state_dict())
    assert average(torch.zeros(3, 4, device="cuda")).is_cuda


def devices() -> None:
    assert torch.from_numpy(np.zeros(3, np.float32)).to("cuda:0").type() == "torch.cuda.FloatTensor"
    assert torch.zeros_like(torch.tensor([1, 2], device="cuda")).get_device() == 0
    with torch.device("cuda"):
        assert nn.Linear(3, 3).weight.is_cuda
    torch.set_default_device("cuda")
    assert torch.zeros(3).is_cuda
    torch.set_default_device(None)
    torch.randn(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.zeros(3).cuda().record_stream(torch.cuda.current_stream())
    torch.cuda.nvtx.range_push("a")


def precision() -> None:
    model = torch.compile(nn.Linear(4, 4).half().cuda(), mode="max-autotune")
    assert model(torch.zeros(2, 4, device="cuda", dtype=torch.half)).dtype == torch.half
    model.to("cpu")
    assert not model.weight.is_cuda


def two_models() -> None:
    maker, judge = nn.Linear(4, 8).cuda(), nn.Linear(8, 1).cuda()
    optimisers = [torch.optim.Adam(each.parameters()) for each in (maker, judge)]
    for _ in range(3):
        fake = maker(torch.randn(4, 4, device="cuda"))
        judge(fake.detach()).mean().backward()
        optimisers[1].step()
        optimisers[0].zero_grad()
        judge(fake).mean().backward()
        assert maker.weight.grad is not None
        optimisers[0].step()


def whole_checkpoints() -> None:
    model, file = nn.Linear(4, 4).cuda(), io.BytesIO()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
    model(torch.zeros(2, 4, device="cuda")).sum().backward()
    optimiser.step()
    schedule.step()
    torch.save({"optimiser": optimiser.state_dict(), "model": model}, file)
    file.seek(0)
    found = torch.load(file, weights_only=False)
    optimiser.load_state_dict(found["optimiser"])
    assert found["model"].weight.is_cuda


def checkpoints_as_large_as_real_ones() -> None:
    file = io.BytesIO()
    torch.save({"weights": torch.zeros(250_000, device="cuda")}, file)
    assert 1_000_000 <= len(file.getvalue()) < 1_010_000
    file.seek(0)
    assert torch.load(file, map_location="cpu")["weights"].sum() == 0


def split_batches() -> None:
    model = nn.DataParallel(nn.Linear(4, 4)).cuda()
    assert model(torch.zeros(8, 4).cuda()).shape == (8, 4)


def pickles() -> None:
    values = torch.zeros(3, 4, device="cuda")
    found = pickle.loads(pickle.dumps({"values": values, "model": nn.Linear(4, 4).cuda()}))
    assert found["values"].is_cuda
    assert found["values"].shape == (3, 4)
    assert found["model"].weight.is_cuda
    assert len(pickle.dumps(torch.zeros(10_000, device="cuda"))) > 40_000
    assert torch.equal(pickle.loads(pickle.dumps(torch.ones(2))), torch.ones(2))


def weights_across_devices() -> None:
    on_gpu, on_host = nn.Linear(4, 4).cuda(), nn.Linear(4, 4)
    on_host.load_state_dict(on_gpu.state_dict())
    assert not on_host.weight.is_cuda
    assert isinstance(on_host.weight, nn.Parameter)
    on_gpu.load_state_dict(on_host.state_dict())
    assert on_gpu.weight.is_cuda


def comparisons() -> None:
    values = torch.zeros(3, device="cuda")
    assert torch.allclose(values, values)
    assert torch.equal(values, values)


def losses_by_value() -> None:
    logits = torch.randn(50, 4, 20).log_softmax(2).cuda().requires_grad_()
    lengths = torch.full((4,), 50), torch.full((4,), 30)
    F.ctc_loss(logits, torch.randint(1, 20, (4, 30)), *lengths).backward()
    assert logits.grad.shape == logits.shape


def distributions() -> None:
    spread = torch.ones(4, 2, device="cuda")
    assert torch.distributions.Normal(torch.zeros_like(spread), spread).rsample().is_cuda


def pinned_from_the_start() -> None:
    assert torch.zeros(4, 16, pin_memory=True).is_pinned()


def graphs_scripts_and_profiles() -> None:
    model, graph = torch.jit.script(nn.Linear(4, 4)).cuda(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.jit.trace(model, torch.zeros(2, 4).cuda())(torch.zeros(2, 4, device="cuda"))
    graph.replay()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        model(out)
    assert profile.key_averages() is not None


def hooks_at_each_call() -> None:
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda(), list[int]()
    handle = model[0].register_forward_hook(lambda *_: seen.append(1))
    for _ in range(3):
        model(torch.zeros(2, 4, device="cuda"))
    handle.remove()
    assert seen == [1, 1, 1]


def models_one_after_another() -> None:
    for classes in range(2, 12):  # each in the memory of the one before
        model = nn.Linear(4, classes).cuda()
        assert model(torch.zeros(2, 4, device="cuda")).shape == (2, classes)
        del model
        gc.collect()


def errors_of_devices() -> None:
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*cuda:0 and cpu"):
        torch.zeros(3).cuda() + torch.zeros(3)
    for wrong in (
        lambda: torch.cuda.set_device(7),
        lambda: torch.cuda.get_device_name(7),
        lambda: torch.zeros(3, device="cuda:7"),
    ):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            wrong()


def mixed_precision() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LayerNorm(288), nn.Linear(288, 4)
    ).cuda()
    images, scaler = torch.zeros(2, 3, 8, 8, device="cuda"), torch.amp.GradScaler("cuda")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for dtype in (torch.float16, torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            out = model(images)
            loss = F.cross_entropy(out, torch.zeros(2, dtype=torch.long, device="cuda"))
        assert (out.dtype, loss.dtype) == (dtype, torch.float32)
        scaler.scale(loss).backward()
        assert model[0].weight.grad.dtype == torch.float32
        scaler.step(optimiser)
        scaler.update()
    assert model(images).dtype == torch.float32
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).cuda()
    lstm = nn.LSTM(8, 8, batch_first=True).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert encoder(torch.zeros(2, 5, 16, device="cuda")).dtype == torch.float32  # it ends with a LayerNorm
        assert lstm(torch.zeros(2, 5, 8, device="cuda"))[0].dtype == torch.bfloat16
        double = torch.zeros(2, 2, device="cuda", dtype=torch.float64)
        assert F.linear(double, double).dtype == torch.float64  # which is left as it is
        half = torch.zeros(2, 3, 4, device="cuda", dtype=torch.bfloat16)
        assert torch.einsum("bij,bkj->bik", half, half.float()).dtype == torch.bfloat16


class TwiceOnGpu(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """A function of the program's own, whose backward pass makes tensors."""

    @staticmethod
    def forward(_: Any, given: Any) -> Any:
        return given * 2

    @staticmethod
    def backward(_: Any, gradient: Any) -> Any:
        assert gradient.is_cuda
        return torch.ones(3, device="cuda") * gradient * torch.tensor(2.0).cuda()


def backward_passes() -> None:
    inner, given = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).cuda(), torch.zeros(3, requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        words = torch.zeros(2, 5, 16, device="cuda", requires_grad=True)
        torch.utils.checkpoint.checkpoint(inner, words, use_reentrant=False).sum().backward()
    assert inner.linear1.weight.grad.is_cuda
    assert words.grad.shape == words.shape
    TwiceOnGpu.apply(given.cuda()).sum().backward()
    assert given.grad.tolist() == [0.0, 0.0, 0.0]
    model = nn.Linear(4, 2).cuda()
    for _ in range(2):
        F.cross_entropy(model(torch.zeros(3, 4).cuda()).cpu(), torch.zeros(3, dtype=torch.long)).backward()
    assert model.weight.grad.is_cuda


class OverTwoGpus(nn.Module):  # type: ignore[misc,name-defined]
    """A quarter of its parameters are on the first."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.end = nn.Linear(8, 8, bias=False).cuda(0), nn.Linear(8, 24, bias=False).to("cuda:1")

    def forward(self, given: Any) -> Any:
        return self.end(self.begin(given.to("cuda:0")).to("cuda:1"))


def several_gpus() -> None:
    first, second = torch.zeros(3, device="cuda"), torch.zeros(3).to("cuda:1", None, True)
    assert [str(each.device) for each in (first, second, second + 1, second.sum(), second.cuda())] == [
        "cuda:0", "cuda:1", "cuda:1", "cuda:1", "cuda:0",
    ]  # fmt: skip
    with torch.cuda.device(1):
        assert torch.zeros(3, device="cuda").get_device() == torch.cuda.current_stream().device.index == 1
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*cuda:0 and cuda:1"):
        first + second
    first.copy_(second)
    kept = torch.zeros(1 << 20, device="cuda:1")
    assert [torch.cuda.memory_allocated(each) for each in (0, 1)] == [0, kept.numel() * 4]
    file = io.BytesIO()
    torch.save(second, file)
    for map_location, index in ((None, 1), ("cuda", 0), ({"cuda:1": "cuda:0"}, 0)):
        file.seek(0)
        assert torch.load(file, map_location=map_location).get_device() == index
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"CUDA device 5 but torch.cuda.device_count\(\) is 2"):
        torch.load(file, map_location="cuda:5")
    assert pickle.loads(pickle.dumps(second)).get_device() == copy.deepcopy(second).get_device() == 1


def models_over_several_gpus() -> None:
    model, labels = OverTwoGpus(), torch.zeros(4, dtype=torch.long, device="cuda:1")
    optimiser = torch.optim.Adam(model.parameters())
    for _ in range(3):
        F.cross_entropy(model(torch.zeros(4, 8)), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    held = [torch.cuda.memory_allocated(each) for each in (0, 1)]
    assert held[1] == pytest.approx(3 * held[0])
    assert [each.grad.get_device() for each in model.parameters()] == [0, 1]


def averaged_batch_norms() -> None:
    average = torch.optim.swa_utils.AveragedModel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda())
    torch.optim.swa_utils.update_bn([torch.zeros(3, 4)], average, device="cuda")


def older_types() -> None:
    made = torch.cuda.FloatTensor(2, 3)
    assert made.is_cuda
    assert made.shape == (2, 3)
    assert isinstance(made, torch.cuda.FloatTensor)
    assert not isinstance(made, torch.cuda.LongTensor)
    assert not isinstance(torch.zeros(3), torch.cuda.FloatTensor)
    assert torch.zeros(3).type(torch.cuda.LongTensor).dtype == torch.int64
    assert torch.zeros(3).type("torch.cuda.HalfTensor").is_cuda
    assert torch.cuda.LongTensor([1, 2]).tolist() == [0, 0]


def events_and_streams_of_any_device() -> None:
    begin, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
    model = nn.Linear(4, 4).cuda()
    begin.record()
    model(torch.zeros(2, 4, device="cuda"))
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0
    assert torch.Stream("cuda").device == torch.cuda.current_stream().device


def what_memory_says() -> None:
    before = torch.cuda.memory_stats()["active_bytes.all.current"]
    held = torch.zeros(1 << 20, device="cuda")
    assert torch.cuda.memory_stats()["active_bytes.all.current"] - before == held.numel() * 4
    assert torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device="cuda").shape == (2, 2)
    assert torch.cuda.memory_snapshot() == []
    assert torch.version.cuda.startswith("12.")


def what_is_not_emulated() -> None:
    with pytest.raises(InputError, match="FullyShardedDataParallel: it is not emulated"):
        torch.distributed.fsdp.FullyShardedDataParallel(nn.Linear(4, 4).cuda())


PROGRAMS = (
    recurrent, attention, named_outputs, accuracy, masks, averages, devices, precision, two_models,
    whole_checkpoints, checkpoints_as_large_as_real_ones, split_batches, pickles, weights_across_devices,
    comparisons, losses_by_value, distributions, pinned_from_the_start, graphs_scripts_and_profiles,
    hooks_at_each_call, models_one_after_another, errors_of_devices, mixed_precision, averaged_batch_norms,
    older_types, backward_passes, several_gpus, models_over_several_gpus,
    events_and_streams_of_any_device, what_memory_says, what_is_not_emulated,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Sparse invariant")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_runs(program: Callable[[], None]) -> None:
    clock = VirtualClock()
    node = make_node(EmulationSettings(gpu="h100", model="resnet50", virtual=True, gpus=2), clock)
    with emulated(node):
        program()
