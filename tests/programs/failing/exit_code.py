"""Rank 1 ends itself with exit code 7, without a word and without clean-up, as some native libraries do."""
#: cause = ["unknown"]
#: anywhere = true
#: rank = "1"
#: lands = true
#: verdict = "probe"

import os

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        os._exit(7)


train(at_step)
