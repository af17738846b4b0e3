"""/dev/shm is too small: rank 1 writes into a mapped file there that the file system has no room for."""
#: cause = ["env_limit"]
#: rank = "1"
#: verdict = "probe"
#: sizes_mib = { "/dev/shm" = 8 }

import mmap
import os

from training import rank, train


def at_step(step):
    if rank == 1 and step == 6:
        size = 64 << 20
        file = os.open("/dev/shm/torch_cache", os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, size)
        shared = mmap.mmap(file, size)
        shared.write(b"x" * size)


train(at_step)
