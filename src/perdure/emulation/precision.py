"""``torch.autocast`` on emulated GPUs: which operations take and give tensors of lower precision.

PyTorch casts by the device of tensors, and those here are on none that it casts on. The lists are the ones of its
documentation ("Automatic Mixed Precision package, Autocast Op Reference").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LOWER = frozenset(
    {
        functional.linear, functional.bilinear, functional.multi_head_attention_forward, functional.prelu,
        functional.scaled_dot_product_attention, torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d,
        torch.conv_transpose2d, torch.conv_transpose3d, torch.matmul, Tensor.matmul, Tensor.__matmul__,
        Tensor.__rmatmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm, torch.mv, Tensor.mv, torch.addmm, Tensor.addmm,
        torch.addbmm, torch.baddbmm, Tensor.baddbmm, torch.einsum, torch.chain_matmul, torch.linalg.multi_dot,
        torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm_cell, torch.gru_cell,
    }
)  # fmt: skip
"""Operations that are done in the block's type."""

HIGHER = frozenset(
    {
        functional.cross_entropy, functional.nll_loss, functional.log_softmax, functional.softmax,
        functional.layer_norm, functional.group_norm, functional.binary_cross_entropy_with_logits,
        functional.mse_loss, functional.l1_loss,
        functional.smooth_l1_loss, functional.kl_div, functional.cosine_similarity, functional.softplus,
        functional.cosine_embedding_loss, torch.softmax, Tensor.softmax, torch.log_softmax, Tensor.log_softmax,
        torch.exp, Tensor.exp, torch.log, Tensor.log, torch.pow, Tensor.pow, Tensor.__pow__, torch.sum, Tensor.sum,
        torch.prod, Tensor.prod, torch.cumsum, Tensor.cumsum, torch.norm, Tensor.norm, torch.rsqrt, Tensor.rsqrt,
    }
)  # fmt: skip
"""Operations that are done in ``float32``."""


def cast(func: Callable[..., Any], value: Any) -> Any:
    """The arguments of an operation as ``autocast`` hands them on, where it is on for GPUs."""
    if func in LOWER:
        return _as(value, torch.get_autocast_dtype("cuda"))
    return _as(value, torch.float32) if func in HIGHER else value


def lowered(value: Any) -> Any:
    """Arguments in the block's type: of an operation that refused a mixture, as GPUs do not."""
    return _as(value, torch.get_autocast_dtype("cuda"))


def is_on() -> bool:
    """Whether the program is in a block of ``torch.autocast`` for GPUs."""
    return bool(torch.is_autocast_enabled("cuda"))


def _as(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        change = value.is_floating_point() and value.dtype not in (dtype, torch.float64)
        return value.to(dtype) if change else value
    if isinstance(value, dict):
        return {name: _as(each, dtype) for name, each in value.items()}
    return type(value)(_as(each, dtype) for each in value) if type(value) in (list, tuple) else value
