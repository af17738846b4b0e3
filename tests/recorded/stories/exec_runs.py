"""``perdure exec`` with a played program: signals come, it beats or falls silent, walltime nears, others take over.

A case is some starts of one job in one directory; the fence and all files are real.
"""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure.errors import PerdureError
from perdure.hangs.rank_state import Life, RankState
from perdure.job import exec as job_exec
from perdure.job import requested
from perdure.job.background import BackgroundRun
from perdure.job.beats import SCHEMA as BEAT_SCHEMA
from perdure.job.exit_report import ExitReport
from perdure.job.fence import claim
from perdure.job.files import JobFiles, write_json
from perdure.job.leave import SCHEMA as LEAVE_SCHEMA
from perdure.job.options import ExecOptions
from perdure.job.output import OutputFiles
from perdure.job.signals import FORWARDED, Came
from perdure.job.silence import HangRule
from tests.copying import replace
from tests.recorded.drawn import NOW, in_words

CASES, STARTS, ROUNDS = 80, 3, 50
COMMANDS = (("train", "--lr", "1"), ("train", "--lr", "1"), ("torchrun", "train.py"))
STATUSES = (0, 0, 0, 1, 1, 75, 78, 93, -9, -15, -11)
CAME = (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGTSTP, signal.SIGINT)
LIVES = tuple(Life)


class _Program:
    """Stands for a process: `status` is None while it runs."""

    pid = 4711

    def __init__(self) -> None:
        self.status: int | None = None

    def wait(self) -> int:
        return 0 if self.status is None else self.status

    def poll(self) -> int | None:
        return self.status


class _World:
    """What happens while a program runs."""

    def __init__(self, rng: Random, folder: Path) -> None:
        self.rng, self.folder, self.now, self.steady_s = rng, folder, NOW, 0.0
        self.told: list[str] = []
        self.program = _Program()
        self.listens: list[int] = []
        self.files: JobFiles | None = None
        self.kills, self.rounds, self.step = 0, 0, 0

    def note(self, *words: object) -> None:
        self.told.append(" ".join(map(str, words)))

    def heard(self, poll_s: float) -> Came:
        """One round: time passes, and maybe something happens."""
        rng = self.rng
        self.rounds += 1
        self.now += rng.choice((poll_s, poll_s, 2.0, 10.0, 40.0))
        self.steady_s += poll_s + (5.0 if rng.random() < 0.07 else 0.0)  # a freeze of the machine
        if self.rounds >= ROUNDS:
            self.program.status = 0
        came = {rng.choice(CAME)} if rng.random() < 0.15 else set[int]()
        with contextlib.suppress(OSError, PerdureError):
            self._happens(rng.choice("bbbbbbllqsnnnnnoraxuwe"))
        if self.program.status is not None:
            came.add(signal.SIGCHLD)
        alone = frozenset(came & set(FORWARDED)) if rng.random() < 0.8 else frozenset[int]()
        return Came(frozenset(came), alone)

    def _happens(self, what: str) -> None:
        rng, files = self.rng, self.files
        if files is None:
            return
        if what == "b":
            self.step += 1
            said = {"step": self.step, "quiet_s": rng.choice((0.0, 0.0, 0.0, 300.0)), "rank": None}
            write_json(files.beats / "n1.json", {"schema": BEAT_SCHEMA, **said})
        elif what == "l":
            with (self.folder / "log").open("a" if rng.random() < 0.8 else "w") as log:
                log.write(rng.choice(("step 7 of 9\n", "a line\n")))
        elif what == "q" and rng.random() < 0.4:
            self.program.status = rng.choice(STATUSES)
        elif what == "s":
            self.listens = rng.choice(([], [4711], [4711, 4712]))
        elif what == "a":
            asked = [requested.Request("x-1", rng.choice(("pause", "pause", "throttle")), "a note")]
            requested.write(files.asked, asked if rng.random() < 0.6 else [], self.rounds)
        elif what == "x" and rng.random() < 0.15:
            claim(files.directory.parents[2], "7", rng.choice((5, 9)), start_s=int(self.now))
        elif what == "u":
            self.kills += rng.random() < 0.3
        elif what == "e" and rng.random() < 0.3:
            code = rng.choice((75, 78, 93, 1))
            write_json(files.leave, {"schema": LEAVE_SCHEMA, "exit_code": code, "time_s": self.now, "why": "because"})

    def sights(self) -> list[RankState]:
        """What is seen of the program's processes."""
        rng = self.rng
        stack = rng.choice(((), ("all_reduce", "train")))
        return [RankState(None, "n1", rng.choice(LIVES), rng.choice(("", "all_reduce")), stack=stack)]


class _Family:
    """Notes what is sent to the program's processes."""

    is_on_terminal = False

    def __init__(self, world: _World) -> None:
        self._world = world

    def members(self) -> list[int]:
        return [4711, 4712]

    def signal_group(self, signum: int) -> None:
        self._world.note("group", int(signum))
        if signum == signal.SIGTERM and self._world.rng.random() < 0.4:
            self._world.program.status = self._world.rng.choice((-15, 0, 143))

    def signal_all(self, signum: int) -> None:
        self._world.note("all", int(signum))

    def signal_listeners(self, signum: int) -> int:
        self._world.note("listeners", int(signum))
        return len(self._world.listens)

    def listeners(self, signum: int) -> list[int]:
        return self._world.listens

    def warn(self, signum: int, *, workers: bool = False, spares_launchers: bool = False) -> int:
        self._world.note("warn", int(signum), workers, spares_launchers)
        return len(self._world.listens)

    def kill(self) -> None:
        self._world.note("kill")

    def reap_orphans(self) -> None:
        """There are none."""


