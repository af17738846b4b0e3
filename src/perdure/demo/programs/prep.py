"""Data preparation that simply works."""

import hashlib

from mini import hello, pause, say

hello("data preparation")
for shard in range(1, 9):
    digest = hashlib.sha256(f"shard {shard}".encode() * 1000).hexdigest()
    pause(0.8)
    say(f"shard {shard}/8 {digest[:12]}")
say("finished")
