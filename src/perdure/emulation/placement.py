"""On which emulated GPU a tensor is: noted at its storage, as PyTorch's meta device has no numbers.

Views share the storage, and with it the note. A tensor without one is on GPU 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_NOTE = "perdure_gpu"
ANYWHERE = frozenset(
    {Tensor.to, Tensor.copy_, Tensor.module_load, Tensor.type_as, Tensor.grad.__set__, Tensor.data.__set__}
)
"""What takes tensors of several GPUs; operations on lists of tensors (``_foreach``, ``_fused``) do so too."""


def index_of(tensor: Tensor) -> int:
    """The number of the GPU that a tensor is on."""
    return index_of_storage(tensor.untyped_storage()) if tensor.layout is torch.strided else 0


def index_of_storage(storage: Any) -> int:
    return int(getattr(getattr(storage, "_untyped_storage", storage), _NOTE, 0))


def place(tensor: Tensor, index: int) -> Tensor:
    """Note where a tensor is."""
    if tensor.layout is torch.strided:
        place_storage(tensor.untyped_storage(), index)
    return tensor


def place_storage(storage: Any, index: int) -> None:
    setattr(storage, _NOTE, index)


def place_results(found: list[Tensor], given: list[Tensor], current: int) -> None:
    """Results of an operation are where its first tensor is, and without one on the current GPU."""
    index = index_of(given[0]) if given else current
    for each in found:
        if each.layout is torch.strided and not hasattr(storage := each.untyped_storage(), _NOTE):
            place_storage(storage, index)


def check_same(func: Any, given: list[Tensor]) -> None:
    """Raises PyTorch's error for an operation on tensors of several GPUs.

    Single numbers pass: PyTorch's own functions group gradients by what it takes for their device.
    """
    found = sorted({index_of(each) for each in given if each.dim()})
    if len(found) > 1 and func not in ANYWHERE and not getattr(func, "__name__", "").startswith(("_f", "_amp")):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:{found[0]} and cuda:{found[1]}!"
        )
