"""A tensor is larger than what the limit of memory allows, in rank 0."""
#: cause = ["host_oom"]
#: anywhere = true
#: rank = "0"
#: verdict = "stop"
#: message = "DefaultCPUAllocator: can't allocate memory"

import resource

import torch
from training import rank, train


def at_step(step):
    if rank == 0 and step == 6:
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        torch.zeros(8 << 30)


train(at_step)
