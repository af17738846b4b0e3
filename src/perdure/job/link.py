"""What the job of a link does: take over from the link before it, run the user's script under the fence, leave marks.

``python -m perdure.job.link --folder DIR --link N ... -- INTERPRETER SCRIPT ARGS`` is the last line of the batch script
that ``perdure keep`` submits. Links are ordered by their numbers, whatever Slurm does: a link whose successor runs
already, or whose number another job has, ends at once and touches nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import PerdureError
from perdure.job.chain_folder import ChainFolder, progress_of
from perdure.job.exec import run
from perdure.job.exit_report import ExitReport
from perdure.job.fence import FENCE_DIR, FENCE_TOKEN
from perdure.job.framework import framework_of, signal_of
from perdure.job.handover import HandoverWatch
from perdure.job.identity import FENCE_JOB, SLURM_JOB
from perdure.job.link_marks import HandoverAsked, HandoverTold, LinkBegun, LinkEnded, LinkMarks
from perdure.job.options import ExecOptions
from perdure.job.output import say
from perdure.job.silence import HangRule

POLL_S = 0.5
ASK_SLURM_S = 20.0  # between two questions whether the predecessor's job still runs
LOOK_S = 0.5  # between two looks for a successor's wish
_OVER = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
         "OUT_OF_MEMORY", "PENDING", "REQUEUED")  # fmt: skip
_TOOL_S = 20.0

Tool = Callable[..., str | None]


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How a link is run, as ``perdure keep`` has settled it."""

    folder: ChainFolder
    number: int
    signal: str = ""  # by which the script wants to be told before its walltime; "": as its framework expects
    to_steps: bool = False  # Slurm is to send it to the tasks of its steps
    grace_s: float = 120.0
    progress: str = ""
    framework: str = "plain"


def main(words: Sequence[str]) -> int:
    """Run one link; returns the exit code that its job ends with."""
    options, argv = _parsed(words)
    try:
        return LinkRun(options, os.environ).to_the_end(argv)
    except (PerdureError, OSError) as err:
        say(f"perdure keep: {err}")
        return 2


