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
from perdure.emulation.shared_gpu import SharedGpu

AHEAD = 2
"""Steps that a program may be ahead of the GPU: as many fit into a driver's queue."""

GIB = 1 << 30


class DeviceFull(Exception):
    """Other programs on the device leave too little of its memory."""


@dataclass(frozen=True, slots=True)
class QueueMark:
    """An instant of a device's queue, where an event is recorded."""

    gpu: EmulatedGpu
    at: float  # of copies, and of all work of a device of one's own
    number: int  # of the last piece of work of a shared one

    def reach(self) -> None:
        """Wait for it."""
        if self.gpu.shared is not None:
            self.gpu.shared.wait(self.number)
        self.gpu.clock.advance_to(self.at)

    @property
    def is_reached(self) -> bool:
        return self.at <= self.gpu.clock.now and (self.gpu.shared is None or self.gpu.shared.is_done(self.number))

    @property
    def instant(self) -> float:
        """When it was or will be reached, in seconds of a clock that all marks of the device go by."""
        return self.at if self.gpu.shared is None else self.gpu.shared.end_of(self.number)


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
    shared: SharedGpu | None = None  # its manager's queue, where programs share the device
    on_break: Callable[[DeviceFault], None] | None = None
    is_broken: bool = False
    _hung: list[DeviceFault] = field(default_factory=list)  # one call each
    _ends: list[float] = field(default_factory=list)
    _last: int = 0  # the piece of work that a shared queue was given last
    _claimed: tuple[float, float] = (0.0, 0.0)  # memory

    def run(self, seconds: float, link: bool = False, asked_at: float | None = None) -> float:
        """Put work of `seconds` at the end of the queue; returns when it will be done. Raises what a fault raises.

        `asked_at` is when the program asked for it, where that was a little ago: what the emulation itself took since.
        """
        hung_s = self.check()
        now = self.clock.now if asked_at is None else asked_at + hung_s
        factor = slowdown(self.faults, max(now, self.busy_until), self.step, self.index, link)
        if self.jitter:
            factor *= float(self.rng.gamma(self.jitter**-2, self.jitter**2))  # mean 1
        if self.shared is not None and not link:
            self._put(self.shared, seconds * factor)
        else:
            taken = self.shared.copy_s(seconds * factor) if self.shared is not None else seconds * factor
            self.busy_until = max(self.busy_until, now) + taken
        self.busy_s += seconds * factor
        return self.busy_until

    def _put(self, queue: SharedGpu, seconds: float) -> None:
        """Work for the queue of a device that programs share."""
        if (self.held_mib, self.peak_mib) != self._claimed:
            if said := queue.claim(self.held_mib, self.peak_mib):
                raise DeviceFull(said)
            self._claimed = self.held_mib, self.peak_mib
        if seconds:
            self._last = queue.put(seconds)

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
                    if self.on_break is not None and not self.is_broken:
                        self.on_break(fault)
                    self.is_broken = True
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
        if self.shared is not None:
            self.shared.wait(int(end))
            return 0.0
        self.clock.advance_to(end)
        return end

    def end_step(self) -> None:
        self._ends.append(self.busy_until if self.shared is None else self._last)
        self.steps += 1

    @property
    def done_s(self) -> float:
        """What it has done: a program that ends leaves the rest of its queue undone."""
        return max(0.0, self.busy_s - max(0.0, self.busy_until - self.clock.now))

    def synchronise(self) -> None:
        """Wait for the end of the queue."""
        if self.shared is not None:
            self.shared.wait(self._last)
        self.clock.advance_to(self.busy_until)
        self.check()

    @property
    def is_idle(self) -> bool:
        """Whether all work is done."""
        return self.busy_until <= self.clock.now and (self.shared is None or self.shared.is_done(self._last))

    def mark(self) -> QueueMark:
        """The end of the queue as it is now."""
        return QueueMark(self, max(self.busy_until, self.clock.now), self._last)

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
