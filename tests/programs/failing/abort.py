"""Native code in rank 0 frees an invalid pointer: glibc ends the process with SIGABRT."""
#: cause = ["native_crash"]
#: anywhere = true
#: rank = "0"
#: verdict = "probe"

import ctypes

from training import rank, train


def at_step(step):
    if rank == 0 and step == 6:
        libc = ctypes.CDLL(None)
        libc.free.argtypes = [ctypes.c_void_p]
        block = ctypes.create_string_buffer(64)
        libc.free(ctypes.addressof(block) + 1)


train(at_step)
