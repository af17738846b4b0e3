"""Rank 1 is killed from outside in the middle of a run, with no word of memory anywhere."""
#: cause = ["killed"]
#: anywhere = true
#: rank = "1"
#: lands = true
#: verdict = "probe"

import os
import signal

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        os.kill(os.getpid(), signal.SIGKILL)


train(at_step)
