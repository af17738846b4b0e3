"""A well-behaved run: steps, losses, checkpoints; it resumes after whatever ended it.

SIGUSR1 (the walltime is near) makes it save and go on; SIGTERM makes it save and leave.
"""

import argparse
import random
import signal
import sys

from mini import Checkpoint, hello, pause, say

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=40)
options.add_argument("--step-s", type=float, default=0.5)
args = options.parse_args()
asked = set()
signal.signal(signal.SIGUSR1, lambda *_: asked.add("SIGUSR1"))
signal.signal(signal.SIGTERM, lambda *_: asked.add("SIGTERM"))

hello("resnet-8 on 4096 images")
rng = random.Random(7)
images = [(x := rng.uniform(-1, 1), 3.0 * x + rng.gauss(0, 0.1)) for _ in range(256)]
checkpoint = Checkpoint()
state = checkpoint.load() or {"step": 0, "weight": 0.0}
weight = state["weight"]
for step in range(state["step"] + 1, args.steps + 1):
    errors = [(weight * x - y, x) for x, y in rng.sample(images, 64)]
    loss = sum(e * e for e, _ in errors) / len(errors)
    weight -= 0.05 * sum(2 * e * x for e, x in errors) / len(errors)
    pause(args.step_s)
    if step % 5 == 0:
        say(f"step {step}/{args.steps} loss {loss:.4f}")
    if step % 10 == 0 or asked:
        checkpoint.save(step, weight=weight)
    if "SIGTERM" in asked:
        say("SIGTERM: asked to leave, all work is saved")
        sys.exit(143)
    if asked:
        say("SIGUSR1: the walltime is near")
        asked.clear()
checkpoint.discard()
say(f"finished: weight {weight:.3f} after {args.steps} steps")
