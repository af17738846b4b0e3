"""Rank 1 stands still before a collective until the time-out of the process group ends the job."""
#: cause = ["nccl_timeout"]
#: rank = "0"
#: verdict = "probe"

import time

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        time.sleep(60)


train(at_step, timeout_s=8)
