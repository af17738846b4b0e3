"""One of two processes never starts: the other waits for it until the store's time is over."""
#: cause = ["rdzv_store"]
#: verdict = "retry"
#: launch = "python"

import os
from datetime import timedelta

import torch.distributed as dist

os.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
