"""Rank 1 waits for a lock that it holds itself; it dumps its stack where it is asked to, and rank 0 does too."""
#: cause = ["hang"]
#: rank = "1"
#: verdict = "retry"
#: message = "hang_lock.py"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 --hang-signal USR1 -- torchrun --standalone --nproc-per-node 2"

import faulthandler
import signal
import threading

from training import rank, train

faulthandler.register(signal.SIGUSR1, all_threads=True)
lock = threading.Lock()


def at_step(step):
    if rank == 1 and step == 6:
        lock.acquire()
        lock.acquire()


train(at_step, timeout_s=3600)
