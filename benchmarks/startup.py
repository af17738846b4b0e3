"""How long ``perdure --help`` and ``perdure --version`` take, from fork to exit.

    python benchmarks/startup.py [--runs 31]

Prints the median, the fastest and the slowest in milliseconds beside those of an interpreter that does nothing, and
exits with 1 where a median is over the budget of 200 ms. The first run of each warms the file cache and is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

BUDGET_MS = 200.0
PERDURE = str(Path(sys.executable).with_name("perdure"))


def elapsed_ms(command: list[str], runs: int) -> list[float]:
    """Wall time of each run, sorted."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=31)
    runs = parser.parse_args().runs
    worst = 0.0
    print(f"{'command':24}{'median ms':>12}{'min':>8}{'max':>8}   of {runs} runs")
    for command in ([sys.executable, "-c", "pass"], [PERDURE, "--version"], [PERDURE, "--help"]):
        times = elapsed_ms(command, runs)
        median = statistics.median(times)
        name = " ".join([Path(command[0]).name, *command[1:]])
        print(f"{name:24}{median:12.0f}{times[0]:8.0f}{times[-1]:8.0f}")
        worst = max(worst, median)
    return int(worst > BUDGET_MS)


if __name__ == "__main__":
    sys.exit(main())
