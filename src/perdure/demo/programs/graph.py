"""Keeps every partition of a graph in memory, and asks for more than the job may use.

Each partition is 128 MiB of address space; pages that are never touched cost the machine nothing.
"""

import numpy as np
from mini import hello, pause, say

hello("graph network")
features = []
for part in range(32):
    features.append(np.zeros((4096, 4096), np.float64))
    say(f"partition {part} loaded, {sum(f.nbytes for f in features) >> 20} MiB in all")
    pause(0.2)
say(f"finished: {len(features)} partitions")
