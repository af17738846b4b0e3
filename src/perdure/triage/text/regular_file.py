"""A file that may be read without being waited for: no pipe, no device."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from perdure.errors import InputError, LogRefused


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file. Raises `LogRefused` for anything else, `InputError` if it cannot be read.

    A FIFO or device is refused without being waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a log file that you may read") from err
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogRefused(str(path), "is not a regular file", "Name a log file, not a pipe or device")
    return os.fdopen(descriptor, "rb", buffering=0)
