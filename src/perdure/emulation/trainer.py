"""A training program without a framework: steps on all emulated GPUs of its node, a log as frameworks write it.

``python -m perdure.emulation.trainer --gpu h100 --model resnet50 --batch 64 --steps 500 --faults faults.json``

What goes wrong lies with devices, not with programs: the file says for each node which faults begin when (seconds since
the epoch), so that another attempt on the node meets them again, and one elsewhere does not. What a driver would write
to the kernel log goes to the file that ``--kernel-log`` names.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import json

from perdure.emulation.clocks import RealClock
from perdure.emulation.faults import DeviceError, DeviceFault, kernel_line, read_fault
from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.known_profiles import profile_of
from perdure.emulation.profiles import GpuStep

REPORT_S = 1.0


def faults_here(path: Path | None, node: str, now: float, clock_s: float) -> tuple[DeviceFault, ...]:
    """The faults of a node's devices by the clock of a program: those that began before it are there from 0 on.

    The file maps nodes to pairs of a fault as a user writes it, with ``@0``, and when it begins, in seconds since the
    epoch.
    """
    if path is None:
        return ()
    planned: Mapping[str, list[tuple[str, float]]] = json.decode(
        path.read_bytes(), type=dict[str, list[tuple[str, float]]]
    )
    return tuple(
        replace(read_fault(spec), at_s=max(0.0, begins - now + clock_s)) for spec, begins in planned.get(node, [])
    )


def train(gpus: list[EmulatedGpu], profile: GpuStep, steps: int) -> None:
    """Run the steps; the slowest device sets the pace. Prints as it goes. Raises `DeviceError`."""
    told = -REPORT_S
    clock = gpus[0].clock
    for step in range(steps):
        end = max(gpu.run(profile.transfer_s + profile.step_s) for gpu in gpus)
        clock.advance_to(end)
        if clock.now - told >= REPORT_S:
            told = clock.now
            print(f"step {step}/{steps} loss {2.3 / (1 + 0.01 * step):.4f}", flush=True)  # noqa: T201 - its log
    print(f"finished: {steps} steps", flush=True)  # noqa: T201


def main() -> int:
    """Train as the command line says; a device's error ends it as a framework's would."""
    parser = argparse.ArgumentParser(prog="perdure.emulation.trainer")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--faults", type=Path)
    parser.add_argument("--kernel-log", type=Path)
    given = parser.parse_args()
    node = os.environ.get("PERDURE_NODE", socket.gethostname())
    clock = RealClock()
    faults = faults_here(given.faults, node, time.time(), clock.now)
    profile = profile_of(given.gpu, given.model, given.batch)

    def to_kernel_log(fault: DeviceFault) -> None:
        if given.kernel_log:
            with given.kernel_log.open("a", encoding="utf-8") as file:
                file.write(f"{node} kernel: {kernel_line(fault, indexes[0], os.getpid())}\n")

    indexes = [int(each) for each in os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",") if each]
    rng = np.random.default_rng(os.getpid())
    gpus = [
        EmulatedGpu(i, profile.gpu, profile.capacity_mib, clock, rng, 0.02, faults, on_break=to_kernel_log)
        for i in indexes
    ]
    print(f"{given.model} on {len(gpus)} {profile.gpu} of {node}, batch {given.batch}", flush=True)  # noqa: T201
    try:
        train(gpus, profile, given.steps)
    except DeviceError as err:
        print(f'Traceback (most recent call last):\n  File "{__file__}", line 1, in train', file=sys.stderr)  # noqa: T201
        print(f"torch.AcceleratorError: {err}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
