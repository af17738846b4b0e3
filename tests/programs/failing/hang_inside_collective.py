"""Rank 1 is stopped while it is in a collective, as by a debugger or an overheated machine; rank 0 waits for it."""
#: cause = ["hang"]
#: rank = "1"
#: verdict = "retry"
#: message = "it is stopped"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 -- torchrun --standalone --nproc-per-node 2"

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from training import rank, train


def at_step(step):
    if step == 6:
        if rank == 1:
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        else:
            time.sleep(2)
        dist.all_reduce(torch.ones(1))


train(at_step, timeout_s=3600)
