"""Whether a program still writes its log: the growth of the files behind standard output and error.

The files are looked at and never read or wrapped: what the program sees is what it would see without us. Where
output goes into a pipe or a terminal nobody can tell, and nothing is told.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress


class OutputFiles:
    """The regular files among some descriptors of this process."""

    def __init__(self, descriptors: Iterable[int] = (1, 2)) -> None:
        self._sizes: dict[int, int] = {}
        for descriptor in descriptors:
            with suppress(OSError):
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    self._sizes[descriptor] = status.st_size

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def have_grown(self) -> bool:
        """Whether any has another size than at the last call; a file that was emptied counts too."""
        before = dict(self._sizes)
        for descriptor in before:
            with suppress(OSError):
                self._sizes[descriptor] = os.fstat(descriptor).st_size
        return self._sizes != before


def say(text: str) -> None:
    """One line on standard error: the job's log."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
