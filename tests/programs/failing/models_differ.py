"""Rank 1 builds another model than rank 0."""
#: cause = ["dist_config"]
#: rank = "any"
#: verdict = "stop"

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training import rank

dist.init_process_group("gloo")
DistributedDataParallel(nn.Sequential(*(nn.Linear(8, 8) for _ in range(1 + rank))))
