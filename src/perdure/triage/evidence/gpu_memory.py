"""What an out-of-memory message of a GPU tells in numbers, and whether another process holds the card.

A program whose own use and request would fit on an empty card does not fail for its size, but for who else is there.
The wordings are PyTorch's since 1.0 (c10/cuda/CUDACachingAllocator.cpp), that of TensorFlow and JAX for a card on
which not even a context can be made (xla/stream_executor/cuda), and those of servers of language models, which look at
the card before they load anything (vLLM, v1/worker/utils.py and gpu_worker.py; SGLang, model_executor/model_runner.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.quantities import GIB, SIZE, size_in, to_bytes

CONTEXT_BYTES = GIB
"""A process's CUDA context and libraries take at most this much, where a message counts only what PyTorch holds."""

MIN_OTHERS_BYTES, MIN_OTHERS_SHARE, USABLE_SHARE = GIB, 0.1, 0.97
"""Others hold a card if they have this many bytes, and this much of it; this much of an empty card can be used."""

_WANTED = rf"Tried to allocate {SIZE}"
_TOTAL = rf"(?:total (?:capacity|capacty) of {SIZE}|{SIZE} total capacity|total memory reported: {SIZE})"
_FREE = rf"(?:of which {SIZE} is free|[;,] {SIZE} free)"
_OWN = rf"this process has {SIZE} memory in use"
_ALLOCATED = rf"(?:allocated memory {SIZE} is allocated by PyTorch|{SIZE} already allocated)"
_UNUSED = rf"and {SIZE} is reserved by PyTorch but unallocated"
_RESERVED = rf"(?:{SIZE} reserved in total by PyTorch|{SIZE} cached)"
_OTHER = rf"Process (\d{{1,10}}) has {SIZE} memory in use"
_NO_CONTEXT = r"(?:PrimaryCtxRetain|cuCtxCreate)\S*: CUDA_ERROR_OUT_OF_MEMORY"
_ALLOWED = rf"{SIZE} allowed"
_AT_START = (
    rf"(?i)free memory on device[^()]{{0,40}}\({SIZE}/{SIZE}\)"
    rf"|\b(?:avail(?:able)?|free)(?: gpu)?[ _]mem(?:ory)?\s*[=:]\s*{SIZE} ?(?:of|/|out of) ?{SIZE}"
    rf"|only {SIZE} (?:of|out of) {SIZE} (?:gpu memory )?(?:is|are) (?:free|available)"
)
"""What is free of a card, before the process has anything on it but its context."""

_DESIRED = rf"(?i)(?:desired|requested)[^()]{{0,60}}\((?:[\d.]+, ?)?{SIZE}\)"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The figures of a message, all in bytes."""

    total: int
    free: int
    own: int
    wanted: int
    others: int
    pids: tuple[str, ...] = ()  # of the others, as far as they are known

    @property
    def is_held_by_others(self) -> bool:
        """Whether it would fit on the card if it were alone there, and others have a good part of it."""
        fits = self.own + self.wanted <= USABLE_SHARE * self.total
        return fits and self.others >= max(MIN_OTHERS_BYTES, MIN_OTHERS_SHARE * self.total)


def gpu_memory(message: str) -> GpuMemory | None:
    """Read the figures of a message; None where they do not tell what the process itself has.

    >>> memory = gpu_memory("CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; "
    ...                     "1.50 GiB already allocated; 0 bytes free; 2.00 GiB reserved in total by PyTorch)")
    >>> memory.others // GIB, memory.is_held_by_others
    (5, True)
    """
    line = message.encode("utf-8", "replace")
    if (start := _at_start(line)) is not None:
        return start
    total = size_in(_TOTAL, line)
    if total is None or size_in(_ALLOWED, line) is not None:  # a limit of its own, below the card's
        return None
    if compiled(_NO_CONTEXT).search(line):
        return GpuMemory(total, 0, 0, 0, total)
    own, others = size_in(_OWN, line), [(m[1].decode(), to_bytes(m[2], m[3])) for m in capturing(_OTHER).finditer(line)]
    if own is None:
        held = _held_by_pytorch(line)
        if held is None:
            return None
        own = held + CONTEXT_BYTES
        itself = min((other for other in others if other[1] >= held), key=lambda other: other[1], default=("", 0))
        others = [other for other in others if other != itself]
        own = itself[1] or own
    free = size_in(_FREE, line) or 0
    rest = max(0, total - free - own)
    told = sum(size for _, size in others)
    return GpuMemory(total, free, own, size_in(_WANTED, line) or 0, told or rest, tuple(pid for pid, _ in others))


def _at_start(line: bytes) -> GpuMemory | None:
    """The figures of a server that has not begun to load; None where the line is not one of these."""
    found = capturing(_AT_START).search(line)
    if not found:
        return None
    groups = found.groups()
    first = next(at for at in range(0, len(groups), 4) if groups[at] is not None)
    free, total = (
        to_bytes(groups[first], groups[first + 1] or groups[first + 3]),
        to_bytes(*groups[first + 2 : first + 4]),
    )
    return GpuMemory(total, free, CONTEXT_BYTES, size_in(_DESIRED, line) or 0, max(0, total - free - CONTEXT_BYTES))


def _held_by_pytorch(line: bytes) -> int | None:
    """What PyTorch holds on the card, in use or not."""
    if (reserved := size_in(_RESERVED, line)) is not None:
        return max(reserved, size_in(_ALLOCATED, line) or 0)
    allocated = size_in(_ALLOCATED, line)
    return None if allocated is None else allocated + (size_in(_UNUSED, line) or 0)
