"""The code keeps to its own rules: which part may import which, types, style."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 900  # types without a cache, on a busy machine: a minute of work
FOLDERS = ("src", "foundry", "tests", "benchmarks", "docs")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False)


@pytest.mark.parametrize(
    "check",
    [
        ("lint-imports",),
        ("mypy", "--no-error-summary"),
        ("ruff", "check", "--output-format", "concise", *FOLDERS),
        ("ruff", "format", "--check", *FOLDERS),
    ],
    ids=["imports", "types", "style", "layout"],
)
@pytest.mark.timeout(LONGEST_S + 20)
def test_it_holds(check: tuple[str, ...]) -> None:
    tool = shutil.which(check[0], path=str(Path(sys.executable).parent))
    assert tool is not None
    ran = run(tool, *check[1:])
    assert ran.returncode == 0, ran.stdout + ran.stderr
