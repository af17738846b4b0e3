"""Put each deliberate bug into a copy of the project, and see whether the tests notice: ``python -m tests.mutants``.

Each line tells the bug, what noticed it after how many seconds, or MISSED. The exit code is 1 where one was missed. The
tests are run once without any bug first: what fails then proves nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import Bug, bugs
from tests.mutants.runner import Found, copies, run, say, tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="put deliberate bugs in")
    parser.add_argument("--only", default="", help="bugs whose names hold this, or one of these between commas")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    chosen = [bug for bug in bugs() if any(word in bug.name for word in given.only.split(","))]
    if not chosen:
        parser.error(f"no bug's name holds {given.only!r}")
    with copies(given.workers) as free, ThreadPoolExecutor(given.workers) as pool:
        broken = [what for what, found in _unharmed(pool, free, chosen) if found.by]
        if broken:
            say(f"these fail without any bug: {' '.join(broken)}")
            return 2
        missed = 0
        for bug, found in pool.map(lambda bug: (bug, _in_one(free, lambda copy: tried(copy, bug))), chosen):
            missed += not found.by
            say(f"{bug.name}: {found.by or 'MISSED'} ({found.took_s:.0f} s): {bug.promise}")
    say(f"{len(chosen)} bugs, {missed} missed")
    return 1 if missed else 0


def _unharmed(pool: ThreadPoolExecutor, free: SimpleQueue[Path], chosen: Iterable[Bug]) -> Iterator[tuple[str, Found]]:
    needed = sorted({test for bug in chosen for test in bug.tests})
    return pool.map(lambda test: (test, _in_one(free, lambda copy: run(copy, (test,)))), needed)


def _in_one(free: SimpleQueue[Path], act: Callable[[Path], Found]) -> Found:
    copy = free.get()
    try:
        return act(copy)
    finally:
        free.put(copy)


if __name__ == "__main__":
    sys.exit(main())