class LinkRun:
    """One start of a link's job."""

    def __init__(self, options: LinkOptions, environment: Mapping[str, str], tool: Tool | None = None) -> None:
        self._options, self._folder, self._number = options, options.folder, options.number
        self._environment, self._tool = environment, tool or _run_tool
        self._job = environment.get(SLURM_JOB, "")
        self._report: ExitReport | None = None

    def to_the_end(self, argv: Sequence[str]) -> int:
        if why := self._in_the_way():
            say(f"perdure keep: link {self._number} does not run: {why}")
            return 0
        begun = LinkBegun(self._job, time.time(), host=os.uname().nodename, stdout=_stdout())
        for kind in (LinkEnded, HandoverTold, HandoverAsked):
            self._folder.take_back(self._number, kind)
        self._folder.write(self._number, begun)
        if why := self._take_over():
            say(f"perdure keep: link {self._number} does not run: {why}")
            self._folder.write(self._number, LinkEnded(self._job, time.time(), 0, skipped=why))
            return 0
        progress = progress_of(self._options.progress)
        self._folder.write(
            self._number,
            LinkBegun(self._job, begun.came_s, time.time(), progress, begun.host, begun.stdout),
        )
        code = run(argv, self._for_program(), options=self._care(), hear=self._hear)
        self._leave(code)
        return code

    def _in_the_way(self) -> str:
        """Why this job must not even begin; "" where it may."""
        if self._folder.over.exists():
            return "its chain is over"
        own = self._folder.marks(self._number)
        if own.is_live and own.begun is not None and own.begun.job_id != self._job and self._runs(own.begun.job_id):
            return f"job {own.begun.job_id} is this link"
        later = [number for number in self._folder.numbers() if number > self._number]
        for number in later:
            ended = self._folder.marks(number).ended
            if ended is None or not ended.skipped:
                return f"link {number} has taken over"
        return ""

    # ------------------------------------------------------------ taking over

    def _take_over(self) -> str:
        """Wait until no link before this one runs; returns why this one is not needed any more, "" where it is."""
        earlier = [number for number in self._folder.numbers() if number < self._number]
        for number in reversed(earlier):
            if self._folder.marks(number).is_live:
                self._await_end(number)
        for number in reversed(earlier):
            marks = self._folder.marks(number)
            if marks.ended is not None and not marks.ended.skipped:
                return f"the work was done with link {number}" if marks.is_done else ""
        return ""

    def _await_end(self, number: int) -> None:
        before = self._folder.marks(number)
        assert before.begun is not None
        job = before.begun.job_id
        if not self._runs(job):
            return
        asked = HandoverAsked(self._job, time.time(), time.time() + self._options.grace_s)
        self._folder.write(number, asked)
        say(f"perdure keep: link {self._number} asks link {number}, job {job}, to write its checkpoint and to end")
        if self._options.to_steps and self._options.signal:
            self._tool("scancel", f"--signal={self._options.signal}", job)
        self._tool("scancel", "--batch", "--signal=CONT", job)  # it looks at once
        looked_s, ended_by_us = time.monotonic(), False
        while True:
            marks = self._folder.marks(number)
            if not marks.is_live:
                return
            if not ended_by_us and time.time() > asked.end_s and self._was_told(marks):
                say(f"perdure keep: link {number} has had {self._options.grace_s:.0f} s: its job is ended")
                self._tool("scancel", job)
                ended_by_us = True
            if time.monotonic() - looked_s > ASK_SLURM_S:
                looked_s = time.monotonic()
                if not self._runs(job):
                    return
            time.sleep(POLL_S)

    def _was_told(self, marks: LinkMarks) -> bool:
        """Whether the program knows that it is to end. One that listens to nothing keeps the time that it has."""
        return bool(self._options.signal) or (marks.told is not None and marks.told.count > 0)

    def _runs(self, job: str) -> bool:
        """Whether Slurm runs a job; True where nobody can tell: two links must not run."""
        said = self._tool("scontrol", "-o", "show", "job", job)
        if said is None:
            return True
        state = next((word[len("JobState=") :] for word in said.split() if word.startswith("JobState=")), "")
        return bool(state) and state not in _OVER

    # ------------------------------------------------------------ running

    def _for_program(self) -> dict[str, str]:
        kept = {name: text for name, text in self._environment.items() if name not in (FENCE_TOKEN, FENCE_JOB)}
        return {**kept, FENCE_DIR: str(self._folder.fence), "PERDURE_LINK": str(self._number)}

    def _care(self) -> ExecOptions:
        options = self._options
        signum = signal_of(options.signal, "--signal") if options.signal else None
        watch = HandoverWatch(self._folder.path, self._number, signum, options.grace_s, options.to_steps)
        return ExecOptions(
            hang=HangRule(after_s=0.0), look_s=LOOK_S, framework=framework_of(options.framework), handover=watch
        )

    def _hear(self, report: ExitReport) -> None:
        if report.is_final:  # else it is told to end, and has not: its successor must wait
            self._report = report

    def _leave(self, code: int) -> None:
        report = self._report
        signals = () if report is None else report.told
        progress = progress_of(self._options.progress)
        step = None if report is None else report.step
        with suppress(OSError):  # Slurm tells that it has ended
            self._folder.write(self._number, LinkEnded(self._job, time.time(), code, signals, progress, step))


def _run_tool(*argv: str) -> str | None:
    """What one of Slurm's tools prints; "" where it knows no such job, None where it does not answer."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return "" if "Invalid job id" in done.stderr else None
    return done.stdout


def _stdout() -> str:
    with suppress(OSError):
        path = os.readlink("/proc/self/fd/1")
        return path if path.startswith("/") and Path(path).is_file() else ""
    return ""


def _parsed(words: Sequence[str]) -> tuple[LinkOptions, list[str]]:
    parser = argparse.ArgumentParser(prog="perdure.job.link")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--link", type=int, required=True)
    parser.add_argument("--signal", default="")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--grace", type=float, default=120.0)
    parser.add_argument("--progress", default="")
    parser.add_argument("--framework", default="plain")
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    options = LinkOptions(
        ChainFolder(given.folder), given.link, given.signal, given.steps, given.grace, given.progress, given.framework
    )
    return options, given.argv[1:] if given.argv[:1] == ["--"] else given.argv


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
