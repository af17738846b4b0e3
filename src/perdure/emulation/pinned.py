"""Page-locked memory of the host, taken for real: what a program pins is not there for the page cache."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from dataclasses import dataclass, field

import torch

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


@dataclass(slots=True)
class PinnedMemory:
    """Blocks of locked memory; as in a driver's allocator, one that is free again is used again and not given back."""

    free: dict[int, list[mmap.mmap]] = field(default_factory=dict)
    locked: int = 0  # bytes
    refused: int = 0  # bytes that the system did not let this process lock
    _pinned: dict[int, None] = field(default_factory=dict)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor in locked memory; where none may be locked, in memory that is not."""
        if self.is_pinned(tensor) or not tensor.numel():
            return tensor
        size = tensor.numel() * tensor.element_size()
        room = max(_PAGE, 1 << (size - 1).bit_length())
        block = self._block(room)
        found = torch.frombuffer(block, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape)
        found.copy_(tensor)
        key = found.untyped_storage().data_ptr()
        self._pinned[key] = None
        weakref.finalize(found.untyped_storage(), self._back, room, block, key)
        return found

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return not tensor.is_cuda and tensor.untyped_storage().data_ptr() in self._pinned

    def _block(self, room: int) -> mmap.mmap:
        if kept := self.free.get(room):
            return kept.pop()
        block = mmap.mmap(-1, room)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        if _LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(room)) == 0:
            self.locked += room
        else:
            self.refused += room
        return block

    def _back(self, room: int, block: mmap.mmap, key: int) -> None:
        self._pinned.pop(key, None)
        self.free.setdefault(room, []).append(block)
