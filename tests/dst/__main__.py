"""Run seeds of the simulation: ``python -m tests.dst --seeds 2000 [--first 0]``, or one with its trace: ``--seed 17``.

The last line is ``N seeds, F failed``; the exit code is 1 where F is not 0.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.dst.simulation import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dst", description="deterministic simulation of the service")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="run this one alone, and tell what happened in it")
    given = parser.parse_args()
    if given.seed is not None:
        return _one(given.seed)
    return _many(given.first, given.seeds)


def _one(seed: int) -> int:
    told = Simulation().run(seed)
    _say(str(told))
    return 1 if told.broken else 0


def _many(first: int, seeds: int) -> int:
    simulation, failed = Simulation(), 0
    events = faults = crashes = 0
    began_s = time.process_time()
    for seed in range(first, first + seeds):
        told = simulation.run(seed)
        events, faults, crashes = events + told.events, faults + told.faults, crashes + told.crashes
        if told.broken:
            failed += 1
            _say(f"seed {seed}: {told.broken} (python -m tests.dst --seed {seed})")
    took_s = time.process_time() - began_s
    _say(f"{events} events, {faults} faults, {crashes} crashes; {seeds / took_s:.1f} seeds/s of processor time")
    _say(f"{seeds} seeds, {failed} failed")
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
