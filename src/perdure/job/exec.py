"""``perdure exec -- CMD``: run a program as one incarnation of its job, and look after it until it is over.

Why: a resource manager that gives up a frozen node starts the job elsewhere while the old processes still exist. When
the node thaws, both run. Slurm's restart count does not tell them apart safely; a claim does (`perdure.job.fence`).

What is guaranteed
- Once a newer incarnation has claimed, nothing that an older one prepares with `perdure.job.checkpointed` appears: not
  if it is frozen between any two of its instructions, nor if this launcher is dead.
- A program that writes by itself is killed, with all that descends from it, when this launcher sees the newer claim: at
  once when it is continued after a stop (it stops the program first, then looks), and else within `poll_s` seconds.
  Before that the program may have run on for some milliseconds after the thaw, and what it wrote then is written. No
  user process can close that gap; cooperation does.
- However the program ends, an exit report says how and why (`perdure.job.exit_report`), unless this launcher is killed.
- Off Linux only the program's process group is reached; processes that leave it are not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from perdure.errors import Fenced
from perdure.job import exit_report
from perdure.job.beats import BEAT_S, BEATS_DIR, BEATS_LOCAL, BeatReader
from perdure.job.ended_well import ProgramNote, ended_well_before
from perdure.job.exit_report import ExitReason, ExitReport
from perdure.job.fence import FENCE_DIR, FENCE_TOKEN, Claim, claim
from perdure.job.files import JobFiles
from perdure.job.framework import FRAMEWORK_WARNINGS, Framework, prestop_signal_of
from perdure.job.gang import Gang
from perdure.job.hang_watch import HangWatch
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, Pulse
from perdure.job.identity import FENCE_JOB, Start, Task, identify, task_of
from perdure.job.leave import LEAVE_FILE, code_left
from perdure.job.memory import oom_kills
from perdure.job.options import ExecOptions, settled
from perdure.job.output import OutputFiles, say
from perdure.job.processes import Family, adopt_orphans, children_of_this
from perdure.job.requested import ASKED_FILE, Requests
from perdure.job.service_report import ServiceReporter, has_service, teller
from perdure.job.signals import Heard, has_terminal, heard_signals
from perdure.job.starts import learnt
from perdure.job.supervisor import Ending, Supervisor, Watches
from perdure.job.walltime import EndTime, WalltimeWatch
from perdure.model.exits import STOP_HERE, ExitRequest, exit_request_of

if TYPE_CHECKING:
    from perdure.job.flight_recorder import FlightRecorder

FENCED = STOP_HERE
NOT_FOUND, NOT_RUNNABLE = 127, 126
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
OTHERS_HEARTBEAT_S = 60.0
_PR_SET_PDEATHSIG = 1
_RAISED = {
    ExitReason.EXIT: ("process.exit", 1),
    ExitReason.SIGNAL: ("process.signal", 1),
    ExitReason.HANG: ("process.hang", 1),
    ExitReason.OOM_HINT: ("process.oom", 1),
    ExitReason.WALLTIME: ("process.walltime", 4),
}  # type and severity; a newer incarnation's taking over is not a failure


def run(
    argv: Sequence[str],
    environment: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    options: ExecOptions | None = None,
    hear: Callable[[ExitReport], object] = lambda _: None,
) -> int:
    """Run a program under the fence; returns the exit code to end with.

    That is the program's own; 128 + n after signal n; 127 or 126 where it cannot be started; 93 where a newer
    incarnation holds the claim, at the start or later; 75 where it hung and was ended; and for torchrun, which ends
    with 1, the 75, 78 or 93 of the worker that failed first, where torchelastic passes that on. 0 at once, where the
    job had done all when it was put back (`perdure.job.ended_well`).

    TERM, INT, HUP, QUIT, TSTP, USR1 and USR2 are passed on to the program's process group where the program has not got
    them itself (USR1 and USR2 of torchrun to its workers that listen, else TERM to its agent), CONT once the claim has
    been looked at. The program gets ``PERDURE_FENCE_DIR`` and ``PERDURE_FENCE_TOKEN``, and standard input, output and
    error as they are; on a terminal it runs in this process's group: it may read, and Ctrl-C and Ctrl-Z reach it.
    Call it from the main thread. `hear` gets each exit report, the last one last. Raises `ConfigError` outside of a
    job, `StateError` where the fence cannot be used.
    """
    environment = os.environ if environment is None else environment
    start = identify(environment, workdir or Path.cwd())
    try:
        start = learnt(start, environment)
        held = _hold(start)
    except Fenced as err:
        say(f"perdure exec: {err}")
        return FENCED
    if (ended := ended_well_before(start, held.token, argv, environment)) is not None:
        say(_told_of(ended, start, argv))
        return 0
    options = settled(options or ExecOptions(), argv, environment)
    own_group = not has_terminal()
    with heard_signals(own_group=own_group, clock=options.clock) as heard:
        return _Run(argv, environment, start, held, options, hear).to_the_end(heard, workdir, own_group)


def _told_of(ended: ProgramNote, start: Start, argv: Sequence[str]) -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(ended.ended_s))
    again = f"To run it again: rm -r {start.directory / 'attempts'}"
    return f"perdure exec: {PurePath(argv[0]).name} ended well at {when}, and the job was put back: not run. {again}"


def _hold(start: Start) -> Claim:
    if start.token is None:
        name, cluster, start_s = start.name, start.cluster, start.start_s
        return claim(start.directory, start.job_id, start.incarnation, name, cluster=cluster, start_s=start_s)
    held = Claim(start.directory, start.token)
    held.check()
    return held


class _Run:
    """One program from its start to its exit report."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        start: Start,
        held: Claim,
        options: ExecOptions,
        hear: Callable[[ExitReport], object],
    ) -> None:
        self._argv, self._environment, self._start, self._held, self._options = argv, environment, start, held, options
        self._hear = hear
        self._task = task_of(environment)
        self._files = JobFiles.of(held.directory, held.token, self._task)
        self._error_file = Path(environment.get(ERROR_FILE) or self._files.error)
        self._started_s, self._oom_kills = time.time(), oom_kills()
        self._program = ProgramNote.of(start, argv, self._started_s)
        self._may_have_left = False
        self._watches = self._watch_out()

    def to_the_end(self, heard: Heard, workdir: Path | None, own_group: bool) -> int:
        with suppress(OSError):  # it can do without
            self._files.make()
        self._program.write(self._files.program)
        strangers = children_of_this()
        adopt_orphans()
        try:
            program = _start_program(self._argv, self._for_program(), workdir, own_group, self._ignored())
        except OSError as err:
            note = f"{self._argv[0]}: cannot be run: {err.strerror}"
            say(f"perdure exec: {note}. Check the command after --.")
            code = NOT_FOUND if isinstance(err, FileNotFoundError) else NOT_RUNNABLE
            return self._write_exit_report(Ending(ExitReason.EXIT, code, note=note), [])
        family = Family(program, strangers, own_group=own_group)
        if self._watches.is_first and has_service(
            self._environment
        ):  # not before: a fork alongside threads is not safe
            from perdure.job.listening import listen

            listen(self._start, self._files.asked, self._environment)
        try:
            guard = Supervisor(program, family, self._held, heard, self._options, self._watches)
            ending = guard.watch(lambda ending: self._note(ending, guard.told, None, is_final=False))
        finally:
            family.kill()
            program.wait()
            if self._watches.recorder:
                self._watches.recorder.end()
        if ending.reason is ExitReason.FENCED:
            say(f"perdure exec: {ending.note}")
        self._may_have_left = guard.may_leave
        return self._write_exit_report(ending, guard.told)

    def _ignored(self) -> tuple[int, ...]:
        return FRAMEWORK_WARNINGS if self._options.framework is Framework.TORCHRUN else ()

    def _for_program(self) -> dict[str, str]:
        return {
            **self._environment,
            FENCE_DIR: str(self._held.directory),
            FENCE_TOKEN: str(self._held.token),
            FENCE_JOB: self._start.job_id,
            BEATS_DIR: str(self._files.beats),
            BEAT_S: str(self._beat_s()),
            BEATS_LOCAL: str(self._local_rank()),
            ERROR_FILE: str(self._error_file),
            ASKED_FILE: str(self._files.asked),
            LEAVE_FILE: str(self._files.leave),
            **(self._watches.recorder.variables() if self._watches.recorder else {}),
        }

    def _local_rank(self) -> int:
        """That of the process that beats: torchrun numbers its own."""
        return 0 if self._options.framework is Framework.TORCHRUN else self._task.local_rank or 0

    def _beat_s(self) -> float:
        seldom = self._local_rank() and not self._options.hang.is_exact
        return max(self._options.beat_s, OTHERS_HEARTBEAT_S) if seldom else self._options.beat_s

    def _watch_out(self) -> Watches:
        options, now = self._options, self._options.clock()
        gang = Gang(self._files, self._task, self._environment)
        nudge = prestop_signal_of(options.framework, self._environment)
        if options.warn_signal is not None:
            nudge = replace(nudge, signum=options.warn_signal)
        handover = options.handover
        if handover is None:
            walltime = WalltimeWatch(EndTime(self._environment, self._files.end_time), options.warn_s)
        else:
            from perdure.job.handover import MovedEnd

            walltime, nudge = WalltimeWatch(MovedEnd(handover), handover.grace_s), handover.nudge(nudge)
        return Watches(
            hang=HangWatch(options.hang, BeatReader(self._files.beats), OutputFiles(), now, options.clock),
            walltime=walltime,
            nudge=nudge,
            pulse=Pulse(self._files.heartbeat, _first_heartbeat(self._start, self._held, self._task, options)),
            raiser=ServiceReporter(teller(self._start, self._task, self._environment)),
            files=self._files,
            requests=Requests(self._files.asked if has_service(self._environment) else None),
            is_first=not self._task.rank and self._start.token is None,
            gang=gang,
            task=self._task,
            recorder=self._flight_recorder(gang),
        )

    def _flight_recorder(self, gang: Gang) -> FlightRecorder | None:
        if not (self._options.hang.is_exact and self._options.hang.after_s):
            return None
        from perdure.job.flight_recorder import FlightRecorder  # only here: most programs are watched without it

        return FlightRecorder(gang.directory, self._environment, self._start.job_id)

    def _write_exit_report(self, ending: Ending, told: Sequence[str]) -> int:
        """Leave the exit report, tell the service; returns the exit code to end with."""
        error = exit_report.torchelastic_error(self._error_file, self._started_s)
        report = self._note(self._understood(ending, error), told, error, is_final=True)
        replace(self._program, ended_s=report.ended_s, is_good_end=self._is_good_end(report)).write(self._files.program)
        self._watches.pulse.end(step=report.step)
        if report.exit_code and report.reason in (ExitReason.EXIT, ExitReason.SIGNAL, ExitReason.OOM_HINT):
            self._watches.gang.fail(report.exit_code, report.signal)
        if report.exit_code and report.reason in _RAISED:
            type_, severity = _RAISED[report.reason]
            note = f"exit code {report.exit_code}" + (f": {report.note}" if report.note else "")
            self._watches.raiser.raise_(type_, severity=severity, note=note)
        self._watches.raiser.finish()
        return report.exit_code

    def _is_good_end(self, report: ExitReport) -> bool:
        """Whether it ended well, and nobody had asked it to end: then there is nothing left to do."""
        is_own = report.reason is ExitReason.EXIT and not self._may_have_left and report.warned_s is None
        is_asked = self._options.handover is not None or self._files.asked.exists() or self._files.leave.exists()
        return not report.exit_code and is_own and not is_asked

    def _note(self, ending: Ending, told: Sequence[str], error: Any, *, is_final: bool) -> ExitReport:
        report = replace(self._build_exit_report(ending, told, error), is_final=is_final)
        with suppress(OSError):
            exit_report.write(self._files.exit_report, report)
        self._hear(report)
        return report

    def _understood(self, ending: Ending, error: Any) -> Ending:
        """The ending, with what the guard cannot see: the kernel's kills, and what a worker asked of torchrun."""
        if ending.reason not in (ExitReason.EXIT, ExitReason.SIGNAL, ExitReason.WALLTIME) or not ending.exit_code:
            return ending
        asked = code_left(self._files.leave, time.time()) or exit_report.code_of_worker(error)
        is_torchrun = self._options.framework is Framework.TORCHRUN
        if is_torchrun and ending.exit_code == 1 and exit_request_of(asked) is not ExitRequest.NONE:
            return replace(ending, exit_code=asked, note=ending.note or "a worker asked for it")
        if ending.reason is not ExitReason.WALLTIME and (kills := oom_kills() - self._oom_kills) > 0:
            return replace(ending, reason=ExitReason.OOM_HINT, note=f"killed for lack of memory meanwhile: {kills}")
        return ending

    def _build_exit_report(self, ending: Ending, told: Sequence[str], error: Any) -> ExitReport:
        walltime, hang, task = self._watches.walltime, self._watches.hang, self._task
        return ExitReport(
            job_id=self._start.job_id,
            incarnation=self._start.incarnation,
            token=self._held.token,
            node=task.node,
            host=task.host,
            pid=task.pid,
            reason=ending.reason,
            exit_code=ending.exit_code,
            started_s=self._started_s,
            ended_s=time.time(),
            program=PurePath(self._argv[0]).name,
            signal=ending.signal,
            told=tuple(told),
            wish=exit_request_of(ending.exit_code),
            rank=task.rank,
            local_rank=task.local_rank,
            step_id=self._environment.get("SLURM_STEP_ID", ""),
            step=hang.last_step(),
            silent_s=hang.silent_s(self._options.clock()),
            warned_s=walltime.warned_s,
            walltime_end_s=walltime.end_s,
            note=ending.note,
            error=error,
        )


def _first_heartbeat(start: Start, held: Claim, task: Task, options: ExecOptions) -> Heartbeat:
    return Heartbeat(
        source=HeartbeatSource.JOB,
        node=task.node,
        host=task.host,
        pid=task.pid,
        count=0,
        time_s=0.0,
        every_s=max(options.heartbeat_s, OTHERS_HEARTBEAT_S) if task.local_rank else options.heartbeat_s,
        job_id=start.job_id,
        incarnation=start.incarnation,
        token=held.token,
        rank=task.rank,
    )


def _start_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    workdir: Path | None,
    own_group: bool,
    ignored: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        env=dict(environment),
        cwd=workdir,
        process_group=0 if own_group else -1,
        preexec_fn=_prepare(ignored),
    )


def _prepare(ignored: Sequence[int]) -> Callable[[], None]:
    """What the program's process does before it begins: it ignores these signals until it has a handler for them.

    On Linux it is killed where this launcher is; elsewhere nothing like that exists.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    launcher = os.getpid()

    def ask() -> None:
        for signum in ignored:
            signal.signal(signum, signal.SIG_IGN)
        if libc is None:
            return
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it was killed before we could ask
            os._exit(128 + signal.SIGKILL)

    return ask
