"""Whether a program still writes its log: the growth of the files behind standard output and error.

What the program sees is what it would see without us: nothing is wrapped, the files are looked at alongside it. Of what
was added the last 64 KiB are read: lines that this launcher, Slurm and a dump of stacks have added are not signs of
life of the program, and a first step is told from a start-up by its words. Where output goes into a terminal, or into
a pipe that no ``tee`` reads (`perdure.job.logfiles`), nobody can tell.
"""

from __future__ import annotations

import math
import os
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum

MAX_READ_BYTES = 64 * 1024
MAX_FILES = 64

_BEFORE = r"^\s*(?:\[?[\w.:-]{1,40}\]?:? ){0,2}"  # what srun -l and torchrun put before a rank's line
_NOT_ITS_OWN = (
    _BEFORE
    + r"(?:perdure exec: |srun: |slurmstepd: |(?:Current thread|Thread) 0x|Stack \(most recent|File \"|\.\.\.$"
    + r"|<no Python frame>)"
)
_STEP = r"(?i)\b(?:global[_ ]step|steps?|iter(?:ation)?s?|epochs?|batch|update)\b[\"']?\s*[:=#|\[(/]?\s*\d|\b\d{1,2}%\|"


class Growth(IntEnum):
    """What a look at the files has found; the larger says more."""

    NONE = 0
    OTHERS = 1  # lines that the program has not written itself
    LIFE = 2
    STEP = 3  # one that shows a step, an epoch, a bar that is not full yet


class OutputFiles:
    """Regular files that some processes write. More may be added as they are found."""

    def __init__(self, descriptors: Iterable[int] = (1, 2)) -> None:
        self._files: dict[tuple[int, int], _File] = {}
        self._since_s = math.inf
        self.add(f"/proc/self/fd/{descriptor}" for descriptor in descriptors)
        self._since_s = time.time()

    def __bool__(self) -> bool:
        """Whether there is any by which the program can be judged."""
        return any(file.counts for file in self._files.values())

    def add(self, paths: Iterable[str], *, only_steps: bool = False) -> None:
        """Look at these from now on, those that are regular files; such as ``/proc/PID/fd/1``.

        Of one that is found late the end counts as new, where it was written since this began. `only_steps`: of what is
        added to it only lines count that show a step.
        """
        for path in paths:
            with suppress(OSError):
                status = os.stat(path)
                key = (status.st_dev, status.st_ino)
                if stat.S_ISREG(status.st_mode) and key not in self._files and len(self._files) < MAX_FILES:
                    is_new = status.st_mtime >= self._since_s
                    self._files[key] = _File(path, 0 if is_new else status.st_size, only_steps)

    def look(self) -> Growth:
        """What was added since the last call; a file that was emptied counts as life."""
        return max((file.look() for file in self._files.values()), default=Growth.NONE)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _File:
    """One of them, held open: a program may leave it, or rename it."""

    def __init__(self, path: str, size: int, only_steps: bool) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        self._size = self._line = size  # how far it was read, and where its last line begins
        self._only_steps, self.counts = only_steps, not only_steps  # so does one that has told a step

    def look(self) -> Growth:
        found = self._look()
        if self._only_steps and found is not Growth.STEP:
            return Growth.NONE
        self.counts |= found is Growth.STEP
        return found

    def _look(self) -> Growth:
        with suppress(OSError):
            size = os.fstat(self._descriptor).st_size
            if size == self._size:
                return Growth.NONE
            if size < self._size:
                self._size = self._line = size
                return Growth.LIFE
            begin = max(self._line, size - MAX_READ_BYTES)
            data = os.pread(self._descriptor, size - begin, begin)
            found = growth_of(data, self._size - begin)
            self._size, end = size, max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            self._line = begin + end
            return found
        return Growth.NONE

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


def growth_of(data: bytes, known: int = 0) -> Growth:
    """What lines say of which the first `known` bytes were seen before."""
    from perdure.triage.text.patterns import compiled  # only here: most launchers never come so far

    found = Growth.NONE
    begin = 0
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        begin, end = begin + len(line) + 1, begin + len(line)
        if end <= known or not line.strip():
            continue
        added = line[max(0, known - (end - len(line))) :]  # a bar ends no line: ours is behind it
        if compiled(_NOT_ITS_OWN).search(line) or compiled(_NOT_ITS_OWN).search(added):
            found = max(found, Growth.OTHERS)
        elif compiled(_STEP).search(line):
            return Growth.STEP
        else:
            found = Growth.LIFE
    return found


def say(text: str) -> None:
    """One line on standard error: the job's log."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
