"""The script names a master that no name server knows."""
#: cause = ["net", "dist_config", "rdzv_store"]
#: verdict = "probe"
#: launch = "python"

import os
from datetime import timedelta

import torch.distributed as dist

os.environ.update(RANK="1", WORLD_SIZE="2", MASTER_ADDR="gpu-node-1.invalid", MASTER_PORT="29500")
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
