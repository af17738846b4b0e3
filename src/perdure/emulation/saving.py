"""Checkpoints of tensors on emulated GPUs: as many bytes as of real ones, all of them zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch

from perdure.emulation.node import EmulatedNode

_PRIORITIES = count(5, -1)
"""PyTorch's own way to tell where a storage lay comes at 10; of two emulations in a process the later is asked."""


def saving_changes(node: EmulatedNode) -> Iterator[tuple[Any, str, Any]]:
    """Register where storages of emulated GPUs lie; where PyTorch finds what gives their bytes, and what that is."""
    to_host = torch.UntypedStorage.cpu

    def tag(storage: Any) -> str | None:
        return f"cuda:{node.current}" if storage.device.type == "meta" else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        node.copied(storage.nbytes(), max(1, node.batch))
        return torch.UntypedStorage(storage.nbytes(), device="meta")

    def cpu(storage: Any) -> Any:
        if storage.device.type != "meta":
            return to_host(storage)
        node.copied(storage.nbytes(), max(1, node.batch))
        node.gpu.synchronise()
        return torch.UntypedStorage(storage.nbytes()).fill_(0)

    torch.serialization.register_package(next(_PRIORITIES), tag, restore)
    yield torch.UntypedStorage, "cpu", cpu
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        yield kind, "__reduce__", _pickled(kind.__reduce__)


def _pickled(pickled: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Pickles that are not checkpoints, as what processes send one another."""

    def reduce(storage: Any) -> Any:
        untyped = getattr(storage, "_untyped_storage", storage)  # by its own name it warns
        if untyped.device.type != "meta":
            return pickled(storage)
        return unpickled, (bytes(untyped.nbytes()), getattr(storage, "dtype", None))

    return reduce


def unpickled(content: bytes, dtype: torch.dtype | None) -> Any:
    """A storage of an emulated GPU, as large as `content`."""
    storage = torch.UntypedStorage(len(content), device="meta")
    return storage if dtype is None else torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
