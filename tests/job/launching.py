"""Programs under ``perdure exec`` as real processes, and waiting for what they do."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.job import exit_report, files, heartbeat

LAUNCH = "import sys; from perdure.job.exec import run; sys.exit(run(sys.argv[1:]))"
LAUNCH_WITH_SETTINGS = """
import os, signal, sys, time
from perdure.job.options import ExecOptions
from perdure.job.exec import run
from perdure.job.framework import Framework
from perdure.job.silence import HangRule


def set_forward(path):  # by as many seconds as a file has bytes
    return lambda: time.monotonic() + (os.stat(path).st_size if os.path.exists(path) else 0)


def held_until(path):  # a file is there
    begun = time.monotonic()
    return lambda: time.monotonic() if os.path.exists(path) else begun


sys.exit(run(sys.argv[1:], options={settings}))
"""


def python(code: str, *arguments: Path | str | float) -> list[Any]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def environment(directory: Path, incarnation: int = 1) -> dict[Any, Any]:
    ours = {"PERDURE_JOB_ID": "7", "PERDURE_INCARNATION": str(incarnation), "PERDURE_FENCE_DIR": str(directory)}
    return {**os.environ, **ours}


def start(
    directory: Path,
    argv: list[Any],
    incarnation: int = 1,
    settings: str = "",
    variables: dict[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a program under the launcher, with the settings that the expression `settings` makes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*python(LAUNCH_WITH_SETTINGS.format(settings=settings) if settings else LAUNCH), *argv],
        env=environment(directory, incarnation) | (variables or {}),
        text=True,
        start_new_session=True,
        **(pipes | options),
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def exit_report_in(directory: Path) -> exit_report.ExitReport:
    """Of the only task in this fence directory."""
    (task,) = files.tasks(directory)
    return exit_report.read(task.exit_report)


Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def _beats_after(task: files.JobFiles, count: int) -> bool:
    return heartbeat.read(task.heartbeat).count > count


def pass_time(clock: Path, directory: Path, seconds: int = 60) -> None:
    """Set the clock of a launcher forward, which reads it by `set_forward`, and wait until it has looked since."""
    (task,) = files.tasks(directory)
    wait_until(task.heartbeat.exists)
    for _ in range(2):  # the first of the two may have been under way
        before = heartbeat.read(task.heartbeat).count
        with clock.open("a") as file:
            file.write(seconds * ".")
        wait_until(partial(_beats_after, task, before))


def is_alive(pid: str | int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[Any]:
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [child for child in children.read().split() if is_alive(child)]


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
