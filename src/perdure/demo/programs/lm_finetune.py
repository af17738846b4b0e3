"""Starts from the checkpoint that a run before it left, and that one is only half there."""

import numpy as np
from mini import SHARED, hello, pause, say

base = SHARED / "lm" / "base.npz"
hello("language model, fine-tuning")
say(f"loading {base}, {base.stat().st_size} bytes")
pause(0.3)
with np.load(base) as archive:
    weights = {name: archive[name] for name in archive.files}
for epoch in range(1, 4):
    pause(0.5)
    say(f"epoch {epoch} loss {1.9 / epoch:.3f}")
say(f"finished: {len(weights)} arrays tuned")
