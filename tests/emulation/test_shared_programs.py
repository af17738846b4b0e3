"""PyTorch programs that share a GPU under each order: who is granted it when, and what each keeps of its speed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.emulation.device_manager import SharedDevice, serve
from perdure.emulation.sharing import ORDERS, SharingProgram
from perdure.emulation.studies.sharing_iterations import speeds

pytest.importorskip("torch")

TRAIN = """
import os, sys, time, torch
name, off_gpu_s = sys.argv[1], float(sys.argv[2])
model = torch.nn.Linear(8, 2).cuda()
images = torch.zeros(32, 8).cuda()
model(images).sum().backward()  # the first step of a process takes the CPU longer
torch.cuda.synchronize()
open("ready." + name, "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
while not os.path.exists("end"):
    model(images).sum().backward()
    if off_gpu_s:
        torch.cuda.synchronize()
        time.sleep(off_gpu_s)
"""
TABLE = """gpu,model,batch_size,forward_s,backward_s,transfer_s,peak_mib,persistent_mib,optimiser_s
k80,long,32,0.1,0.2,0.001,1000,500,0
k80,short,32,0.02,0.04,0.001,1000,500,0
"""
STEP_S = {"long": 0.3, "short": 0.06}
GRANTS = 40
Grant = tuple[list[SharingProgram], SharingProgram]


def shared(order: str, programs: Sequence[tuple[str, float]], folder: Path) -> list[Grant]:
    """Train programs of a model and its seconds off the GPU: who waited at each grant of their GPU, and who had it.

    They go on until some waited together `GRANTS` times.
    """
    (folder / "table.csv").write_text(TABLE)
    (folder / "train.py").write_text(TRAIN)
    grants: list[Grant] = []

    def recording(waiting: Sequence[SharingProgram]) -> SharingProgram:
        chosen = ORDERS[order](waiting)
        kept = [SharingProgram(each.name, 0, 0, each.served_s, each.off_gpu_s, each.asked_at, each.wanted_s)
                for each in waiting]  # fmt: skip
        grants.append((kept, next(each for each in kept if each.name == chosen.name)))
        if (folder / "go").exists() and sum(len(waiting) > 1 for waiting, _ in grants) == GRANTS:
            (folder / "end").touch()
        return chosen

    stop = threading.Event()
    device = SharedDevice(folder / "gpu.sock", 16000, recording)
    manager = threading.Thread(target=serve, args=(device, stop.is_set))
    manager.start()
    run = [sys.executable, "-m", "perdure", "emulate", "run", "--gpu", "k80", "--profiles", "table.csv", "--share"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for i, (model, off_gpu_s) in enumerate(programs):  # one after the other, so that their numbers are known
            words = ("gpu.sock", "--model", model, "train.py", str(i), str(off_gpu_s))
            started.append(subprocess.Popen([*run, *words], cwd=folder))
            while not (folder / f"ready.{i}").exists():
                assert started[-1].poll() is None
                time.sleep(0.02)
        (folder / "go").touch()
        assert [each.wait(240) for each in started] == [0] * len(started)
    finally:
        for each in started:
            each.kill()
        stop.set()
        manager.join()
    return grants


def steps_of(grants: Sequence[Grant], name: str) -> float:
    """Steps of a program while others waited for the GPU too; each has two pieces."""
    return sum(chosen.name == name for waiting, chosen in grants if len(waiting) > 1) / 2


def test_programs_step_in_turn_by_fifo_and_have_equal_time_by_salus(tmp_path: Path) -> None:
    ratios = {}
    for order in ("fifo", "salus"):
        (folder := tmp_path / order).mkdir()
        grants = shared(order, [("long", 0.0), ("short", 0.0)], folder)
        had = {"program 0": 0.0, "program 1": 0.0}
        for waiting, chosen in grants:
            assert {each.name: each.served_s for each in waiting} == pytest.approx(
                {each.name: had[each.name] for each in waiting}
            )
            if order == "fifo":
                assert chosen.asked_at == min(each.asked_at for each in waiting)
            else:
                assert had[chosen.name] == min(had[each.name] for each in waiting)
            had[chosen.name] += chosen.wanted_s or 0.0
        ratios[order] = steps_of(grants, "program 1") / steps_of(grants, "program 0")
    closed = {order: speeds(ORDERS[order], [(STEP_S["long"], 0), (STEP_S["short"], 0)]) for order in ratios}
    assert closed["fifo"][1] == pytest.approx(closed["fifo"][0], rel=0.01)
    assert closed["salus"][1] == pytest.approx(5 * closed["salus"][0], rel=0.01)
    assert ratios["fifo"] == pytest.approx(1, rel=0.5)
    assert 2 < ratios["salus"] < 8


def test_muri_lets_a_program_go_first_that_has_been_off_the_gpu(tmp_path: Path) -> None:
    """It is granted the GPU as soon as it is free, so that it can go on off it while others compute."""
    passed_over = {}
    for order in ("fifo", "muri"):
        (folder := tmp_path / order).mkdir()
        grants = shared(order, [("short", 0.0), ("short", 0.0), ("short", 0.1)], folder)
        waited = [
            chosen for waiting, chosen in grants if any(each.name == "program 2" and each.off_gpu_s for each in waiting)
        ]
        assert any(each.name == "program 2" for each in waited)
        passed_over[order] = sum(each.name != "program 2" for each in waited)
        if order == "muri":
            for waiting, chosen in grants:
                assert chosen.off_gpu_s == max(each.off_gpu_s for each in waiting)
    assert passed_over["muri"] < passed_over["fifo"]
