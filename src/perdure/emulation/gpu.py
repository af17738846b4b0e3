"""One emulated GPU: a queue of work that ends at an instant, memory, and what goes wrong with it when.

The program hands it work and goes on, as with a real one; only where it asks for a result does it wait for the end of
the queue. What goes wrong is in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator

from perdure.emulation.clocks import ProgramClock
from perdure.emulation.faults import DeviceFault, FaultKind, error_of, slowdown
from perdure.emulation.profiles import MIB, GpuStep

AHEAD = 2
"""Steps that a program may be ahead of the GPU: as many fit into a driver's queue."""

GIB = 1 << 30


class DeviceFull(Exception):
    """Other programs on the device leave too little of its memory."""


@dataclass(slots=True)
class EmulatedGpu:
    """A device of a program. Times are in seconds of the clock, memory in MiB."""

    index: int
    name: str
    capacity_mib: float
    clock: ProgramClock
    rng: Generator
    jitter: float = 0.0  # coefficient of variation of a step
    faults: tuple[DeviceFault, ...] = ()
    busy_until: float = 0.0
    busy_s: float = 0.0
    steps: int = 0  # backward passes asked for
    begun: int = 0  # forward passes that a backward pass may follow
    held_mib: float = 0.0
    peak_mib: float = 0.0
    extra_mib: float = 0.0  # of tensors that the program made, beside its model's
    fraction: float = 1.0  # of the memory, that the program allows itself
    shared: Callable[[float, float, float, bool], str] | None = None
    """A manager's: seconds, memory held and at most, and whether links send; a refusal comes out."""
    on_break: Callable[[DeviceFault], None] | None = None
    _broken: bool = False
    _hung: list[DeviceFault] = field(default_factory=list)  # one call each
    _ends: list[float] = field(default_factory=list)

    def run(self, seconds: float, link: bool = False, asked_at: float | None = None) -> float:
        """Put work of `seconds` at the end of the queue; returns when it will be done. Raises what a fault raises.

        `asked_at` is when the program asked for it, where that was a little ago: what the emulation itself took since.
        """
        hung_s = self.check()
        now = self.clock.now if asked_at is None else asked_at + hung_s
        factor = slowdown(self.faults, max(now, self.busy_until), self.step, self.index, link)
        if self.jitter:
            factor *= float(self.rng.gamma(self.jitter**-2, self.jitter**2))  # mean 1
        if self.shared is not None:
            if said := self.shared(seconds * factor, self.held_mib, self.peak_mib, link):
                raise DeviceFull(said)
            self.busy_until = self.clock.now
        else:
            self.busy_until = max(self.busy_until, now) + seconds * factor
        self.busy_s += seconds * factor
        return self.busy_until

    def check(self) -> float:
        """Raise the error of a fault that is there; returns the seconds that the call has hung."""
        hung_s = 0.0
        for fault in self.faults:
            if fault.active(self.clock.now, self.step, self.index):
                if fault.kind is FaultKind.HANG:
                    if fault not in self._hung:
                        self._hung.append(fault)
                        self.clock.advance_to(self.clock.now + fault.value)
                        hung_s += fault.value
                elif fault.breaks:
                    if self.on_break is not None and not self._broken:
                        self.on_break(fault)
                    self._broken = True
                    raise error_of(fault)
        return hung_s

    @property
    def step(self) -> int:
        """The step that is going on, counted from 0."""
        return max(0, self.begun - 1)

    def begin_step(self, trains: bool) -> float:
        """Wait until the program is no further ahead than a queue is long; returns the instant that it waited for."""
        self.begun += trains
        if len(self._ends) < AHEAD:
            return 0.0
        end = self._ends.pop(0)
        self.clock.advance_to(end)
        return end

    def end_step(self) -> None:
        self._ends.append(self.busy_until)
        self.steps += 1

    def synchronise(self) -> None:
        """Wait for the end of the queue."""
        self.clock.advance_to(self.busy_until)
        self.check()

    @property
    def allowed_mib(self) -> float:
        return self.capacity_mib * self.fraction

    @property
    def used_mib(self) -> float:
        """What is taken between steps."""
        return self.held_mib + self.extra_mib

    def keep(self, mib: float) -> None:
        """Tensors of the program take as much more, or less."""
        self.extra_mib = max(0.0, self.extra_mib + mib)
        self.peak_mib = max(self.peak_mib, self.used_mib)

    def hold(self, profile: GpuStep, inputs_mib: float = 0.0) -> str | None:
        """Take what a step needs; what the framework says where that is more than there is, else None.

        The profile has the step's inputs, so that `inputs_mib` of the program's tensors do not count again.
        """
        extra = max(0.0, self.extra_mib - inputs_mib)
        if profile.peak_mib + extra > self.allowed_mib:
            wanted = profile.peak_mib - profile.persistent_mib
            return self.out_of_memory(wanted, min(profile.persistent_mib + extra, self.allowed_mib))
        self.held_mib = max(self.held_mib, profile.persistent_mib)
        self.peak_mib = max(self.peak_mib, profile.peak_mib + extra)
        return None

    def out_of_memory(self, wanted_mib: float, held_mib: float) -> str:
        """The words of PyTorch."""
        free = max(0.0, self.allowed_mib - held_mib)
        return (
            f"CUDA out of memory. Tried to allocate {_size(max(wanted_mib, free + 2))}. GPU {self.index} has a total "
            f"capacity of {_size(self.capacity_mib)} of which {_size(free)} is free. Process 1 has {_size(held_mib)} "
            f"memory in use. Of the allocated memory {_size(held_mib * 0.97)} is allocated by PyTorch, and "
            f"{_size(held_mib * 0.03)} is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
            "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


def _size(mib: float) -> str:
    size = mib * MIB
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{mib:.2f} MiB"
