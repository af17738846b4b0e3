"""Fills the data cache of its node; nobody else can read that cache meanwhile."""

import argparse
import fcntl

from mini import hello, pause, say, scratch

options = argparse.ArgumentParser()
options.add_argument("--for-s", type=float, default=30)
args = options.parse_args()

hello("cache warmer")
with (scratch() / "cache.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("holding the cache lock of this node")
    pause(args.for_s)
say("finished: cache is warm")
