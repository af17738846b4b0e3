"""Shards of the data set are opened and never closed, until rank 1 has as many as its limit allows."""
#: cause = ["env_limit"]
#: rank = "1"
#: verdict = "probe"
#: message = "Too many open files"

import resource

from training import rank, train

shards = []


def at_step(step):
    if rank == 1 and step == 6:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        while True:
            shards.append(open("/proc/self/maps"))  # noqa: SIM115


train(at_step)
