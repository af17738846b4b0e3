"""Dumps of PyTorch's flight recorder, asked for where a program stands still.

ProcessGroupNCCL of each rank reads a FIFO, and dumps its recorder where a byte comes. The FIFOs lie right below /tmp,
by names that nobody can guess: where their directory is not there, as on another node or in a container, PyTorch ends
the process. The dumps lie next to what the launchers of a step share, in a directory for their owner alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.job.identity import FENCE_JOB

if TYPE_CHECKING:
    from perdure.hangs.flight_recorder import Dump  # loaded where something hangs: few programs do

PREFIX, OLD_PREFIX = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
STEM = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMPS = "flight-recorder"
DUMP_MOST_S = 3.0  # that ranks have to write theirs: PyTorch looks at its FIFO once a second
READ_S = 1.0  # that is kept for reading them
MAX_RANKS = 64
MAX_KEPT_BYTES = 64 << 20  # of one dump; 2,000 operations take a few MiB
KEPT_HANGS = 3  # attempts whose dumps stay
_NAME = "rank_"
_OURS = "/tmp/perdure-fr-"  # noqa: S108  (the one directory that every node and container has)
_EVERY_S = 0.05

Mark = tuple[int, int, int] | None  # changes when a file is written again; None: there is no file


class FlightRecorder:
    """What one launcher asks of its own ranks."""

    def __init__(self, shared: Path, environment: Mapping[str, str], job_id: str) -> None:
        """`shared` is the directory of the step's launchers. What the user has set stays."""
        self._shared = shared / DUMPS
        theirs = _set_by_user(environment, job_id)
        prefix = theirs.get(PREFIX) or theirs.get(OLD_PREFIX)
        stem = theirs.get(STEM) or (f"{_OURS}{os.urandom(16).hex()}-" if _runs_here(environment) else "")
        self._prefix = prefix or f"{self._shared}/{_NAME}"
        self._stem, self._is_own_stem = Path(stem) if stem else None, STEM not in theirs
        self._sets = {} if prefix else {PREFIX: self._prefix}
        self._sets |= {STEM: stem} if stem and self._is_own_stem else {}

    @property
    def directory(self) -> Path:
        """In which the dumps are."""
        return Path(self._prefix).parent

    def variables(self) -> dict[str, str]:
        """What the program's environment is to have; makes the directory that it names."""
        if PREFIX in self._sets:
            with suppress(OSError):
                self._shared.parent.mkdir(exist_ok=True)
                self._shared.mkdir(mode=0o700, exist_ok=True)
        return self._sets

    def collect(self, within_s: float) -> list[Dump]:
        """Have the ranks dump, and read what comes; [] at once where nobody reads a FIFO."""
        deadline_s = time.monotonic() + within_s
        asked = self._ask() if within_s > READ_S else {}
        came = _await(asked, time.monotonic() + min(DUMP_MOST_S, within_s - READ_S))
        if not came:
            return []
        from perdure.hangs.flight_recorder import Dump
        from perdure.hangs.pickled import read_dumps

        read = read_dumps(came, max(READ_S, deadline_s - time.monotonic()))
        for path, _ in came:
            self._forget_if_large(path)
        return [dump for dump in read if isinstance(dump, Dump)]

    def keep_few(self) -> None:
        """Remove the dumps of attempts before the last few that hung."""
        from perdure.job.fence import remove_tree

        def number(path: Path) -> int:
            return int(path.parts[-3]) if path.parts[-3].isdecimal() else 0

        found = [path for path in self._shared.parents[2].glob(f"*/*/{DUMPS}") if _has_dumps(path)]
        for path in sorted(found, key=number, reverse=True)[KEPT_HANGS:]:
            remove_tree(path)

    def end(self) -> None:
        """Remove the FIFOs that the program has made for this launcher."""
        if self._is_own_stem:
            for path, _ in self._fifos():
                with suppress(OSError):
                    path.unlink()

    def _ask(self) -> dict[int, tuple[Path, Mark]]:
        """Write to each FIFO that somebody reads; by rank the dump that is to come, and how it looks before."""
        asked: dict[int, tuple[Path, Mark]] = {}
        for fifo, rank in self._fifos():
            dump = Path(f"{self._prefix}{rank}")
            before = _mark(dump)
            if len(asked) < MAX_RANKS and _written(fifo):
                asked[rank] = dump, before
        return asked

    def _fifos(self) -> Iterator[tuple[Path, int]]:
        if self._stem is None:
            return
        with suppress(OSError), os.scandir(self._stem.parent) as entries:
            for entry in entries:
                rank = entry.name.removeprefix(self._stem.name).removesuffix(".pipe")
                if entry.name == f"{self._stem.name}{rank}.pipe" and rank.isascii() and rank.isdecimal():
                    yield Path(entry.path), int(rank)

    def _forget_if_large(self, path: Path) -> None:
        with suppress(OSError):
            if path.parent == self._shared and path.lstat().st_size > MAX_KEPT_BYTES:
                path.unlink()


def _set_by_user(environment: Mapping[str, str], job_id: str) -> dict[str, str]:
    """What is set already, but for what a launcher in another job has set, from within which this one was submitted."""
    found = {name: environment[name] for name in (PREFIX, OLD_PREFIX, STEM) if environment.get(name)}
    if environment.get(FENCE_JOB, job_id) == job_id:
        return found
    ours = (PREFIX, f"/{DUMPS}/{_NAME}"), (STEM, _OURS)
    return {name: value for name, value in found.items() if not any(name == n and mark in value for n, mark in ours)}


def _runs_here(environment: Mapping[str, str]) -> bool:
    """Whether the program's ranks run on this node, as far as is known: in a step, or in a job of one node."""
    is_step = environment.get("SLURM_STEP_ID", "").isdecimal()
    return is_step or environment.get("SLURM_JOB_NUM_NODES", "1") == "1"


def _written(fifo: Path) -> bool:
    """Whether a byte was put into it, which waits for nobody: somebody reads it, and it belongs to this user."""
    with suppress(OSError):
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISFIFO(status.st_mode) and status.st_uid == os.geteuid():
                return os.write(descriptor, b"1") == 1
        finally:
            os.close(descriptor)
    return False


def _await(asked: Mapping[int, tuple[Path, Mark]], deadline_s: float) -> list[tuple[Path, int]]:
    """The dumps that have come, by then, and are whole."""
    left, came = dict(asked), list[tuple[Path, int]]()
    last: dict[int, Mark] = {}
    while left and time.monotonic() < deadline_s:
        time.sleep(_EVERY_S)
        for rank, (path, before) in list(left.items()):
            mark = _mark(path)
            if mark not in (None, before) and last.get(rank) == mark and _is_whole(path):
                came.append((path, rank))
                del left[rank]
            last[rank] = mark
    return came


def _mark(path: Path) -> Mark:
    with suppress(OSError):
        status = path.lstat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None


def _is_whole(path: Path) -> bool:
    """Whether it ends as a pickle does."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            return size > 0 and os.pread(descriptor, 1, size - 1) == b"."
        finally:
            os.close(descriptor)
    return False


def _has_dumps(path: Path) -> bool:
    with suppress(OSError), os.scandir(path) as entries:
        return any(True for _ in entries)
    return False
