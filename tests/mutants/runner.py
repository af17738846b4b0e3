"""Copies of the project, in which bugs are put, and tests that are run in one until one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import ROOT, Bug

TYPES = "types"  # mypy, which is part of the tests
CHECKED = ("src/perdure", "foundry")  # by it: no bug is put into the tests
LONGEST_S = 900  # of the tests for one bug: who hangs is noticed
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")


@dataclass(frozen=True, slots=True)
class Found:
    """What the tests said. `by` is "" where none noticed."""

    by: str
    took_s: float


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """So many, each beside the shared data, as the project itself stands."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="perdure-bugs-") as place:
        for number in range(count):
            beside = Path(place) / str(number)
            shutil.copytree(ROOT, beside / "project", ignore=NOT_COPIED, symlinks=True)
            (beside / "shared").symlink_to((ROOT.parent / "shared").resolve())
            free.put(beside / "project")
        yield free


def tried(copy: Path, bug: Bug) -> Found:
    """Put a bug in, run its tests, take it out."""
    path = copy / bug.path
    sound = path.read_text()
    try:
        path.write_text(bug.put_into(sound))
        return run(copy, bug.tests)
    finally:
        path.write_text(sound)


def run(copy: Path, tests: Iterable[str]) -> Found:
    """Run the tests until one fails."""
    began_s = time.monotonic()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}:{copy}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache"),
    }
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
        return [sys.executable, "-m", "tests.dst", "--seeds", seeds, "--until-broken"]
    if kind == TYPES:
        return [sys.executable, "-m", "mypy", "--no-error-summary", *CHECKED]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", test]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
