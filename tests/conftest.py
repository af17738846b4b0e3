"""What all tests share: how a test asks for what not every machine has, and where real data is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.new_database import copy_schema

ROOT = Path(__file__).resolve().parent.parent
SCHEDULES = ROOT / "tests" / "golden" / "schedules"
Found = TypeVar("Found")


for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # numeric threads of several workers slow each other down

# As in a shell that has this environment active: commands to paste begin with the bare name.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: what it starts would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is not a fault of the code.
settings.register_profile("perdure", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Before a change lands: the same examples each time. What others find is a bug of its own, and not of that change.
settings.register_profile("landing", settings.get_profile("perdure"), derandomize=True)
settings.load_profile("perdure")

# They wait for a real Slurm and other processes more than they compute; the longest first.
WAITING = (
    "tests/slurm/test_keep", "tests/slurm/test_when", "tests/slurm/test_dependants", "tests/slurm/test_service.",
    "tests/slurm/test_looks", "tests/backends/test_conformance", "tests/slurm", "tests/e2e",
)  # fmt: skip
COMPUTING = ("tests/browser", "tests/crash", "tests/dst/test_dst", "tests/simulation")
WAITED = 0.5  # the part of the run in which all that waits is begun, so that no worker is left alone with it


def _begun(files: list[str]) -> dict[str, float]:
    """When to begin a file: what waits and what computes side by side, of each kind the longest first."""
    waiting = [file for file in files if file.startswith(WAITING)]
    others = [file for file in files if file not in waiting]
    waiting.sort(key=lambda file: next(place for place, name in enumerate(WAITING) if file.startswith(name)))
    others.sort(key=lambda file: not file.startswith(COMPUTING))
    spread = {file: WAITED * place / len(waiting) for place, file in enumerate(waiting)}
    return spread | {file: place / len(others) for place, file in enumerate(others)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the workers have something to compute at any time, and no long file at the end."""
    begun = _begun(list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items)))
    items.sort(key=lambda item: begun[item.nodeid.partition("::")[0]])


def pytest_configure() -> None:
    copy_schema()


def require(name: str, found: Found | None, why: str) -> Found:
    """Go on with what was `found`; else skip with the reason, or fail where PERDURE_REQUIRE lists `name`."""
    if found:
        return found
    if name in os.environ.get("PERDURE_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"PERDURE_REQUIRE names {name!r}, but {why}", pytrace=False)
    pytest.skip(f"{name}: {why}")


def require_program(name: str) -> str:
    """The path of a program; see `require`."""
    return require(name, shutil.which(name), f"{name} is not installed")


@pytest.fixture(scope="session")
def data_dir() -> Path | None:
    """Directory of real traces and logs: PERDURE_DATA, or ../shared/data beside the repository; None without."""
    named = Path(os.environ["PERDURE_DATA"]) if "PERDURE_DATA" in os.environ else ROOT.parent / "shared" / "data"
    return named if named.is_dir() else None


@pytest.fixture(scope="session")
def hand_cases() -> dict[str, Any]:
    """Schedules, rounds and goodput derived by hand, each by its id."""
    return {case["id"]: case for case in json.loads((SCHEDULES / "hand_cases.json").read_text())}


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is five and a half hours ahead of UTC: where zones are mixed up, it shows."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
