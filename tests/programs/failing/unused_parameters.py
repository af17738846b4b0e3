"""A layer takes no part in the loss, which DistributedDataParallel does not expect."""
#: cause = ["dist_config", "api"]
#: rank = "any"
#: verdict = "stop"

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, batch):
        return self.used(batch)


dist.init_process_group("gloo")
model = DistributedDataParallel(Two())
for _ in range(3):
    model(torch.randn(4, 8)).sum().backward()
