"""A batch of another width reaches the first layer, on rank 1 only; its peer waits for it in a collective."""
#: cause = ["shape"]
#: anywhere = true
#: rank = "1"
#: lands = true
#: verdict = "stop"
#: message = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x31 and 32x64)"
#: frame = ", in forward"

import torch
from training import FEATURES, batches, rank, train


def data():
    yield from batches(5)
    yield (torch.randn(16, FEATURES - rank), torch.randn(16, 1))


train(data=data(), steps=6)
