"""The program's own sign of life: ``perdure.job.beat(step)`` once a step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsInt

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json
from perdure.job.identity import FENCE_JOB, job_of, task_of

BEATS_DIR, BEAT_S, BEATS_LOCAL = "PERDURE_BEATS_DIR", "PERDURE_BEAT_S", "PERDURE_BEATS_LOCAL_RANK"
DEFAULT_BEAT_S = 10.0
SCHEMA = "perdure.beat/1"


def beat(step: SupportsInt | None = None, *, quiet_s: float = 0.0) -> None:
    """Say that the program goes on, and at which step it is.

    Under ``perdure exec`` this writes a small file at most every 10 s, more often where ``--hang-after`` asks for less
    than 100 s; in between, and everywhere else, it only looks at the clock. One process of a launcher writes: local
    rank 0, or the only one. With `quiet_s` nothing is expected for this many seconds, as before an evaluation or the
    saving of a large checkpoint; the next beat ends that.
    Never fails for lack of a disk. Raises `TypeError` or `ValueError` where the step is not a number.
    """
    global _beater
    if _beater is None:
        _beater = Beater.of(os.environ)
    _beater.beat(step, quiet_s)


class Beater:
    """Writes one process's beats. Without a path it does nothing."""

    __slots__ = ("_count", "_due_s", "_every_s", "_path", "_quiet", "_rank")

    def __init__(self, path: Path | None, every_s: float = DEFAULT_BEAT_S, rank: int | None = None) -> None:
        self._path, self._every_s, self._rank = path, every_s, rank
        self._count, self._quiet = 0, False
        self._due_s = -math.inf if path else math.inf

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Beater:
        """The beater that ``perdure exec`` asks for: none outside of it, in a job started from within, or on other
        local ranks than the one that it names."""
        directory, task = environment.get(BEATS_DIR), task_of(environment)
        wanted = environment.get(BEATS_LOCAL, "0")
        if not directory or environment.get(FENCE_JOB) != job_of(environment) or str(task.local_rank or 0) != wanted:
            return cls(None)
        name = f"{task.host}.json" if task.rank is None else f"rank-{task.rank}.json"
        try:
            every_s = float(environment.get(BEAT_S, DEFAULT_BEAT_S))
        except ValueError:
            every_s = DEFAULT_BEAT_S
        return cls(Path(directory, name), every_s, task.rank)

    def beat(self, step: SupportsInt | None, quiet_s: float) -> None:
        self._count += 1
        now = time.monotonic()
        if self._path is None or (now < self._due_s and not quiet_s and not self._quiet):
            return
        self._due_s, self._quiet = now + self._every_s, quiet_s > 0
        said = {
            "step": None if step is None else int(step),
            "count": self._count,
            "time_s": time.time(),
            "quiet_s": quiet_s,
            "rank": self._rank,
        }
        with suppress(OSError):
            write_json(self._path, {"schema": SCHEMA, **said})


_beater: Beater | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """What a program said last."""

    step: int | None
    quiet_s: float
    rank: int | None = None


class BeatReader:
    """The beats of all ranks of a program, looked at again and again. A rank's file is read where it is new."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[str, tuple[int, int]] = {}

    def news(self) -> list[Beat]:
        """What was said since the last call. Raises `OSError` where nobody can tell."""
        with os.scandir(self._directory) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
        return [beat for entry in found if (beat := self._read(entry)) is not None]

    def _read(self, entry: os.DirEntry[str]) -> Beat | None:
        with suppress(OSError, InputError):  # not ours, or being replaced: it counts when it can be read
            status = entry.stat(follow_symlinks=False)
            mark = (status.st_ino, status.st_mtime_ns)
            if self._seen.get(entry.name) == mark:
                return None
            self._seen[entry.name] = mark
            path = Path(entry.path)
            fields = Fields(str(path), read_json(path, SCHEMA))
            quiet_s = max(0.0, fields.number("quiet_s", 0.0))
            return Beat(fields.maybe_whole("step"), quiet_s, fields.maybe_whole("rank"))
        return None
