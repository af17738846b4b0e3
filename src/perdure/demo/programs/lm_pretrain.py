"""Its checkpoint is larger than any file may be here, and half of it stays behind."""

import numpy as np
from mini import SHARED, hello, pause, say

hello("language model, pre-training")
rng = np.random.default_rng(5)
weights = {f"block{i}": rng.normal(size=(256, 256)) for i in range(8)}  # 4 MiB
target = SHARED / "lm" / "base.npz"
target.parent.mkdir(parents=True, exist_ok=True)
for step in range(100, 301, 100):
    pause(0.5)
    say(f"step {step} perplexity {420 / step**0.5:.1f}")
say(f"saving {sum(w.nbytes for w in weights.values()) >> 20} MiB to {target}")
np.savez(target, **weights)
say("finished")
