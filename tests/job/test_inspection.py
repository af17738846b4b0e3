"""A look at real processes: what they are at is seen from outside, and none of them notices."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from perdure.hangs.rank_state import Life, RankState
from perdure.job.identity import Task
from perdure.job.inspection import look_at, ranks_among
from perdure.job.processes import catches
from tests.job.launching import on_linux

pytestmark = on_linux
HERE = Task("n1", "n1", os.getpid(), rank=3)


@contextlib.contextmanager
def running(
    code: str, *arguments: Path, stderr: BinaryIO | None = None, **variables: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it begins."""
    argv = [sys.executable, "-c", f"print('begins', flush=True)\n{code}", *map(str, arguments)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, **variables})
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def seen(*processes: subprocess.Popen[str]) -> list[RankState]:
    return look_at([process.pid for process in processes], HERE)


@pytest.mark.parametrize("burners", [1, 8])
def test_one_that_computes_works_also_on_a_node_that_is_full(burners: int) -> None:
    with contextlib.ExitStack() as stack:
        spins = [stack.enter_context(running("while True: pass", RANK="0")) for _ in range(burners)]
        (sight,) = seen(spins[0])
        assert (sight.rank, sight.life) == (0, Life.WORKS)


def test_one_that_opens_a_pipe_that_nobody_writes_stands_still_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "part")
    with running("import sys; open(sys.argv[1])", tmp_path / "part") as process:
        (sight,) = seen(process)
    assert (sight.rank, sight.life, sight.where) == (3, Life.ELSEWHERE, "opens a file")


def test_the_file_that_one_waits_for_is_named(tmp_path: Path) -> None:
    locks = "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
    with running(locks + "print('has it', flush=True); time.sleep(60)", tmp_path / "lock") as first:
        assert first.stdout.readline()
        with running(locks, tmp_path / "lock") as second:
            (sight,) = seen(second)
    assert sight.where == f"waits for a file lock on {tmp_path}/lock"


def test_one_that_is_stopped_is_seen_to_be_and_stays_so() -> None:
    with running("import time; time.sleep(60)") as process:
        process.send_signal(signal.SIGSTOP)
        (sight,) = seen(process)
        assert sight.life is Life.STOPPED
        assert open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[0] == "T"  # noqa: SIM115


def test_only_who_has_a_handler_catches_a_signal() -> None:
    """One that blocks it would end of it once it does not, and a launcher hands it on to tasks that may."""
    blocks = "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); "
    handles = "import signal, time; signal.signal(signal.SIGUSR1, print); "
    waits = "print('ready', flush=True); time.sleep(60)"
    named = handles + "open('/proc/self/comm', 'w').write('srun'); "
    for code, expected in ((blocks, False), (handles, True), (named, False)):
        with running(code + waits) as process:
            assert process.stdout.readline()
            assert catches(process.pid, signal.SIGUSR1) is expected


def test_asking_for_a_stack_ends_no_process(tmp_path: Path) -> None:
    """One that has no handler for the signal is not asked."""
    registers = "import faulthandler, signal, time; faulthandler.register(signal.SIGUSR1); print('ready', flush=True); "
    stands = "time.sleep(60)"
    with (
        (tmp_path / "err").open("wb") as err,
        running(registers + stands, RANK="0", stderr=err) as listens,
        running("import time; " + stands, RANK="1") as deaf,
    ):
        assert listens.stdout.readline()
        told, silent = look_at([listens.pid, deaf.pid], HERE, signal.SIGUSR1)
        assert (listens.poll(), deaf.poll()) == (None, None)
    assert told.stack == ("<string>:2 in <module>",)
    assert silent.stack == ()


def test_the_agent_of_torchrun_is_no_rank_though_it_has_inherited_one() -> None:
    stands = "import time; time.sleep(60)"
    of: dict[str, Any] = {"TORCHELASTIC_RUN_ID": "x"}
    with (
        running(stands, RANK="0") as agent,
        running(stands, RANK="0", **of) as first,
        running(stands, RANK="1", **of) as second,
    ):
        ranks = ranks_among([agent.pid, first.pid, second.pid])
    assert [(ranked.rank, ranked.pids) for ranked in ranks] == [(0, (first.pid,)), (1, (second.pid,))]
