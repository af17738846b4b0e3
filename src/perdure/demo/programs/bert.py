"""Two ranks that average their gradients. On the first attempt rank 1 is killed on the way, as a kernel short of
memory or a broken node would do it; its peer is left with a dead connection."""

import os
import signal

from mini import INCARNATION, RANK, Checkpoint, Pair, hello, pause, say

STEPS, LOST_AT = 16, 5

# The cluster ends the other rank when one is gone; this one first says what it saw.
signal.signal(signal.SIGTERM, lambda *_: None)
hello("bert, data parallel")
pair, checkpoint = Pair(), Checkpoint()
state = (checkpoint.load() if RANK == 0 else None) or {"step": 0}
pair.send(state["step"])
start = int(max(state["step"], pair.receive()))
loss = 6.0 / (start + 1)
for step in range(start + 1, STEPS + 1):
    pause(0.5)
    if RANK == 1 and INCARNATION == 1 and step == LOST_AT:
        pause(1)  # its peer's gradient has come in meanwhile, and is never read
        os.kill(os.getpid(), signal.SIGKILL)
    pair.send(loss)
    loss = 0.9 * (loss + pair.receive()) / 2
    if RANK == 0:
        say(f"step {step}/{STEPS} loss {loss:.4f}")
        if step % 4 == 0:
            checkpoint.save(step)
if RANK == 0:
    checkpoint.discard()
say("finished")
