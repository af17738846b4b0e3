"""Rebuilds the shared search index in one long transaction."""

import argparse
import sqlite3

from mini import SHARED, hello, pause, say

options = argparse.ArgumentParser()
options.add_argument("--for-s", type=float, default=14)
args = options.parse_args()

hello("index rebuild")
index = sqlite3.connect(SHARED / "index.db", isolation_level=None, timeout=60)
index.execute("BEGIN EXCLUSIVE")
index.execute("DELETE FROM passage")
index.executemany("INSERT INTO passage (text) VALUES (?)", [(f"passage {i}",) for i in range(200)])
say("200 passages written, optimising")
pause(args.for_s)
index.execute("COMMIT")
index.close()
say("finished")