def story(_case: int, rng: Random) -> Iterator[str]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # hundreds of files: a disk takes its time
    with tempfile.TemporaryDirectory(dir=memory) as name, pytest.MonkeyPatch.context() as patch:
        world = _World(rng, Path(name))
        _play(world, patch)
        options = _options(world)
        lines = [line for number in range(STARTS) for line in _start(world, options, number)]
    return iter([line.replace(name, "/job") for line in lines])


def _play(world: _World, patch: pytest.MonkeyPatch) -> None:
    for module in ("exec", "supervisor", "hang_response", "service_report"):
        patch.setattr(f"perdure.job.{module}.say", lambda text: world.note("said", text))
    patch.setattr("time.time", lambda: world.now)
    patch.setattr("time.monotonic", lambda: world.steady_s)
    patch.setattr("os.fsync", lambda _: None)
    patch.setattr(BackgroundRun, "start", at_once)
    patch.setattr("perdure.job.exec._start_program", lambda *_: _begun(world))
    patch.setattr("perdure.job.exec.Family", lambda *_, **__: _Family(world))
    patch.setattr("perdure.job.exec.heard_signals", lambda **_: contextlib.nullcontext(world.heard))
    patch.setattr("perdure.job.exec.adopt_orphans", lambda: None)
    patch.setattr("perdure.job.exec.oom_kills", lambda: world.kills)
    patch.setattr("perdure.job.exec.has_terminal", lambda: False)
    patch.setattr("perdure.job.exec.OutputFiles", lambda: OutputFiles(()))
    patch.setattr("perdure.job.listening.listen", lambda *_: world.note("listens to the service"))
    patch.setattr("perdure.job.exec.teller", lambda *_: lambda *words, **more: world.note("raises", words, more))
    patch.setattr("perdure.job.service_report.threading.Thread", _NoThread)
    patch.setattr("perdure.job.supervisor.has_exited", lambda program: program.status is not None)
    patch.setattr("perdure.job.supervisor.listens", lambda pid, signum: pid in world.listens)
    patch.setattr("perdure.job.hang_response.files_of", lambda *_, **__: [str(world.folder / "log")])
    patch.setattr("perdure.job.hang_response.own_logs_of", lambda _: [])
    patch.setattr("perdure.job.inspection.look_at", lambda *_: world.sights())


class _NoThread:
    """A thread that has ended before anything else happens."""

    def __init__(self, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
        self._work = lambda: target(*args)

    def start(self) -> None:
        self._work()

    def join(self, seconds: float) -> None:
        """It is over."""


def at_once(self: BackgroundRun[Any], now: float, every_s: float = 0.0) -> None:
    if now - self._begun_s >= every_s:
        self._begun_s = now
        self._run()


def _begun(world: _World) -> _Program:
    world.program, world.rounds = _Program(), 0
    found = sorted((world.folder / ".perdure").glob("*/*/attempts/*/*/beats"), key=lambda path: int(path.parts[-3]))
    world.files = JobFiles(found[-1].parent) if found else None
    return world.program


def _options(world: _World) -> ExecOptions:
    rng = world.rng
    rule = HangRule(
        after_s=rng.choice((0.0, 60.0, 60.0, 300.0)), is_exact=rng.random() < 0.3, min_gaps=rng.choice((2, 10)),
        soft_s=20.0, grace_s=30.0, start_within_s=rng.choice((None, None, 120.0)),
    )  # fmt: skip
    return ExecOptions(
        hang=rule, warn_s=rng.choice((None, 120.0)), warn_signal=rng.choice((None, signal.SIGUSR1)),
        pause_signal=rng.choice((None, signal.SIGSTOP, signal.SIGUSR2)), clock=lambda: world.now,
    )  # fmt: skip


def _start(world: _World, options: ExecOptions, number: int) -> Iterator[str]:
    rng = world.rng
    environment = {
        "PERDURE_JOB_ID": "7", "SLURM_RESTART_COUNT": str(number),
        "PERDURE_INCARNATION": str(number + rng.choice((1, 1, 1, 2, 3))),
        "PERDURE_CLUSTER": "c", "SLURM_JOB_END_TIME": str(int(world.now) + rng.choice((60, 400, 9000))),
    }  # fmt: skip
    if rng.random() < 0.5:
        environment["PERDURE_SOCKET"] = "/nowhere"
    reports: list[ExitReport] = []
    try:
        code = f"{job_exec.run(rng.choice(COMMANDS), environment, world.folder, options, reports.append)}"
    except PerdureError as err:
        code = f"{err}"
    yield from world.told
    world.told.clear()
    for report in reports:
        yield in_words(replace(report, host="", pid=0, node=""))
    pulse = world.files.heartbeat.read_text() if world.files and world.files.heartbeat.exists() else ""
    yield f"ends with {code}; its heart: {re.sub(r'.(host|node|pid).: [^,}]*', '', pulse)}"
