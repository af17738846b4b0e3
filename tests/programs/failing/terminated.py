"""Somebody sends SIGTERM to rank 1 alone, which has no handler."""
#: cause = ["killed"]
#: anywhere = true
#: rank = "1"
#: verdict = "probe"

import os
import signal

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        os.kill(os.getpid(), signal.SIGTERM)


train(at_step)
