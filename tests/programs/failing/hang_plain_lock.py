"""Rank 1 waits for a lock that it holds itself; nothing tells its Python stack."""
#: cause = ["hang"]
#: rank = "1"
#: verdict = "retry"
#: message = "waits for a lock, in Python"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 -- torchrun --standalone --nproc-per-node 2"

import threading

from training import rank, train

lock = threading.Lock()


def at_step(step):
    if rank == 1 and step == 6:
        lock.acquire()
        lock.acquire()


train(at_step, timeout_s=3600)
