"""An evaluation that simply works."""

import random

from mini import hello, pause, say

hello("evaluation")
rng = random.Random(1)
right = 0
for batch in range(1, 11):
    right += sum(rng.random() < 0.9 for _ in range(100))
    pause(0.8)
    if batch % 2 == 0:
        say(f"batch {batch}/10 accuracy {right / batch / 100:.3f}")
say(f"finished: accuracy {right / 1000:.3f}")
