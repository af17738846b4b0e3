"""The GPUs of one process of an emulated program, and what the process does with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from perdure.emulation.clocks import ProgramClock
from perdure.emulation.faults import read_fault, to_kernel_log
from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.known_profiles import profile_of, read_profiles
from perdure.emulation.profiles import IMAGE_BYTES, GpuStep, ProfileOrigin, ProfileTable
from perdure.emulation.settings import EmulationSettings
from perdure.emulation.shared_gpu import SharedGpu

COPY_S = 1.5e-5
"""What a copy takes besides its bytes."""


@dataclass(slots=True)
class EmulatedNode:
    """The devices that a process sees, and the profile of its model on them."""

    settings: EmulationSettings
    clock: ProgramClock
    gpus: list[EmulatedGpu]
    table: ProfileTable | None
    current: int = 0
    among: tuple[int, ...] = ()  # GPUs among which the process splits the batch of the model that it calls
    process: int | None = None  # which uses the GPUs; one that it forks cannot
    spawned: int = 0  # processes that the program has started with spawn
    depth: int = 0  # above 0 while a model is gone through
    batch: int = 1  # of the last step, or of the last copy before the first
    origins: set[ProfileOrigin] = field(default_factory=set)
    after_backward: WeakKeyDictionary[Any, Callable[[GpuStep, float], None]] = field(default_factory=WeakKeyDictionary)
    """What data parallelism adds to a model's backward pass, for its share of the table's time."""
    _profiles: dict[int, GpuStep] = field(default_factory=dict)

    @property
    def gpu(self) -> EmulatedGpu:
        return self.gpus[self.current]

    def profile(self, batch: int) -> GpuStep:
        """A step of so many examples, looked up once."""
        if batch not in self._profiles:
            found = profile_of(self.settings.gpu, self.settings.model, max(1, batch), self.table)
            self._profiles[batch] = found
            self.origins.add(found.origin)
        return self._profiles[batch]

    def copied(self, size: int, gpu: EmulatedGpu) -> None:
        """A copy of `size` bytes to a GPU or from it: at the speed at which the table copies a batch."""
        profile = self.profile(max(1, self.batch))
        gpu.run(profile.transfer_s * size / (profile.batch * IMAGE_BYTES) if size > 4096 else COPY_S, link=True)


def make_node(settings: EmulationSettings, clock: ProgramClock, rank: int = 0) -> EmulatedNode:
    """The devices of a process. Raises `InputError` for a model, a GPU, a table or a fault that is not known."""
    table = read_profiles(Path(settings.profiles)) if settings.profiles else None
    first = profile_of(settings.gpu, settings.model, 1, table)
    faults = tuple(read_fault(each) for each in settings.faults)
    rng = np.random.default_rng([settings.seed, rank])
    gpus = [
        EmulatedGpu(index, first.gpu, first.capacity_mib, clock, rng, settings.jitter, faults)
        for index in range(settings.gpus)
    ]
    for gpu in gpus:
        if settings.kernel_log:
            log = partial(to_kernel_log, Path(settings.kernel_log), gpu=settings.number(gpu.index), pid=os.getpid())
            gpu.on_break = log
        if settings.share:
            path = Path(settings.share)
            gpu.shared = SharedGpu(str(path / socket_of(settings.number(gpu.index)) if path.is_dir() else path))
    return EmulatedNode(settings, clock, gpus, table)


def socket_of(number: int) -> str:
    """The name of the socket of a node's GPU, in the folder of all."""
    return f"gpu{number}.sock"
