"""A token lies beyond the embedding's table, in rank 1's share of the data."""
#: cause = ["index"]
#: rank = "1"
#: verdict = "stop"
#: message = "IndexError: index out of range in self"

import torch
from torch import nn
from training import rank, train

table = nn.Embedding(100, 8)


def at_step(step):
    table(torch.tensor([99 + (rank == 1 and step == 6)]))


train(at_step)
