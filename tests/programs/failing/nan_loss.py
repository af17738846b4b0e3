"""The loss becomes NaN in rank 1, and the program says so and ends itself."""
#: cause = ["numeric"]
#: anywhere = true
#: rank = "1"
#: verdict = "stop"

import math

import torch
from training import FEATURES, batches, rank, train


def data():
    yield from batches(5)
    batch = torch.full((16, FEATURES), math.nan if rank == 1 else 1.0)
    if not torch.isfinite(batch.sum()):
        raise FloatingPointError("loss is nan at step 6, stopping")
    yield batch, torch.ones(16, 1)


train(data=data())
