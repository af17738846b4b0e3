"""Put each deliberate bug into a copy of the project, and see whether the tests notice: ``python -m tests.mutants``.

Each line tells the bug, what noticed it after how many seconds, or MISSED. The exit code is 1 where one was missed. The
tests are run once without any bug first: what fails then proves nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import ROOT, Bug, bugs

LONGEST_S = 900  # of the tests for one bug: who hangs is noticed
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "*.egg-info")


@dataclass(frozen=True, slots=True)
class Found:
    """What the tests said. `by` is "" where none noticed."""

    by: str
    took_s: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="put deliberate bugs in")
    parser.add_argument("--only", default="", help="bugs whose names hold this, or one of these between commas")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    chosen = [bug for bug in bugs() if any(word in bug.name for word in given.only.split(","))]
    if not chosen:
        parser.error(f"no bug's name holds {given.only!r}")
    with _copies(given.workers) as free, ThreadPoolExecutor(given.workers) as pool:
        broken = [what for what, found in _unharmed(pool, free, chosen) if found.by]
        if broken:
            _say(f"these fail without any bug: {' '.join(broken)}")
            return 2
        missed = 0
        for bug, found in pool.map(lambda bug: (bug, _tried(free, bug)), chosen):
            missed += not found.by
            _say(f"{bug.name}: {found.by or 'MISSED'} ({found.took_s:.0f} s): {bug.promise}")
    _say(f"{len(chosen)} bugs, {missed} missed")
    return 1 if missed else 0


def _unharmed(pool: ThreadPoolExecutor, free: SimpleQueue[Path], chosen: Iterable[Bug]) -> Iterator[tuple[str, Found]]:
    needed = sorted({test for bug in chosen for test in bug.tests})
    return pool.map(lambda test: (test, _run_in_one(free, (test,))), needed)


def _run_in_one(free: SimpleQueue[Path], tests: Iterable[str]) -> Found:
    copy = free.get()
    try:
        return _run(copy, tests)
    finally:
        free.put(copy)


def _tried(free: SimpleQueue[Path], bug: Bug) -> Found:
    copy = free.get()
    path = copy / bug.path
    sound = path.read_text()
    try:
        path.write_text(bug.put_into(sound))
        return _run(copy, bug.tests)
    finally:
        path.write_text(sound)
        free.put(copy)


def _run(copy: Path, tests: Iterable[str]) -> Found:
    """Run the tests until one fails."""
    began_s = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}", "PYTHONDONTWRITEBYTECODE": "1"}
    by = ""
    for test in tests:
        try:
            done = subprocess.run(
                _command(test),
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            by = f"{test} does not end"
            break
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "seed"))]
            by = failed[0][:160] if failed else f"{test}: exit code {done.returncode}"
            break
    return Found(by, time.monotonic() - began_s)


def _command(test: str) -> list[str]:
    kind, _, seeds = test.partition(":")
    if kind == "dst":
        return [sys.executable, "-m", "tests.dst", "--seeds", seeds]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", test]


@contextmanager
def _copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the project, each beside the shared data, as the project itself stands."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="perdure-bugs-") as place:
        for number in range(count):
            beside = Path(place) / str(number)
            shutil.copytree(ROOT, beside / "project", ignore=NOT_COPIED, symlinks=True)
            (beside / "shared").symlink_to((ROOT.parent / "shared").resolve())
            free.put(beside / "project")
        yield free


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
