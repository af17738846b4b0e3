"""The collector leaves alone what lives as long as the service."""

import subprocess
import sys

PROGRAM = """
import gc
from perdure.service.workers.gc_tuning import keep_pauses_short
kept = [[] for _ in range(10_000)]
keep_pauses_short()
print(gc.get_freeze_count() >= len(kept), gc.isenabled(), any(one is kept for one in gc.get_objects()))
"""


def test_what_is_alive_is_not_scanned_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]
