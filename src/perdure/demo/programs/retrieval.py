"""Reads a shared index that another job may be writing."""

import sqlite3

from mini import SHARED, hello, pause, say

hello("retrieval training")
say(f"opening the index {SHARED / 'index.db'}")
index = sqlite3.connect(SHARED / "index.db", timeout=1.0)
(count,) = index.execute("SELECT count(*) FROM passage").fetchone()
say(f"{count} passages")
for epoch in range(1, 7):
    pause(1)
    say(f"epoch {epoch} recall@10 {0.5 + 0.06 * epoch:.2f}")
index.close()
say("finished")
