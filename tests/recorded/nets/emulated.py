"""Emulated GPUs: profiles of steps, faults as a plan, one device call by call, and fleets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from perdure.emulation.clocks import ProgramClock
from perdure.emulation.faults import (
    XIDS,
    DeviceError,
    DeviceFault,
    FaultKind,
    error_of,
    kernel_line,
    read_fault,
    read_faults,
    slowdown,
)
from perdure.emulation.fleet import GangPlan, run_fleet
from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.known_profiles import models_on, profile_of, shipped
from perdure.emulation.profiles import MEMORY_MIB, ProfileTable, at_batch, capacity_mib, found_gpu, known_name
from perdure.errors import PerdureError
from perdure.throughput.compute import GPUS
from perdure.throughput.layers import KNOWN_MODELS
from tests.recorded.whole_runs import Case

SPECS = (
    "xid79@30s",
    "ecc@step3#1",
    "slow2.5@10s+60s",
    "link4@0s#1",
    "hang600@20s",
    "off-bus@step1",
    "slow@5#0",
    "xid31@0",
    "hang@1+2",
    "link1.5@2s+3s#2",
    "xid13@step2",
    "slow0.5@1",
    "xid1@2",
    "ecc@",
    "slow3@step4#1",
    "xid@7s",
    " slow2@1s ",
)
NAMES = (
    "NVIDIA_A100-SXM4-40GB",
    "NVIDIA A100 80GB PCIe",
    "Tesla_V100-PCIE-32GB",
    "Quadro_RTX_6000",
    "h100",
    "Tesla T4",
    "H200",
    "A10",
    "a100-80g",
    "NVIDIA L40S",
    "GTX 970",
    "",
)


@dataclass
class StillClock:
    """A clock that goes on only where the program waits."""

    now: float = 0.0

    def advance_to(self, instant: float) -> None:
        self.now = max(self.now, instant)


def cases() -> Iterator[Case]:
    for gpu in GPUS:
        for model in KNOWN_MODELS[::2]:
            yield f"profile {gpu} {model}", partial(_profiles, gpu, model)
    for number, model in enumerate(shipped().models("h100")[::2]):
        yield f"shipped {model} {number}", partial(_profiles, "h100", model)
    for name in NAMES:
        yield f"name {name}", partial(_name, name)
    for spec in SPECS:
        yield f"fault {spec}", partial(_fault, spec)
    for seed in range(12):
        yield f"table {seed}", partial(_table, seed)
        yield f"device {seed}", partial(_device, seed)
        yield f"fleet {seed}", partial(_fleet, seed)
        yield f"plan {seed}", partial(_plan, seed)
    yield "models", lambda: [(gpu, models_on(gpu)) for gpu in GPUS]


def _or_refusal(answer: Callable[[], object]) -> object:
    try:
        return answer()
    except PerdureError as err:
        return str(err)


def _profiles(gpu: str, model: str) -> object:
    found = [profile_of(gpu, model, batch) for batch in (1, 3, 32, 50, 256, 5000)]
    return [(each, each.step_s, each.fits) for each in found]


def _name(name: str) -> object:
    asks = (
        partial(capacity_mib, name),
        partial(known_name, name),
        partial(found_gpu, name, NAMES[:6]),
        partial(found_gpu, name, sorted(MEMORY_MIB)),
        partial(profile_of, name, "resnet50", 8),
    )
    return [_or_refusal(ask) for ask in asks]


def _fault(spec: str) -> object:
    """When it is there, and what is said of it."""
    fault = read_fault(spec)
    there = [
        (now, step, gpu)
        for now in (0.0, 1.0, 4.9, 5.0, 10.0, 30.0, 69.9, 70.0)
        for step in (0, 1, 2, 3, 4)
        for gpu in (0, 1, 2)
        if fault.active(now, step, gpu)
    ]
    said = str(error_of(fault)), kernel_line(fault, 2, 77)
    return fault, there, fault.breaks, fault.xid, fault.slows(link=False), fault.slows(link=True), said


def _plan(seed: int) -> object:
    rng = np.random.default_rng([seed, 22])
    specs = [SPECS[place] for place in rng.integers(0, 11, 4)]
    faults = read_faults(specs, int(rng.integers(1, 5)))
    spots = [
        (now, step, gpu, link) for now in (0.0, 11.0) for step in (0, 3) for gpu in (0, 1) for link in (False, True)
    ]
    return faults, [slowdown(faults, *spot) for spot in spots]


def _table(seed: int) -> object:
    """A user's table, some rows of which have holes or are there twice, at batches between its own and beyond."""
    rng = np.random.default_rng([seed, 23])
    n = 14
    gpu, model = rng.choice(NAMES[:3], n).tolist(), rng.choice(["net", "resnet50"], n).tolist()
    batch = rng.permutation(60)[:n].tolist() if seed % 4 else rng.integers(1, 9, n).tolist()
    values = rng.uniform(-0.02, 1, (n, 6))
    values[rng.random((n, 6)) < 0.02] = np.nan
    values[:, 4:] *= 1000.0
    table = ProfileTable.of("mine.csv", gpu, model, batch, values)
    asks = [
        partial(profile_of, gpu, model, batch, table)
        for gpu in ("a100", "v100", NAMES[0], "t4")
        for model in ("net", "resnet50", "bert")
        for batch in (1, 7, 30, 90)
    ]
    line = at_batch(np.array([4, 8, 32]), rng.uniform(0, 1, (3, 6)), int(rng.integers(1, 50)))
    return (
        table,
        table.holes,
        [(each, table.models(each)) for each in table.gpus],
        [_or_refusal(ask) for ask in asks],
        line,
    )


