"""What the failing programs share: a small model trained for real under DistributedDataParallel, on gloo."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ.get("RANK", "0"))
FEATURES = 32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layers(batch)


def batches(steps: int):
    for _ in range(steps):
        batch = torch.randn(16, FEATURES)
        yield batch, batch.sum(1, keepdim=True)


def train(
    at_step: Callable[[int], None] = lambda step: None, data=None, steps=12, lr=1e-3, timeout_s=60.0
) -> nn.Module:
    """Train for `steps`, calling `at_step` before each; `data` yields batches and targets."""
    torch.manual_seed(rank)
    model: nn.Module = Net()
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step, (batch, target) in enumerate(data or batches(steps), 1):
        at_step(step)
        loss = nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}/{steps} loss {loss.item():.4f}", flush=True)  # noqa: T201
    if dist.is_initialized():
        dist.destroy_process_group()
    return model
