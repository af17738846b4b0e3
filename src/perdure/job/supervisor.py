"""The watch over one running program: its claim, the signals that come for it, its signs of life, its walltime."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.errors import Fenced
from perdure.job.exit_report import ExitReason
from perdure.job.fence import Claim
from perdure.job.files import JobFiles
from perdure.job.framework import FRAMEWORK_WARNINGS, Framework, PrestopSignal
from perdure.job.gang import Gang
from perdure.job.hang_response import HangResponse
from perdure.job.hang_watch import HangWatch
from perdure.job.heartbeat import Pulse
from perdure.job.identity import Task
from perdure.job.options import ExecOptions
from perdure.job.output import say
from perdure.job.processes import Family, listens
from perdure.job.requested import PAUSE, Request, Requests
from perdure.job.service_report import ServiceReporter
from perdure.job.signals import FORWARDED, Heard
from perdure.job.silence import Tier
from perdure.job.walltime import WalltimeWatch
from perdure.model.exits import OURS, RETRY_ME, STOP_HERE, WALLTIME_SAID, WALLTIME_TOLD

if TYPE_CHECKING:
    from perdure.job.flight_recorder import FlightRecorder

_JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
AGAIN_S = 1.0  # until a warning that nobody listened to is given again
STALL_S = 1.0  # silence of this launcher that may have been a freeze of the whole machine


@dataclass(frozen=True, slots=True)
class Ending:
    """How it came to an end."""

    reason: ExitReason
    exit_code: int
    signal: int = 0  # that ended the program
    note: str = ""


@dataclass(frozen=True, slots=True)
class Watches:
    """What is looked at from time to time, and who hears of it."""

    hang: HangWatch
    walltime: WalltimeWatch
    nudge: PrestopSignal
    pulse: Pulse
    raiser: ServiceReporter
    files: JobFiles
    requests: Requests
    is_first: bool  # of its start: it says what concerns all
    gang: Gang
    task: Task
    recorder: FlightRecorder | None = None


class Supervisor:
    """Watches one program and one claim until either is over. `told` are the signals that came for the program."""

    def __init__(
        self,
        program: subprocess.Popen[bytes],
        family: Family,
        held: Claim,
        heard: Heard,
        options: ExecOptions,
        watches: Watches,
    ) -> None:
        self._program, self._family, self._held, self._heard = program, family, held, heard
        self._options, self._watches = options, watches
        self._stopped_s: float | None = None
        self._look_s = 0.0
        self._is_unheard, self._is_paused = False, False
        self._standstill = HangResponse(
            family, watches.hang, watches.gang, watches.task, watches.raiser, watches.files.hang, options,
            watches.recorder,
        )  # fmt: skip
        self.told: list[str] = []
        self.may_leave = False  # a signal has come that the program may have ended well for, with work left
        self._hears_term = False

    def watch(self, foresee: Callable[[Ending], object]) -> Ending:
        """Return how it ended; what the program has left running is the caller's to end.

        `foresee` hears of the end that is to be expected, where it is told to end from outside: whoever says so may
        kill this launcher too before the program has ended.
        """
        looked_s = time.monotonic()  # not the clock of the options: a freeze of this machine is meant
        while True:
            came = self._heard(self._options.poll_s)
            away_s = time.monotonic() - looked_s - self._options.poll_s
            was_away = signal.SIGCONT in came.signals or away_s > STALL_S
            if was_away:  # not one more step of the program before the claim has been looked at
                self._family.signal_all(signal.SIGSTOP)
            over = has_exited(self._program)
            self._hears_term = self._hears_term or listens(self._program.pid, signal.SIGTERM)
            try:
                self._check_claim()
            except Fenced as err:
                return Ending(ExitReason.FENCED, STOP_HERE, note=str(err))
            if was_away:
                self._resume(away_s)
            for signum in came.signals.intersection(FORWARDED):
                self._take_note(signum)
            for signum in came.alone:
                self._pass_on(signum)
            if signal.SIGTERM in came.signals and not over:
                foresee(self._ending(-signal.SIGTERM))
            if over:
                return self._ended()
            if signal.SIGCHLD in came.signals and self._family.is_on_terminal:
                self._stop_along()
            self._family.reap_orphans()
            if self._look(self._options.clock()) is Tier.KILL:
                say("perdure exec: it did not end: it is killed")
                return Ending(ExitReason.HANG, RETRY_ME, signal.SIGKILL, self._standstill.ended_why)
            looked_s = time.monotonic()

    def _check_claim(self) -> None:
        try:
            self._held.check()
        except Fenced:
            raise
        except OSError:
            return  # a file system that cannot be asked now is asked again; nothing can be published on it meanwhile

    def _resume(self, away_s: float) -> None:
        """Resume the program unless it is to pause; while it was stopped it could give no sign of life."""
        if self._is_paused:
            return
        stood_s = max(0.0, away_s) if self._stopped_s is None else self._options.clock() - self._stopped_s
        self._stopped_s = None
        self._watches.hang.skip(stood_s)
        self._family.signal_all(signal.SIGCONT)

    def _stop_along(self) -> None:
        """Stop where job control has stopped the program: the shell sees its job stopped, and continues all of it."""
        if stopped_by(self._program) in _JOB_CONTROL:
            self._stopped_s = self._stopped_s or self._options.clock()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _take_note(self, signum: int) -> None:
        """A signal has come, for this launcher alone or for the program too."""
        name = signal.Signals(signum).name.removeprefix("SIG")
        if name not in self.told:
            self.told.append(name)
        if signum != signal.SIGTERM or self._hears_term or self._family.listeners(signum):
            self.may_leave = True  # one that does not hear TERM ends badly of it, or had ended before
        if signum != signal.SIGTSTP:
            self._go_on(f"{name} has come for it")
        elif self._stopped_s is None:
            self._stopped_s = self._options.clock()
        if self._is_for_workers(signum) and not self._family.listeners(signum):
            self._nudge()

    def _is_for_workers(self, signum: int) -> bool:
        return signum in FRAMEWORK_WARNINGS and self._options.framework is Framework.TORCHRUN

    def _pass_on(self, signum: int) -> None:
        """Hand a signal to the program; warnings of the resource manager to torchrun's workers that listen."""
        if self._is_for_workers(signum):
            self._family.signal_listeners(signum)
        else:
            self._family.signal_group(signum)

    def _look(self, now: float) -> Tier | None:
        """Look for signs of life and at the walltime, where it is time to; act on what is found."""
        if now < self._look_s:
            return None
        soon_s = AGAIN_S if self._is_unheard else self._watches.walltime.due_s(time.time())
        self._look_s = now + min(self._options.look_s, soon_s)
        self._act_on_requests(now)
        hang = self._watches.hang
        tier = self._standstill.look(now) if self._stopped_s is None else None
        self._watches.pulse.beat(now, step=hang.step, silent_s=hang.silent_s(now), log_silent_s=hang.log_silent_s(now))
        if self._watches.walltime.look(time.time()):
            self._warn()
        elif self._is_unheard:
            self._warn_again()
        return tier

    def _act_on_requests(self, now: float) -> None:
        """Act on the service's requests in the way that the job's user has chosen."""
        requests = self._watches.requests
        for request in requests.look(now).begun:
            did = self._obey(request)
            if did or self._watches.is_first:
                say(f"perdure exec: the job is asked to {request.kind}, {request.note}{did}")
        if not self._is_paused:
            return
        if PAUSE in requests.kinds():
            self._family.signal_all(signal.SIGSTOP)  # also what was just being started
        else:
            self._go_on("that is over")

    def _obey(self, request: Request) -> str:
        """Returns what was done, to be said."""
        signum = self._options.pause_signal
        if request.kind != PAUSE or signum is None:
            return ""
        if signum != signal.SIGSTOP:
            count = self._family.signal_listeners(signum)
            return f": {signal.Signals(signum).name} sent to {count} of its processes"
        self._is_paused = True
        self._stopped_s = self._options.clock() if self._stopped_s is None else self._stopped_s
        self._family.signal_all(signal.SIGSTOP)
        return ": the program is stopped until that is over"

    def _go_on(self, why: str) -> None:
        """Resume a program that is stopped because it was to pause."""
        if self._is_paused:
            self._is_paused = False
            self._resume(0.0)
            say(f"perdure exec: the program goes on: {why}")

    def _warn(self) -> None:
        self._go_on("walltime is near")
        said = self._say_what_is_left(self._nudge())
        self._watches.raiser.raise_("app.walltime", severity=4, note=said.removeprefix(OURS))

    def _warn_again(self) -> None:
        """Where nobody listened to the warning: some may listen now, such as workers that have just started."""
        if count := self._nudge():
            self._say_what_is_left(count)

    def _say_what_is_left(self, count: int) -> str:
        left_s, step = self._watches.walltime.left_s(time.time()), self._watches.hang.step
        name = signal.Signals(self._watches.nudge.signum).name
        told = f"{name} {WALLTIME_TOLD} {count} of its processes"
        if not count:
            told = f"no process of the program listens to {name}"
        at = "" if step is None else f", last at step {step}"
        asked = "" if self._options.handover is None else self._options.handover.told
        said = f"{WALLTIME_SAID}{left_s:.0f} s{at}: {told}{asked}"
        say(said)
        return said

    def _nudge(self) -> int:
        """Say that the end is near to those who listen, however many; where none does yet, it is said again.

        An agent that would end its workers is told when there is no more time to wait for them to listen.
        """
        nudge, walltime = self._watches.nudge, self._watches.walltime
        spares = nudge.spares_launchers
        count = self._family.warn(nudge.signum, workers=nudge.workers, spares_launchers=spares)
        if not count and nudge.workers and not walltime.has_time(time.time()):
            count = self._family.warn(nudge.signum, spares_launchers=spares)
        self._is_unheard = not count
        if self._options.handover is not None:
            self._options.handover.answer(count)
        return count

    def _ended(self) -> Ending:
        self._family.signal_group(signal.SIGKILL)  # what it left running would be without a guard
        return self._ending(self._program.wait())

    def _ending(self, status: int) -> Ending:
        """What it means that the program ends with this status; negative: by that signal."""
        ended_by = max(0, -status)
        if self._standstill.ended_why:
            return Ending(ExitReason.HANG, RETRY_ME, ended_by, self._standstill.ended_why)
        code = status if status >= 0 else 128 - status
        if self._watches.walltime.explains(bool(self.told), time.time()):
            return Ending(ExitReason.WALLTIME, code, ended_by, "walltime was near")
        return Ending(ExitReason.SIGNAL if ended_by else ExitReason.EXIT, code, ended_by)


def has_exited(program: subprocess.Popen[bytes]) -> bool:
    """Whether it is over, without giving up its number where the system can tell."""
    waitid: Any = getattr(os, "waitid", None)
    if waitid is None:
        return program.poll() is not None
    return waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stopped_by(program: subprocess.Popen[bytes]) -> int:
    """The signal that has stopped it since the last call; 0 where none has, or the system cannot tell."""
    waitid: Any = getattr(os, "waitid", None)
    if waitid is None:
        return 0
    stopped = waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOHANG)
    return 0 if stopped is None else int(stopped.si_status)
