"""``torch.cuda.FloatTensor`` and its like, as older programs make and tell apart tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "ShortTensor": torch.int16,
    "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip


class _TensorType(type):
    """The type of those types: a tensor is an instance if it is on a GPU and has the numbers' type."""

    dtype: torch.dtype

    def __instancecheck__(cls, found: Any) -> bool:
        return isinstance(found, torch.Tensor) and found.is_cuda and found.dtype == cls.dtype

    def __call__(cls, *given: Any) -> Any:
        """A tensor of these values, or of this shape."""
        if len(given) == 1 and not isinstance(given[0], int):
            return torch.as_tensor(given[0], dtype=cls.dtype).to("cuda")
        return torch.empty(given, dtype=cls.dtype, device="cuda")


def typed_tensors() -> Iterator[tuple[Any, str, Any]]:
    """Where a program finds what, and what it finds there."""
    for name, dtype in _TYPES.items():
        yield torch.cuda, name, _TensorType(name, (), {"dtype": dtype})


def type_of(asked: Any) -> torch.dtype | None:
    """The numbers' type that is meant by a type of tensors on GPUs, or its name; None for all else."""
    if isinstance(asked, _TensorType):
        return asked.dtype
    return _TYPES.get(asked.removeprefix("torch.cuda.")) if isinstance(asked, str) and "cuda." in asked else None
