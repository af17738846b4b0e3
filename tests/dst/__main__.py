"""Run seeds of the simulation: ``python -m tests.dst --seeds 2000 [--first 0]``, or one with its trace: ``--seed 17``.

The last line is ``N seeds, F failed``; the exit code is 1 where F is not 0.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from functools import cache
from multiprocessing import Pool
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from tests.copying import replace
from tests.dst.simulation import Simulation, Told

CHUNK = 25  # seeds that a process is given at once
MANY = 5000  # after so many it is said how far it has come


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dst", description="deterministic simulation of the service")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; default: one for each core")
    parser.add_argument("--seed", type=int, help="run this one alone, and tell what happened in it")
    parser.add_argument("--until-broken", action="store_true", help="end at the first seed that breaks a law")
    given = parser.parse_args()
    if given.seed is not None:
        return _one(given.seed)
    return _many(range(given.first, given.first + given.seeds), given.workers, ends_early=given.until_broken)


def _one(seed: int) -> int:
    told = Simulation().run(seed)
    _say(str(told))
    return 1 if told.broken else 0


def _many(seeds: range, workers: int, *, ends_early: bool) -> int:
    failed = events = faults = crashes = 0
    began_s = time.monotonic()
    with Pool(workers) as pool:
        for done, told in enumerate(pool.imap(_run, seeds, CHUNK), 1):
            events, faults, crashes = events + told.events, faults + told.faults, crashes + told.crashes
            if told.broken:
                failed += 1
                _say(f"seed {told.seed}: {told.broken} (python -m tests.dst --seed {told.seed})")
                if ends_early:
                    return 1  # leaving the pool ends it
            if done % MANY == 0 and done < len(seeds):
                _say(f"{done} seeds so far, {failed} failed")
        pool.close()
        pool.join()
    by_clock, by_core = len(seeds) / (time.monotonic() - began_s), len(seeds) / _processor_s()
    _say(f"{events} events, {faults} faults, {crashes} crashes")
    _say(f"{by_clock:.1f} seeds/s by {workers} processes; {by_core:.1f} for each second of a core")
    _say(f"{len(seeds)} seeds, {failed} failed")
    return 1 if failed else 0


def _run(seed: int) -> Told:
    return replace(_simulation().run(seed), trace=[])  # a trace is long, and can be had again


@cache
def _simulation() -> Simulation:
    """One for each process."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)
    return Simulation()


def _processor_s() -> float:
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
