"""The folder in which the code of compiled loops is kept from one run to the next."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from functools import cache
from pathlib import Path

from perdure import __version__
from perdure.installation import cache_folder
from perdure.scheduling import asks
from perdure.scheduling.slurm import fair_tree, priority
from perdure.simulation import faults

_KEPT_S = 30 * 86_400.0
_CONSTANTS_OF = (asks, fair_tree, faults, priority)
"""Modules elsewhere of which kernels read constants."""


@cache
def code_folder() -> Path | None:
    """A folder for code made of this very source; None where no folder can be had that is the user's alone.

    numba notices by itself when a function's own module has changed, not when one that it calls has. So each state of
    the source has its own folder. numba reads code back with pickle: it is never read from where others can write.
    """
    try:
        kept = cache_folder() / "compiled"
        folder = kept / f"{__version__}-{_source_hash()}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_own(kept) or not _is_own(folder) or not os.access(folder, os.W_OK | os.X_OK):
            return None
        os.utime(folder)
        _drop_unused(kept)
    except (OSError, RuntimeError):
        return None
    return folder


def _source_hash() -> str:
    """Sixteen hexadecimal digits over all sources that compiled code is made of.

    That is this package, and the modules elsewhere of which kernels read constants: numba writes their values into the
    code. Kernels call no function of another package.
    """
    seen = hashlib.sha256()
    elsewhere = (Path(str(module.__file__)) for module in _CONSTANTS_OF)
    for path in (*sorted(Path(__file__).parent.glob("*.py")), *elsewhere):
        seen.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return seen.hexdigest()[:16]


def _is_own(folder: Path) -> bool:
    """Whether this user owns the folder, and neither group nor others may write to it."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _drop_unused(kept: Path) -> None:
    """Delete the folders that nobody has used for a month. `code_folder` renews the time of the one that it returns."""
    for folder in kept.iterdir():
        if folder.stat().st_mtime < time.time() - _KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
