"""What processes that train together wait for: the links that they share, and one another."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.clocks import VirtualClock  # noqa: E402
from perdure.emulation.data_parallel import ProcessMeeting  # noqa: E402
from perdure.emulation.framework import emulated  # noqa: E402
from perdure.emulation.node import make_node  # noqa: E402
from perdure.emulation.settings import EmulationSettings  # noqa: E402
from perdure.throughput.collectives import GpuLayout, Transport, all_reduce_s, link_inside, network  # noqa: E402
from perdure.throughput.compute import GPUS  # noqa: E402
from perdure.throughput.layers import layers_of  # noqa: E402
from perdure.throughput.training_speed import TrainingSetting, step_with  # noqa: E402

SETTINGS = EmulationSettings(gpu="h100", model="resnet50", virtual=True, link_gbit=100.0, transport="rdma")
PROGRAM = """
import json, os, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
sent = torch.zeros(25 << 20, device="cuda")
first = dist.new_group([0])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2).cuda(), device_ids=[rank])
images = torch.zeros(8, 8, device="cuda")

def timed(act):
    dist.all_reduce(sent[:1])  # so that both begin at one instant
    torch.cuda.synchronize()
    begin = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - begin

def kept():
    with model.no_sync():
        model(images).sum().backward()

def kept_by_hand():
    model.require_backward_grad_sync = False
    model(images).sum().backward()
    model.require_backward_grad_sync = True

def in_a_group():
    if rank == 0:
        dist.all_reduce(sent, group=first)

def step():
    model(images).sum().backward()

def uneven():
    time.sleep(3.0 * rank)
    dist.all_reduce(sent[:1])

step()
found = {"all_reduce": timed(lambda: dist.all_reduce(sent)), "uneven": timed(uneven)}
found |= {act.__name__: min(timed(act) for _ in range(3)) for act in (kept, kept_by_hand, step, in_a_group)}
if rank == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def test_gpus_of_a_node_share_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    meeting = ProcessMeeting(make_node(SETTINGS, VirtualClock()))
    meeting.among(4)
    assert meeting.layout == GpuLayout(2, 2)
    size = np.array(1e8)
    wanted = all_reduce_s(size, meeting.layout, link_inside("pcie", "h100"), network(50.0, Transport.RDMA))
    assert float(meeting.send_s(size)) == pytest.approx(float(wanted))


@pytest.mark.parametrize("transport", list(Transport))
@pytest.mark.parametrize("rate_gbit", [25.0, 100.0, 400.0])
@pytest.mark.parametrize(("nodes", "each"), [(1, 4), (2, 1), (2, 8), (16, 4)])
def test_a_step_takes_as_long_as_speed_says(
    monkeypatch: pytest.MonkeyPatch, transport: Transport, rate_gbit: float, nodes: int, each: int
) -> None:
    """Over TCP a node gets no more than 30 Gbit/s, however many GPUs it has."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(each))
    settings = EmulationSettings("h100", "resnet50", 1, True, link_gbit=rate_gbit, transport=transport, inside="nvlink")
    node = make_node(settings, VirtualClock())
    meeting, profile = ProcessMeeting(node), node.profile(32)
    meeting.among(nodes * each)
    computing = profile.forward_s + profile.backward_s
    setting = TrainingSetting(
        layers_of("resnet50"), GPUS["h100"], 32, GpuLayout(nodes, each), rate_gbit, transport, "nvlink", computing
    )
    assert computing + meeting.exposed_s(torch.nn.Linear(8, 2), profile) == pytest.approx(step_with(setting).step_s)


def test_gradients_of_each_batch_are_hidden_behind_its_own_backward_pass(tmp_path: Path) -> None:
    node = make_node(EmulationSettings(gpu="h100", model="vgg16", virtual=True), VirtualClock())
    with node.clock.outside(), emulated(node):
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
        try:
            meeting, model = ProcessMeeting(node), torch.nn.Linear(8, 2)
            meeting.among(16)
            for batch in (1, 64, 1):
                begin = node.gpu.busy_s
                meeting.gradients(model, node.profile(batch))
                assert node.gpu.busy_s - begin == pytest.approx(meeting.exposed_s(model, node.profile(batch)))
            begin, each = node.gpu.busy_s, node.profile(1)
            meeting.gradients(model, each, 0.25)
            assert node.gpu.busy_s - begin == pytest.approx(0.25 * meeting.exposed_s(model, each))
            assert meeting.exposed_s(model, node.profile(1)) > 1.01 * meeting.exposed_s(model, node.profile(64)) > 0
        finally:
            torch.distributed.destroy_process_group()


def test_each_wrapped_model_sends_its_own_gradients() -> None:
    node = make_node(SETTINGS, VirtualClock())
    with node.clock.outside(), emulated(node):
        models = [torch.nn.Linear(8, outputs, bias=False).cuda() for outputs in (4, 2, 1)]
        wrapped = [torch.nn.parallel.DistributedDataParallel(each) for each in models[:2]]
        assert set(node.after_backward) == set(models[:2])
        sent = list[tuple[int, float]]()
        for index, model in enumerate(models[:2]):
            node.after_backward[model] = partial(lambda index, _, share: sent.append((index, share)), index)
        for each in (*wrapped, models[2]):
            each(torch.zeros(4, 8, device="cuda")).sum().backward()
        assert sent == [(0, 1.0), (1, 0.5)]


def test_processes_wait_for_the_last_and_for_the_link(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    options = ["--gpu", "h100", "--model", "vgg16", "--gpus", "2", "--time", "virtual"]
    launch = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    command = [sys.executable, "-m", "perdure", "emulate", "run", *options, *launch]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    layout = GpuLayout(1, 2)
    sends = float(
        all_reduce_s(np.array(100.0 * (1 << 20)), layout, link_inside("pcie", "h100"), network(50.0, Transport.TCP))
    )
    assert found["all_reduce"] >= sends * 0.999
    assert found["uneven"] >= 3.0
    assert found["in_a_group"] < 0.5 * sends  # of one process, which waits for no other
    # were the sum of all waited for, each meeting would double it
    assert 0 < max(found["kept"], found["kept_by_hand"]) < found["step"] < 60.0