def _device(seed: int) -> object:
    """Calls in a row on a device that some faults change; what the program has seen after each."""
    rng = np.random.default_rng([seed, 24])
    specs = [SPECS[place] for place in rng.integers(0, 11, 2)]
    broke, clock = list[DeviceFault](), StillClock()
    device: ProgramClock = clock  # type: ignore[assignment]
    gpu = EmulatedGpu(
        int(rng.integers(0, 2)),
        "h100",
        40_000.0,
        device,
        rng,
        (0.0, 0.1)[seed % 2],
        tuple(map(read_fault, specs)),
        on_break=broke.append,
    )
    told = [_called(gpu, clock, int(rng.integers(0, 8)), float(rng.uniform(0.1, 6))) for _ in range(25)]
    return specs, told, broke, gpu.is_broken


def _called(gpu: EmulatedGpu, clock: StillClock, kind: int, seconds: float) -> object:
    said: object = None
    try:
        match kind:
            case 0:
                said = gpu.run(seconds, link=True)
            case 1:
                said = gpu.begin_step(trains=seconds > 2), gpu.run(seconds)
                gpu.end_step()
            case 2:
                gpu.synchronise()
            case 3:
                mark = gpu.mark()
                before = mark.is_reached, mark.instant
                mark.reach()
                said = before, mark.is_reached
            case 4:
                gpu.keep(seconds * 3000 - 6000)
                gpu.fraction = min(1.0, seconds / 4)
            case 5:
                said = gpu.hold(profile_of("h100", "resnet50", int(seconds * 60)), seconds * 10)
            case 6:
                said = gpu.run(seconds, asked_at=clock.now - 0.5)
            case _:
                clock.advance_to(clock.now + seconds)
    except DeviceError as err:
        said = str(err)[:40]
    state = clock.now, gpu.busy_until, gpu.busy_s, gpu.done_s, gpu.step, gpu.steps, gpu.begun, gpu.is_idle
    return kind, said, state, (gpu.held_mib, gpu.peak_mib, gpu.used_mib, gpu.allowed_mib)


def _fleet(seed: int) -> object:
    rng = np.random.default_rng([seed, 25])
    plan = GangPlan(
        int(rng.integers(1, 5)), 0.4, 0.1, float(rng.choice([0.0, 0.2])), float(rng.choice([30.0, 600.0])), 25.0
    )
    kinds = rng.choice(list(FaultKind), 5)
    faults = [
        DeviceFault(
            FaultKind(kind),
            float(XIDS[0] if kind == FaultKind.XID else rng.uniform(1, 4)),
            float(rng.uniform(0, 900)),
            None,
            None if rng.random() < 0.4 else float(rng.uniform(10, 300)),
            None if rng.random() < 0.3 else int(rng.integers(0, 8)),
        )
        for kind in kinds
    ]
    found = run_fleet(3, plan, faults, 1000.0, float(rng.choice([np.inf, 500.0])), rng)
    return found, found.goodput
