"""torch.multiprocessing starts the ranks, and one of them is killed from outside."""
#: cause = ["killed"]
#: rank = "1"
#: verdict = "probe"
#: launch = "python"

import os
import signal

import torch.multiprocessing as mp


def work(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    import time

    time.sleep(20)


if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
