"""Checkpoints of tensors on emulated GPUs: as many bytes as of real ones, all of them zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch

from perdure.emulation.node import EmulatedNode
from perdure.emulation.placement import index_of_storage, place_storage

_PRIORITIES = count(5, -1)
"""PyTorch's own way to tell where a storage lay comes at 10; of two emulations in a process the later is asked."""


def saving_changes(node: EmulatedNode) -> Iterator[tuple[Any, str, Any]]:
    """Register where storages of emulated GPUs lie; where PyTorch finds what gives their bytes, and what that is."""
    to_host = torch.UntypedStorage.cpu

    def tag(storage: Any) -> str | None:
        return f"cuda:{index_of_storage(storage)}" if storage.device.type == "meta" else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        index = torch.device(location).index
        if (index := node.current if index is None else index) >= len(node.gpus):
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is "
                f"{len(node.gpus)}. Please use torch.load with map_location to map your storages to an existing device."
            )
        node.copied(storage.nbytes(), node.gpus[index])
        found = torch.UntypedStorage(storage.nbytes(), device="meta")
        place_storage(found, index)
        return found

    def cpu(storage: Any) -> Any:
        if storage.device.type != "meta":
            return to_host(storage)
        gpu = node.gpus[index_of_storage(storage)]
        node.copied(storage.nbytes(), gpu)
        gpu.synchronise()
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
        return unpickled, (bytes(untyped.nbytes()), getattr(storage, "dtype", None), index_of_storage(untyped))

    return reduce


def unpickled(content: bytes, dtype: torch.dtype | None, index: int) -> Any:
    """A storage of an emulated GPU, as large as `content`."""
    storage = torch.UntypedStorage(len(content), device="meta")
    place_storage(storage, index)
    return storage if dtype is None else torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
