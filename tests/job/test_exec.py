"""``perdure exec``: real processes, real signals."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.job.exec import FENCED
from perdure.job.fence import claim
from perdure.job.identity import identify
from perdure.job.signals import WITNESS
from tests.job.launching import LAUNCH, finish, is_alive, on_linux, python, start, wait_until


@pytest.mark.parametrize(
    ("code", "expected"),
    [("pass", 0), ("raise SystemExit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137)],
    ids=["well", "code", "signal"],
)
def test_the_exit_code_is_the_programs_own(tmp_path: Path, code: str, expected: int) -> None:
    assert finish(start(tmp_path, python(code)))[0] == expected


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    code, _, err = finish(start(tmp_path, ["no-such-program"]))
    assert code == 127
    assert "no-such-program: cannot be run" in err


def test_the_program_knows_its_token_and_its_input(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['PERDURE_FENCE_TOKEN'], os.environ['PERDURE_FENCE_DIR'], sys.stdin.read())"
    process = start(tmp_path, python(code))
    out, _ = process.communicate("words", timeout=60)
    assert out == f"1 {tmp_path} words\n"


def test_signals_reach_the_programs_group(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('usr1', flush=True), sys.exit(4)))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()"
    )
    process = start(tmp_path, python(code))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert finish(process)[:2] == (4, "usr1\n")


def test_termination_is_the_programs_to_handle(tmp_path: Path) -> None:
    process = start(tmp_path, python("import time; print('ready', flush=True); time.sleep(3600)"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143


def test_a_stale_incarnation_does_not_begin(tmp_path: Path) -> None:
    claim(tmp_path, "7", 2)
    code, out, err = finish(start(tmp_path, python("print('ran')"), incarnation=1))
    assert (code, out) == (FENCED, "")
    assert "incarnation 2 has claimed it" in err


@on_linux
def test_a_newer_claim_ends_the_program_and_its_children(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "time.sleep(3600)"
    )
    process = start(tmp_path, python(code))
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert all(map(is_alive, pids))
    claim(tmp_path, "7", 2)
    ended, _, err = finish(process)
    assert ended == FENCED
    assert "token 1 is fenced by token 2" in err
    wait_until(lambda: not any(map(is_alive, pids)))


@on_linux
def test_the_program_dies_with_its_launcher(tmp_path: Path) -> None:
    process = start(tmp_path, python("import os, time; print(os.getpid(), flush=True); time.sleep(3600)"))
    pid = int(process.stdout.readline())
    process.kill()
    wait_until(lambda: not is_alive(pid))
    finish(process)


def test_a_stop_and_a_continue_without_a_rival_change_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, python("import sys; print('ready', flush=True); sys.stdin.read(); print('done')"))
    assert process.stdout.readline() == "ready\n"
    for signum in (signal.SIGSTOP, signal.SIGCONT):
        process.send_signal(signum)
    assert finish(process)[:2] == (0, "done\n")


WRITER = """
import os, sys, time
from pathlib import Path
from perdure.job import checkpointed
directory, incarnation = Path(sys.argv[1]), os.environ["PERDURE_INCARNATION"]
for step in range(1_000_000):
    with checkpointed(directory / f"{incarnation}-{step}") as draft:
        draft.write_text(incarnation)
    with checkpointed(directory / "latest") as draft:
        draft.write_text(incarnation)
"""


@on_linux
@pytest.mark.parametrize("with_launcher", [True, False], ids=["whole-node", "program-alone"])
def test_no_two_incarnations_publish_into_one_checkpoint(tmp_path: Path, with_launcher: bool) -> None:
    """Frozen at any instant and thawed while its successor writes, the older one publishes nothing more.

    Also where its launcher never wakes: then only the fence in `checkpointed` stands between the two.
    """
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()

    def published(incarnation: int) -> set[Any]:
        return {path.name for path in ckpt.glob(f"{incarnation}-*")}

    old = start(tmp_path / "fence", python(WRITER, ckpt))
    wait_until(lambda: len(published(1)) > 3)
    frozen = session(old.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    new = start(tmp_path / "fence", python(WRITER, ckpt), incarnation=2)
    try:
        wait_until(lambda: published(2))
        before = published(1)
        for pid in frozen:
            if with_launcher or pid != old.pid:
                with suppress(ProcessLookupError):  # the launcher, awake before it, has ended it
                    os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not any(is_alive(pid) for pid in frozen if pid != old.pid))
        seen = len(published(2))
        wait_until(lambda: len(published(2)) > seen + 3)
        assert published(1) == before
        assert (ckpt / "latest").read_text() == "2"
        os.kill(old.pid, signal.SIGCONT)
        assert finish(old)[0] == FENCED
        new.send_signal(signal.SIGTERM)
        assert finish(new)[0] == 143
    finally:
        for pid in (*session(old.pid), *session(new.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def session(leader: int) -> list[int]:
    """All processes of a session, but for the witness of its signals: it lives as long as the launcher."""
    found = []
    for entry in os.listdir("/proc"):
        with suppress(ValueError, FileNotFoundError, ProcessLookupError):  # no process, or none any more
            is_member = os.getsid(int(entry)) == leader and is_alive(entry)
            if is_member and Path("/proc", entry, "comm").read_text().strip() != WITNESS:
                found.append(int(entry))
    return found


def test_identity_of_a_slurm_task(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"}
    srun = {"SLURM_SRUN_COMM_HOST": "10.0.0.1", "SLURM_SRUN_COMM_PORT": "40000", "SLURM_STEP_ID": "0"}
    one, same = identify(slurm | srun, tmp_path), identify(slurm | srun, tmp_path)
    assert one == same
    assert (one.job_id, one.incarnation, one.directory) == ("12", 2, tmp_path / ".perdure" / "12")
    other = identify(slurm | srun | {"SLURM_SRUN_COMM_PORT": "40001"}, tmp_path)
    assert other.name != one.name
    assert identify(slurm, tmp_path).name == identify(slurm, tmp_path).name not in ("", one.name)
    assert identify(slurm | {"SLURM_JOB_START_TIME": "1790000000"}, tmp_path).incarnation == 1790000000


def test_what_another_jobs_launcher_left_in_the_environment_is_passed_over(tmp_path: Path) -> None:
    left = {"PERDURE_FENCE_DIR": "/elsewhere", "PERDURE_FENCE_TOKEN": "9", "PERDURE_FENCE_JOB": "11"}
    assert identify({"SLURM_JOB_ID": "12"} | left, tmp_path).directory == tmp_path / ".perdure" / "12"
    inner = identify({"SLURM_JOB_ID": "11"} | left, tmp_path)
    assert (str(inner.directory), inner.token) == ("/elsewhere", 9)


@pytest.mark.parametrize(
    "given",
    [{}, {"SLURM_JOB_ID": "1", "SLURM_RESTART_COUNT": "many"}, {"PERDURE_JOB_ID": "1", "PERDURE_INCARNATION": "²"}],
)
def test_an_environment_that_tells_nothing_is_named(tmp_path: Path, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        identify(given, tmp_path)


def test_a_launcher_within_a_launcher_uses_its_claim(tmp_path: Path) -> None:
    """Steps of one job side by side do not fence each other."""
    inner = python(LAUNCH, *python("import os; print(os.environ['PERDURE_FENCE_TOKEN'])"))
    assert finish(start(tmp_path, inner))[:2] == (0, "1\n")
