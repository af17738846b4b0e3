"""The folders in which the code of compiled loops is kept from one run to the next."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from functools import cache
from pathlib import Path

from perdure import __version__
from perdure.installation import cache_folder
from perdure.scheduling import asks, maxmin, tetris
from perdure.scheduling.slurm import fair_tree, priority
from perdure.simulation import faults

_KEPT_S = 30 * 86_400.0
_CONSTANTS_OF = (asks, fair_tree, faults, maxmin, priority, tetris)
"""Modules elsewhere of which kernels read constants."""


@cache
def code_folder() -> Path | None:
    """A folder for code made of this very source, where this user writes; None where none can be had.

    It lies beside the source, as Python's own compiled files do, so that what one process made serves all, whatever
    home they have; else in the user's cache. numba notices by itself when a function's own module has changed, not when
    one that it calls has. So each state of the source has its own folder. numba reads code back with pickle: it is
    never read from where others can write.
    """
    made = (_made(kept) for kept in (_beside_source(), _in_cache()) if kept is not None)
    return next(filter(None, made), None)


@cache
def installed_folder() -> Path | None:
    """Where whoever installed this very source has made code already; None where that is nobody else."""
    kept = _beside_source()
    if kept is None or code_folder() == kept / _source():
        return None
    try:
        installer = Path(__file__).stat().st_uid
        return kept / _source() if _is_of(installer, kept) and _is_of(installer, kept / _source()) else None
    except OSError:
        return None


def is_kept(entry: str) -> bool:
    """Whether there is code of an entry of this very source: "live._resume_on_nodes"."""
    folders = [folder for folder in (code_folder(), installed_folder()) if folder is not None]
    return any(any(folder.rglob(f"{entry}-*.nbi")) for folder in folders)


def _beside_source() -> Path | None:
    if os.environ.get("NUMBA_CACHE_DIR"):  # somebody wants it elsewhere
        return None
    return Path(__file__).parent / "__pycache__" / "machine-code"


def _in_cache() -> Path | None:
    try:
        return cache_folder() / "compiled"
    except RuntimeError:
        return None


def _made(kept: Path) -> Path | None:
    """The folder below `kept`, made where it is missing; None where it is not this user's alone, or cannot be made."""
    try:
        folder = kept / _source()
        kept.parent.mkdir(parents=True, exist_ok=True)
        for each in (kept, folder):
            each.mkdir(exist_ok=True, mode=0o755)
        if not _is_of(os.getuid(), kept) or not _is_of(os.getuid(), folder) or not os.access(folder, os.W_OK | os.X_OK):
            return None
        os.utime(folder)
        _drop_unused(kept)
    except OSError:
        return None
    return folder


def _source() -> str:
    return f"{__version__}-{_source_hash()}"


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


def _is_of(user: int, folder: Path) -> bool:
    """Whether a folder is this user's, and neither group nor others may write to it."""
    found = folder.stat()
    return found.st_uid == user and not found.st_mode & 0o022


def _drop_unused(kept: Path) -> None:
    """Delete the folders that nobody has used for a month. `code_folder` renews the time of the one that it returns."""
    for folder in kept.iterdir():
        if folder.stat().st_mtime < time.time() - _KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
