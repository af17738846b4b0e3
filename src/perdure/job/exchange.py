"""Swapping two names of one file system in a single step, where the system can."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux: renameat2
_RENAME_SWAP = 2  # macOS: renamex_np


def exchange(one: Path, other: Path) -> None:
    """Swap what the two names stand for. Raises `OSError`; ENOSYS or EINVAL where system or file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = libc.renamex_np(first, second, _RENAME_SWAP)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))
