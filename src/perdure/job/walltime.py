"""When the allocation ends, and the moment to say so to the program.

The end is ``SLURM_JOB_END_TIME``, or where Slurm does not set that (22.05) what ``squeue`` says. One task of a start
asks and writes the answer down for the others, so that a thousand ranks are one question to the controller. Before the
program is told, the end is looked up once more: limits are changed while jobs run.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from perdure.errors import InputError
from perdure.job.background import BackgroundRun
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json

SCHEMA = "perdure.end-time/1"
_ASK_TIMEOUT_S = 15.0  # a controller that is down is given up by squeue itself after 9 s
_ASK_EVERY_S = 60.0  # an answer as old as this is still believed

NEAR_S = 300.0

Ask = Callable[[], float | None]


class EndTime:
    """When the allocation ends, in seconds since the epoch, as far as is known."""

    def __init__(self, environment: Mapping[str, str], note: Path, ask: Ask | None = None) -> None:
        told = environment.get("SLURM_JOB_END_TIME", "")
        self.known_s: float | None = float(told) if told.isascii() and told.isdecimal() else None
        self._note, self._ask = note, ask or _questioner(environment)
        self._asking = BackgroundRun(self._learn)
        self._asked_s = -math.inf

    def look(self, now: float) -> None:
        """Learn the end, where it is not known yet; never waits."""
        if self.known_s is None:
            self.refresh(now)

    def refresh(self, now: float) -> bool:
        """Whether what is known is fresh. If it is not, somebody is being asked; never waits."""
        if self._ask is None:
            self._read_note()
            return True
        if self._asking.is_running:
            return False
        if now - self._asked_s < _ASK_EVERY_S:
            return True
        self._asked_s = now
        self._asking.start(now)
        return False

    def _learn(self) -> None:
        if self._ask is None or (end_s := self._ask()) is None:
            return
        self.known_s = end_s
        with suppress(OSError):
            write_json(self._note, {"schema": SCHEMA, "end_s": end_s})

    def _read_note(self) -> None:
        with suppress(OSError, InputError):
            self.known_s = Fields(str(self._note), read_json(self._note, SCHEMA)).number("end_s")


def _questioner(environment: Mapping[str, str]) -> Ask | None:
    """Who asks Slurm: the first task of a Slurm job. The embedded cluster's job numbers are not Slurm's."""
    job_id = environment.get("SLURM_JOB_ID")
    if not job_id or "PERDURE_JOB_ID" in environment or environment.get("SLURM_PROCID", "0") != "0":
        return None
    return lambda: ask_squeue(job_id)


class WalltimeWatch:
    """Says once when less than `before_s` seconds are left; with None never, and then nobody is asked."""

    def __init__(self, end: EndTime, before_s: float | None) -> None:
        self._end, self._before_s = end, before_s
        self.warned_s: float | None = None

    @property
    def end_s(self) -> float | None:
        """When the allocation ends, in seconds since the epoch; None while nobody has said."""
        return self._end.known_s

    def look(self, now: float) -> bool:
        """Whether the program is to be told now."""
        if self._before_s is None or self.warned_s is not None:
            return False
        self._end.look(now)
        if not self._is_within(self._before_s, now) or not self._end.refresh(now):
            return False
        if not self._is_within(self._before_s, now):  # the limit was raised meanwhile
            return False
        self.warned_s = now
        return True

    def due_s(self, now: float) -> float:
        """Seconds until the program is to be told, as far as is known; infinite where it is not."""
        if self._before_s is None or self.warned_s is not None or self._end.known_s is None:
            return math.inf
        return max(0.0, self._end.known_s - self._before_s - now)

    def left_s(self, now: float) -> float:
        """Seconds until the allocation ends; 0 where nobody has said when."""
        return 0.0 if self._end.known_s is None else max(0.0, self._end.known_s - now)

    def has_time(self, now: float) -> bool:
        """Whether more than a third is left of the time that the program was to have when it was told."""
        if self.warned_s is None or self._before_s is None:
            return False
        return self.left_s(now) > self._before_s / 3

    def explains(self, was_told: bool, now: float) -> bool:
        """Whether walltime is why the program ended: it was warned, or signalled from outside shortly before it.

        Signals alone do not tell a preemption from a time limit; the clock does.
        """
        return self.warned_s is not None or (was_told and self._is_within(NEAR_S, now))

    def _is_within(self, seconds: float, now: float) -> bool:
        return self._end.known_s is not None and now >= self._end.known_s - seconds


def ask_squeue(job_id: str) -> float | None:
    """The end of a job in seconds since the epoch, by Slurm's word; None where it does not say."""
    try:
        ran = subprocess.run(
            ["squeue", "-h", "-j", job_id, "-o", "%e"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _instant(ran.stdout.strip()) if ran.returncode == 0 else None


def _instant(text: str) -> float | None:
    """``2026-11-21T18:00:00`` in this machine's zone; Slurm also says N/A and NONE."""
    from datetime import datetime  # only where Slurm must be asked

    try:
        return datetime.fromisoformat(text.splitlines()[0]).timestamp()
    except (ValueError, IndexError):
        return None
