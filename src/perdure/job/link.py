"""What the job of a link does: take over from the link before it, run the user's script under the fence, leave marks.

``python -m perdure.job.link --folder DIR --link N ... -- INTERPRETER SCRIPT ARGS`` is the last line of the batch script
that ``perdure keep`` submits. Links are ordered by their numbers, whatever Slurm does: a link whose successor runs
already, or whose number another job has, ends at once and touches nothing.

Where the disk is full, a link that cannot leave its marks runs nevertheless: each link asks Slurm too which links of
its chain run. A predecessor that cannot be asked to end is waited for.
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

from perdure.errors import PerdureError, StateError
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
from perdure.model.exits import RETRY_ME
from perdure.model.job_comment import chain_link_of
from perdure.slurm_words.states import ENDS

POLL_S = 0.5
ASK_SLURM_S = 20.0  # between two questions whether the predecessor's job still runs
LOOK_S = 0.5  # between two looks for a successor's wish
FULL_S = 10.0  # between two tries to claim the fence on a full disk
TRIES = 3  # of a question to Slurm, and of a last word
_DOES_NOT_RUN = ENDS | {"PENDING", "REQUEUED"}
_TOOL_S = 20.0
_OURS = f"({os.getuid()})"  # ends what Slurm says of who a job's user is

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
    chain: str = ""  # what its jobs' comments call it; "": Slurm is not asked for them


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
        self._environment, self._tool, self._chain = environment, tool or _run_tool, options.chain
        self._job = environment.get(SLURM_JOB, "")
        self._report: ExitReport | None = None
        self._said: set[str] = set()

    def to_the_end(self, argv: Sequence[str]) -> int:
        others = self._running_links()
        if why := self._in_the_way(others):
            say(f"perdure keep: link {self._number} does not run: {why}")
            return 0
        begun = LinkBegun(self._job, time.time(), host=os.uname().nodename, stdout=_stdout())
        for kind in (LinkEnded, HandoverTold, HandoverAsked):
            self._folder.take_back(self._number, kind)
        self._mark(self._number, begun)
        if why := self._take_over(others):
            say(f"perdure keep: link {self._number} does not run: {why}")
            self._mark(self._number, LinkEnded(self._job, time.time(), 0, skipped=why))
            return 0
        progress = progress_of(self._options.progress)
        self._mark(
            self._number,
            LinkBegun(self._job, begun.came_s, time.time(), progress, begun.host, begun.stdout),
        )
        return self._leave(self._run(argv))

    def _mark(self, number: int, mark: LinkBegun | LinkEnded | HandoverAsked) -> bool:
        """Leave a mark; False where the disk does not take it, which is said once."""
        try:
            self._folder.write(number, mark)
        except OSError as err:
            self._say_once(f"perdure keep: {self._folder.path} cannot be written ({err.strerror}): Slurm tells instead")
            return False
        return True

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)

    def _in_the_way(self, others: Mapping[int, str]) -> str:
        """Why this job must not even begin; "" where it may."""
        if self._folder.over.exists():
            return "its chain is over"
        own = self._folder.marks(self._number)
        if own.is_live and own.begun is not None and own.begun.job_id != self._job and self._runs(own.begun.job_id):
            return f"job {own.begun.job_id} is this link"
        if (other := others.get(self._number)) is not None and int(other) < int(self._job or 0):
            return f"job {other} is this link"
        for number in sorted({*self._folder.numbers(), *others}):
            if number <= self._number:
                continue
            ended = self._folder.marks(number).ended
            if ended is None or not ended.skipped:
                return f"link {number} has taken over"
        return ""

    # ------------------------------------------------------------ taking over

    def _running_links(self) -> dict[int, str]:
        """The other jobs of this chain that Slurm runs, by the numbers of their links; {} where it is silent."""
        words = ("squeue", "-h", "-u", str(os.getuid()), "-t", "RUNNING,SUSPENDED", "-o", "%A|%U|%k")
        said = next((text for _ in range(TRIES) if (text := self._tool(*words)) is not None), "") if self._chain else ""
        found: dict[int, str] = {}
        for line in said.splitlines():
            job, uid, comment = (*line.split("|", 2), "", "")[:3]
            link = chain_link_of(comment) if uid == str(os.getuid()) and job != self._job else None
            if link is not None and link.chain == self._chain:
                found[link.number] = job
        return found

    def _take_over(self, others: Mapping[int, str]) -> str:
        """Wait until no link before this one runs; returns why this one is not needed any more, "" where it is."""
        earlier = sorted(number for number in {*self._folder.numbers(), *others} if number < self._number)
        for number in reversed(earlier):
            marks = self._folder.marks(number)
            marked = marks.begun.job_id if marks.begun is not None else ""
            for job in sorted({marked if marks.is_live else "", others.get(number, "")} - {""}):
                if marks.is_live or job != marked:
                    self._await_end(number, job)
        for number in reversed(earlier):
            marks = self._folder.marks(number)
            if marks.ended is not None and not marks.ended.skipped:
                return f"the work was done with link {number}" if marks.is_done else ""
        return ""

    def _await_end(self, number: int, job: str) -> None:
        if not self._runs(job):
            return
        asked, looked_s, ended_by_us = None, time.monotonic(), False
        while True:
            asked = asked or self._ask(number, job)
            marks = self._folder.marks(number)
            if marks.begun is not None and marks.begun.job_id == job and not marks.is_live:
                return
            if asked is not None and not ended_by_us and time.time() > asked.end_s and self._was_told(marks):
                say(f"perdure keep: link {number} has had {self._options.grace_s:.0f} s: its job is ended")
                self._tool("scancel", job)
                ended_by_us = True
            if time.monotonic() - looked_s > ASK_SLURM_S:
                looked_s = time.monotonic()
                if not self._runs(job):
                    return
            time.sleep(POLL_S)

    def _ask(self, number: int, job: str) -> HandoverAsked | None:
        """Ask a link to end; None where that cannot be written down for it."""
        asked = HandoverAsked(self._job, time.time(), time.time() + self._options.grace_s)
        if not self._mark(number, asked):
            return None
        say(f"perdure keep: link {self._number} asks link {number}, job {job}, to write its checkpoint and to end")
        if self._options.to_steps and self._options.signal:
            self._tool("scancel", f"--signal={self._options.signal}", job)
        self._tool("scancel", "--batch", "--signal=CONT", job)  # it looks at once
        return asked

    def _was_told(self, marks: LinkMarks) -> bool:
        """Whether the program knows that it is to end. One that listens to nothing keeps the time that it has."""
        return bool(self._options.signal) or (marks.told is not None and marks.told.count > 0)

    def _runs(self, job: str) -> bool:
        """Whether Slurm runs a job; True where nobody can tell: two links must not run."""
        said = self._tool("scontrol", "-o", "show", "job", job)
        if said is None:
            return True
        told = dict(word.split("=", 1) for word in said.split() if word.startswith(("JobState=", "UserId=")))
        if not told.get("UserId", _OURS).endswith(_OURS):  # a number that came again where a controller lost its state
            return False
        state = told.get("JobState", "")
        return bool(state) and state not in _DOES_NOT_RUN

    # ------------------------------------------------------------ running

    def _run(self, argv: Sequence[str]) -> int:
        """Run the program under the chain's fence; on a full disk under one next to the work, or once there is room."""
        while True:
            fenced = self._for_program()
            elsewhere = {name: text for name, text in fenced.items() if name != FENCE_DIR}
            for environment in (fenced, elsewhere):
                try:
                    return run(argv, environment, options=self._exec_options(), hear=self._hear)
                except StateError as err:
                    if not isinstance(err.__cause__, OSError):
                        raise
                    self._say_once(f"perdure keep: {err}")
            time.sleep(FULL_S)

    def _for_program(self) -> dict[str, str]:
        kept = {name: text for name, text in self._environment.items() if name not in (FENCE_TOKEN, FENCE_JOB)}
        return {**kept, FENCE_DIR: str(self._folder.fence), "PERDURE_LINK": str(self._number)}

    def _exec_options(self) -> ExecOptions:
        options = self._options
        signum = signal_of(options.signal, "--signal") if options.signal else None
        watch = HandoverWatch(self._folder.path, self._number, signum, options.grace_s, options.to_steps)
        return ExecOptions(
            hang=HangRule(after_s=0.0), look_s=LOOK_S, framework=framework_of(options.framework), handover=watch
        )

    def _hear(self, report: ExitReport) -> None:
        self._report = report  # the last is that of the end

    def _leave(self, code: int) -> int:
        """Leave the last mark; returns what the job ends with, which tells Slurm what no mark can."""
        report = self._report
        signals = () if report is None else report.told
        progress = progress_of(self._options.progress)
        step = None if report is None else report.step
        ended = LinkEnded(self._job, time.time(), code, signals, progress, step)
        for left in reversed(range(TRIES)):
            if self._mark(self._number, ended):
                return code
            time.sleep(1.0 if left else 0.0)
        return RETRY_ME if signals and not code else code


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
    parser.add_argument("--chain", default="")
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    options = LinkOptions(
        ChainFolder(given.folder), given.link, given.signal, given.steps, given.grace, given.progress, given.framework,
        given.chain,
    )  # fmt: skip
    return options, given.argv[1:] if given.argv[:1] == ["--"] else given.argv


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
