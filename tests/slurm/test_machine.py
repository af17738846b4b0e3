"""A pretended machine: nothing that runs on it moves once it is frozen, and nobody tells of a power cut."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import await_
from tests.slurm.machine import Machine

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

# A parent that keeps having daemons: each lets its parent go, leads a session of its own, and writes for a while.
RESTLESS = """
import os, sys, time
written = open(sys.argv[1], "a")
while True:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    os.setsid()
    if os.fork():
        os._exit(0)
    for _ in range(20):
        written.write(f"{os.getpid()}\\n"); written.flush()
        time.sleep(0.002)
    os._exit(0)
"""
# What a step daemon and a batch script do: both tell where something of theirs died before they did.
TELLTALE = 'sh -c "sleep 600; echo went on >>$0" $0; echo outlived its child >>$0'


@pytest.fixture
def machine() -> Iterator[tuple[Machine, Callable[..., subprocess.Popen[bytes]]]]:
    """A machine of its own for each test: whatever is started with its mark belongs to it."""
    mark = f"PERDURE_TEST_MACHINE={os.getpid()}.{time.monotonic_ns()}"
    one = Machine("m1", lambda environment: mark.encode() in environment)
    started = []

    def start(*argv: Any) -> subprocess.Popen[bytes]:
        name, _, value = mark.partition("=")
        started.append(subprocess.Popen(argv, env={**os.environ, name: value}, start_new_session=True))
        return started[-1]

    yield one, start
    one.kill()
    for process in started:
        process.wait()


def is_over(log: Path, size: int) -> bool:
    return log.exists() and log.stat().st_size > size


def test_what_never_rests_is_frozen_thawed_and_killed(
    machine: tuple[Machine, Callable[..., subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    restless, start = machine
    log = tmp_path / "log"
    start(sys.executable, "-c", RESTLESS, str(log))
    for _ in range(3):
        size = log.stat().st_size if log.exists() else 0
        await_("more lines", partial(is_over, log, size + 1000))
        restless.freeze()
        frozen = log.read_bytes()
        time.sleep(0.05)
        assert log.read_bytes() == frozen
        restless.thaw()
    restless.cut_power()
    assert restless.processes() == ()


@pytest.mark.parametrize("turn", range(2))
def test_nobody_tells_of_a_power_cut(
    machine: tuple[Machine, Callable[..., subprocess.Popen[bytes]]], tmp_path: Path, turn: int
) -> None:
    dying, start = machine
    log = tmp_path / "log"
    shell = start("sh", "-c", TELLTALE, str(log))
    await_("a shell, its shell and what that runs", lambda: len(dying.processes()) == 3)
    dying.cut_power()
    assert shell.wait() == -signal.SIGKILL
    assert not log.exists()
