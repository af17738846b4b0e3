"""A handover is the walltime moved forward: a successor runs already, and asks the running link to end.

The program is told as it is told before its walltime, it has as long as it asked for before its walltime, and whatever
does not end by then is ended by the resource manager. So what a script does about its walltime it does here too.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.job.chain_folder import ChainFolder
from perdure.job.framework import PrestopSignal
from perdure.job.link_marks import HandoverAsked, HandoverTold
from perdure.job.walltime import EndTime


@dataclass(frozen=True, slots=True)
class HandoverWatch:
    """Which link this program is, and how it is told."""

    folder: Path
    number: int
    signum: int | None  # None: what its framework expects
    grace_s: float
    to_steps: bool = False  # Slurm tells the tasks of its steps too

    @property
    def told(self) -> str:
        """What is said of it in the job's log."""
        return f"; its successor asks for it{', and Slurm tells the tasks of steps' if self.to_steps else ''}"

    def answer(self, count: int) -> None:
        """Tell the successor how many processes were told."""
        folder, count = ChainFolder(self.folder), count + self.to_steps
        told = folder.marks(self.number).told
        if told is None or told.count != count:
            with suppress(OSError):  # it then waits for the walltime
                folder.write(self.number, HandoverTold(count, time.time()))

    def nudge(self, usual: PrestopSignal) -> PrestopSignal:
        """The signal for processes of the batch script; tasks of steps are told by the resource manager."""
        return PrestopSignal(usual.signum if self.signum is None else self.signum, usual.workers, spares_launchers=True)


class MovedEnd(EndTime):
    """The end that a successor asks for; not known while none does."""

    def __init__(self, watch: HandoverWatch) -> None:
        super().__init__({}, Path(), None)
        self._path = ChainFolder(watch.folder).mark_path(watch.number, HandoverAsked)
        self._folder, self._number = ChainFolder(watch.folder), watch.number

    def look(self, now: float) -> None:  # noqa: ARG002 - the mark says when
        if self.known_s is None and self._path.exists() and (asked := self._folder.marks(self._number).asked):
            self.known_s = asked.end_s

    def refresh(self, now: float) -> bool:  # noqa: ARG002
        return True
