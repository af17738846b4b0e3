"""Two ranks in lockstep. One waits without end for its node's cache; the other's watchdog ends the job."""

import faulthandler
import fcntl
import os
import signal
import sys
import threading
import time

from mini import PACE, RANK, Pair, hello, pause, say, scratch

STEPS, PATIENCE_S = 10, 6.0


class Watchdog(threading.Thread):
    """Aborts the process, with all its stacks, when one collective call takes longer than `PATIENCE_S`."""

    def __init__(self):
        super().__init__(daemon=True, name="watchdog")
        self.waiting = None

    def run(self):
        while True:
            time.sleep(0.1)
            waiting = self.waiting
            if waiting and time.monotonic() - waiting[1] > max(PATIENCE_S * PACE, 2.0):
                say(
                    f"watchdog: all_reduce of step {waiting[0]} timed out, rank {1 - RANK} never arrived; stacks follow"
                )
                faulthandler.dump_traceback(all_threads=True)
                os.abort()


def load_shard():
    with (scratch() / "cache.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def all_reduce(value, step):
    watchdog.waiting = (step, time.monotonic())
    pair.send(value)
    total = value + pair.receive()
    watchdog.waiting = None
    return total


faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
hello("mixture of experts")
pair, watchdog = Pair(), Watchdog()
watchdog.start()
for step in range(1, STEPS + 1):
    pause(0.4)
    if step == 3:
        say("next shard comes from the node's cache")
        load_shard()
    loss = all_reduce(2.0 / step, step) / 2
    if RANK == 0:
        say(f"step {step}/{STEPS} loss {loss:.4f}")
say("finished")
sys.exit(0)
