"""Checkpoints of tensors on emulated GPUs: as many bytes as of real ones, all of them zero."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch

from perdure.emulation.node import EmulatedNode

_PRIORITIES = count(5, -1)
"""PyTorch's own way to tell where a storage lay comes at 10; of two emulations in a process the later is asked."""


def save_emulated(node: EmulatedNode) -> tuple[Any, str, Any]:
    """Register where storages of emulated GPUs lie; returns what gives their bytes, to be put into its place."""
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
    return torch.UntypedStorage, "cpu", cpu
