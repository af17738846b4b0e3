"""``perdure exec -- CMD``: run a program as one incarnation of its job, and end it when a newer one has taken over.

Why: a resource manager that gives up a frozen node starts the job elsewhere while the old processes still exist. When
the node thaws, both run. Slurm's restart count does not tell them apart safely; a claim does (`perdure.job.fence`).

What is guaranteed
- Once a newer incarnation has claimed, nothing that an older one prepares with `perdure.job.checkpointed` appears: not
  if it is frozen between any two of its instructions, nor if this launcher is dead.
- A program that writes by itself is killed, with all in its process group, when this launcher sees the newer claim: at
  once when it is continued after a stop (it stops the program first, then looks), and else within `poll_s` seconds.
  Before that the program may have run on for some milliseconds after the thaw, and what it wrote then is written. No
  user process can close that gap; cooperation does.
- Processes that leave the group (daemons) are out of reach.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.errors import ConfigError, Fenced
from perdure.job.fence import FENCE_DIR, FENCE_TOKEN, Claim, claim

FENCED = 93  # "do not restart me", as NVIDIA's resiliency extension means it too
NOT_FOUND, NOT_RUNNABLE = 127, 126
POLL_S = 0.2
STALL_S = 1.0  # silence of this launcher that may have been a freeze of the whole machine
FENCE_JOB = "PERDURE_FENCE_JOB"
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Start:
    """Which start of which job this is; `name` is shared by all ranks of one start."""

    job_id: str
    incarnation: int
    name: str
    directory: Path
    token: int | None = None  # claimed already, by a launcher around this one


def identify(environment: Mapping[str, str], workdir: Path) -> Start:
    """Read from a task's environment which start it belongs to.

    The incarnation is ``PERDURE_INCARNATION``, or for Slurm ``SLURM_JOB_START_TIME``, or where that is too old to say
    so the restart count: then the `srun` that started the task tells starts apart, and of two starts with one count
    the later claim wins. Variables of a launcher in another job, inherited by submitting from within, are passed over.

    Raises `ConfigError` outside of a job and for numbers that are none.
    """
    job_id = environment.get("PERDURE_JOB_ID") or environment.get("SLURM_JOB_ID")
    if not job_id:
        what = "neither PERDURE_JOB_ID nor SLURM_JOB_ID is set"
        raise ConfigError("perdure exec", what, "Run it inside a job")
    incarnation, name = _incarnation(environment)
    launcher_job = environment.get(FENCE_JOB, job_id)
    directory = environment.get(FENCE_DIR) if launcher_job == job_id else None
    token = environment.get(FENCE_TOKEN) if launcher_job == job_id and directory else None
    return Start(
        job_id=job_id,
        incarnation=incarnation,
        name=name,
        directory=Path(workdir, directory or Path(".perdure", job_id)).absolute(),
        token=_number(FENCE_TOKEN, token) if token else None,
    )


def _incarnation(environment: Mapping[str, str]) -> tuple[int, str]:
    for variable in ("PERDURE_INCARNATION", "SLURM_JOB_START_TIME"):
        if value := environment.get(variable):
            return _number(variable, value), ""
    count = _number("SLURM_RESTART_COUNT", environment.get("SLURM_RESTART_COUNT") or "0")
    srun = [environment.get(name, "") for name in ("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_STEP_ID")]
    return count, ":".join(srun) if all(srun) else uuid.uuid4().hex


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(variable, f"{text!r} is no whole number", "Leave it as the resource manager has set it")
    return int(text)


def run(
    argv: Sequence[str],
    environment: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    *,
    poll_s: float = POLL_S,
) -> int:
    """Run a program under the fence; returns the exit code to end with.

    That is the program's own; 128 + n after signal n; 127 or 126 where it cannot be started; 93 where a newer
    incarnation holds the claim, at the start or later. TERM, INT, HUP, QUIT, TSTP, USR1 and USR2 are passed on to the
    program's process group, CONT once the claim has been looked at. The program gets ``PERDURE_FENCE_DIR`` and
    ``PERDURE_FENCE_TOKEN``; a terminal as standard input is kept from it, since it runs in the background of one.
    Call it from the main thread. Raises `ConfigError` outside of a job, `StateError` where the fence cannot be used.
    """
    environment = os.environ if environment is None else environment
    start = identify(environment, workdir or Path.cwd())
    try:
        held = _hold(start)
    except Fenced as err:
        return _fenced(err)
    ours = {FENCE_DIR: str(held.directory), FENCE_TOKEN: str(held.token), FENCE_JOB: start.job_id}
    with _heard_signals() as heard:
        try:
            child = _start_program(argv, {**environment, **ours}, workdir)
        except OSError as err:
            _say(f"perdure exec: {argv[0]}: cannot be run: {err.strerror}. Check the command after --.")
            return NOT_FOUND if isinstance(err, FileNotFoundError) else NOT_RUNNABLE
        try:
            return _Guard(child, held, heard, poll_s).watch()
        finally:
            _signal_group(child, signal.SIGKILL)
            child.wait()


def _hold(start: Start) -> Claim:
    if start.token is None:
        return claim(start.directory, start.job_id, start.incarnation, start.name)
    held = Claim(start.directory, start.token)
    held.check()
    return held


class _Guard:
    """Watches one program and one claim until either is over."""

    def __init__(
        self, child: subprocess.Popen[bytes], held: Claim, heard: Callable[[float], set[int]], poll_s: float
    ) -> None:
        self._child, self._held, self._heard, self._poll_s = child, held, heard, poll_s

    def watch(self) -> int:
        """Return the exit code to end with."""
        looked_s = time.monotonic()
        while True:
            signals = self._heard(self._poll_s)
            was_away = signal.SIGCONT in signals or time.monotonic() - looked_s > self._poll_s + STALL_S
            if was_away:  # not one more step of the program before the claim has been looked at
                _signal_group(self._child, signal.SIGSTOP)
            over = _has_exited(self._child)
            try:
                self._look()
            except Fenced as err:
                _signal_group(self._child, signal.SIGKILL)
                return _fenced(err)
            if was_away:
                _signal_group(self._child, signal.SIGCONT)
            for signum in signals.intersection(FORWARDED):
                _signal_group(self._child, signum)
            looked_s = time.monotonic()
            if over:
                _signal_group(self._child, signal.SIGKILL)  # what it left running would be without a guard
                status = self._child.wait()
                return status if status >= 0 else 128 - status

    def _look(self) -> None:
        try:
            self._held.check()
        except Fenced:
            raise
        except OSError:
            return  # a file system that cannot be asked now is asked again; nothing can be published on it meanwhile


def _start_program(
    argv: Sequence[str], environment: Mapping[str, str], workdir: Path | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        env=dict(environment),
        cwd=workdir,
        stdin=subprocess.DEVNULL if sys.stdin is not None and sys.stdin.isatty() else None,
        process_group=0,
        preexec_fn=_die_with_launcher(),
    )


def _die_with_launcher() -> Callable[[], None] | None:
    """On Linux: the program is killed where this launcher is. Elsewhere nothing like it exists."""
    if sys.platform != "linux":
        return None
    libc: Any = ctypes.CDLL(None)
    launcher = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it was killed before we could ask
            os._exit(128 + signal.SIGKILL)

    return ask


@contextmanager
def _heard_signals() -> Iterator[Callable[[float], set[int]]]:
    """Inside the block signals only leave a note; the function given waits for some and returns which came."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    listened = (*FORWARDED, signal.SIGCONT, signal.SIGCHLD)
    previous = {signum: signal.signal(signum, _note) for signum in listened}

    def wait(timeout_s: float) -> set[int]:
        select.select([reader], [], [], timeout_s)
        try:
            return set(os.read(reader, 4096))
        except BlockingIOError:
            return set()

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(previous_fd)
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        os.close(reader)
        os.close(writer)


def _note(signum: int, frame: FrameType | None) -> None:
    """The wake-up is the note."""


def _has_exited(child: subprocess.Popen[bytes]) -> bool:
    """Whether the program is over, without giving up its number where the system can tell."""
    waitid: Any = getattr(os, "waitid", None)
    if waitid is None:
        return child.poll() is not None
    return waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(child: subprocess.Popen[bytes], signum: int) -> None:
    if child.returncode is not None:  # reaped: its number may be somebody else's
        return
    try:
        os.killpg(child.pid, signum)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left; macOS says "not permitted" of a group of zombies


def _fenced(err: Fenced) -> int:
    _say(f"perdure exec: {err}")
    return FENCED


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
