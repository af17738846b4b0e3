"""NCCL is asked of a torch that was built for CPUs; each rank does."""
#: cause = ["cuda_env"]
#: rank = "any"
#: verdict = "stop"
#: message = "Distributed package doesn't have NCCL built in"
#: says_also = "CPU-only"

import torch.distributed as dist

dist.init_process_group("nccl")
