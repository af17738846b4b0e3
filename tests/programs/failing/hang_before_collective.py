"""Rank 1 stands still before a collective that rank 0 waits in; nothing in the program ends that."""
#: cause = ["hang"]
#: rank = "1"
#: lands = true
#: verdict = "retry"
#: message = "rank 1"
#: says_also = "stopped first"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 -- torchrun --standalone --nproc-per-node 2"

import os
import time
from pathlib import Path

from training import rank, train


def at_step(step):
    Path(f"last-step-{os.environ.get('SLURM_RESTART_COUNT', 0)}").touch()
    if rank == 1 and step == 6:
        time.sleep(3600)


train(at_step, timeout_s=3600)
