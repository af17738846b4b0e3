"""What an out-of-memory message of a GPU tells in numbers, and whether another process holds the card.

A program whose own use and request would fit on an empty card does not fail for its size, but for who else is there.
The wordings are PyTorch's since 1.0 (c10/cuda/CUDACachingAllocator.cpp) and that of TensorFlow and JAX for a card on
which not even a context can be made (xla/stream_executor/cuda).
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.triage.text.patterns import capturing, compiled

GIB = 1 << 30
_UNITS = {
    "": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 1 << 10, "m": 1 << 20, "g": GIB, "kib": 1 << 10, "mib": 1 << 20, "gib": GIB, "tib": 1 << 40,
}  # fmt: skip

CONTEXT_BYTES = GIB
"""A process's CUDA context and libraries take at most this much, where a message counts only what PyTorch holds."""

MIN_OTHERS_BYTES, MIN_OTHERS_SHARE, USABLE_SHARE = GIB, 0.1, 0.97
"""Others hold a card if they have this many bytes, and this much of it; this much of an empty card can be used."""

_SIZE = r"(\d{1,18}(?:\.\d{1,9})?) ?((?i:[KMGT]i?B|[KMG]|bytes?|B))?\b"
_WANTED = rf"Tried to allocate {_SIZE}"
_TOTAL = rf"(?:total (?:capacity|capacty) of {_SIZE}|{_SIZE} total capacity|total memory reported: {_SIZE})"
_FREE = rf"(?:of which {_SIZE} is free|[;,] {_SIZE} free)"
_OWN = rf"this process has {_SIZE} memory in use"
_ALLOCATED = rf"(?:allocated memory {_SIZE} is allocated by PyTorch|{_SIZE} already allocated)"
_UNUSED = rf"and {_SIZE} is reserved by PyTorch but unallocated"
_RESERVED = rf"(?:{_SIZE} reserved in total by PyTorch|{_SIZE} cached)"
_OTHER = rf"Process (\d{{1,10}}) has {_SIZE} memory in use"
_NO_CONTEXT = r"(?:PrimaryCtxRetain|cuCtxCreate)\S*: CUDA_ERROR_OUT_OF_MEMORY"
_ALLOWED = rf"{_SIZE} allowed"


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
    total = _size(_TOTAL, line)
    if total is None or _size(_ALLOWED, line) is not None:  # a limit of its own, below the card's
        return None
    if compiled(_NO_CONTEXT).search(line):
        return GpuMemory(total, 0, 0, 0, total)
    own, others = _size(_OWN, line), [(m[1].decode(), _bytes(m[2], m[3])) for m in capturing(_OTHER).finditer(line)]
    if own is None:
        held = _held_by_pytorch(line)
        if held is None:
            return None
        own = held + CONTEXT_BYTES
        itself = min((other for other in others if other[1] >= held), key=lambda other: other[1], default=("", 0))
        others = [other for other in others if other != itself]
        own = itself[1] or own
    free = _size(_FREE, line) or 0
    rest = max(0, total - free - own)
    told = sum(size for _, size in others)
    return GpuMemory(total, free, own, _size(_WANTED, line) or 0, told or rest, tuple(pid for pid, _ in others))


def _held_by_pytorch(line: bytes) -> int | None:
    """What PyTorch holds on the card, in use or not."""
    if (reserved := _size(_RESERVED, line)) is not None:
        return max(reserved, _size(_ALLOCATED, line) or 0)
    allocated = _size(_ALLOCATED, line)
    return None if allocated is None else allocated + (_size(_UNUSED, line) or 0)


def _size(pattern: str, line: bytes) -> int | None:
    """The first size that a pattern finds, in bytes."""
    found = capturing(pattern).search(line)
    if not found:
        return None
    told = [group for group in found.groups() if group is not None]
    return _bytes(told[0], told[1] if len(told) > 1 else b"")


def _bytes(number: bytes, unit: bytes | None) -> int:
    return int(float(number) * _UNITS[(unit or b"").decode().lower()])
