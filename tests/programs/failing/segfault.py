"""Rank 1 reads address 0 in native code."""
#: cause = ["native_crash"]
#: anywhere = true
#: rank = "1"
#: verdict = "probe"

import ctypes

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        ctypes.string_at(0)


train(at_step)
