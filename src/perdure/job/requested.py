"""What the service asks of a running job: to pause, to slow down, to move its output.

It is in one small file of a start, ``attempts/<token>/asked.json``, that its first launcher writes again and again
(`perdure.job.listening`). All its launchers read it, and so may the program: `paused`, `asked`. Where the file is not
renewed any more nothing is asked: no program stands still for ever because a service, or a launcher, has gone.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json
from perdure.job.identity import FENCE_JOB, job_of

ASKED_FILE = "PERDURE_ASKED_FILE"
SCHEMA = "perdure.asked/1"
PAUSE, THROTTLE, MOVE = "pause", "throttle", "move"
RENEWED_S = 60.0  # it is written this often at least
STALE_S = 600.0  # after this long without it is not believed
LOOK_S = 1.0  # the program's own looks are this far apart


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that is asked, because of an exception of this id."""

    id: str
    kind: str
    note: str = ""


class News(NamedTuple):
    """What is asked since the last look, and what is asked no more."""

    begun: tuple[Request, ...] = ()
    over: tuple[Request, ...] = ()


def write(path: Path, requests: Iterable[Request], count: int) -> None:
    """Put down what is asked; `count` grows with each writing. Raises `OSError`."""
    write_json(path, {"schema": SCHEMA, "count": count, "asked": [asdict(request) for request in requests]})


def read(path: Path) -> tuple[int, tuple[Request, ...]]:
    """Raises `FileNotFoundError`, other `OSError`, or `InputError` where it is no such file."""
    data = read_json(path, SCHEMA, (os.geteuid(),))
    listed = data.get("asked")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InputError(str(path), "asked is not a list of objects", "It is written by perdure exec; remove it")
    each = [Fields(str(path), one) for one in listed]
    requests = tuple(Request(one.text("id"), one.text("kind"), one.text("note")) for one in each)
    return Fields(str(path), data).whole("count"), requests


class Requests:
    """What is asked now, looked at again and again. Without a path that is nothing, always."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._count, self._renewed_s = -1, -math.inf
        self._now: dict[str, Request] = {}

    def look(self, now: float) -> News:
        """Look at the file; `now` is on a clock that never goes back."""
        if self._path is None:
            return News()
        count, listed = self._count, tuple(self._now.values())
        with suppress(OSError, InputError):  # it cannot be read now: what was asked is asked still, for a while
            count, listed = read(self._path)
        if count != self._count:
            self._count, self._renewed_s = count, now
        elif now - self._renewed_s > STALE_S:
            listed = ()
        before, self._now = self._now, {request.id: request for request in listed}
        begun = tuple(request for name, request in self._now.items() if name not in before)
        return News(begun, tuple(request for name, request in before.items() if name not in self._now))

    def kinds(self) -> frozenset[str]:
        """What is asked, as of the last look."""
        return frozenset(request.kind for request in self._now.values())


def asked() -> frozenset[str]:
    """What the service asks of this job now: any of "pause", "throttle" and "move".

    Under ``perdure exec`` this looks at a small file once a second at most; everywhere else the answer is: nothing.
    """
    global _own, _looked_s
    if _own is None:
        _own = Requests(_own_file(os.environ))
    if time.monotonic() - _looked_s >= LOOK_S:
        _looked_s = time.monotonic()
        _own.look(_looked_s)
    return _own.kinds()


def paused() -> bool:
    """Whether the service asks this job to pause at its next safe point, until this is False again."""
    return PAUSE in asked()


def _own_file(environment: Mapping[str, str]) -> Path | None:
    """Of the launcher of this very job; a job that was started from within one has its own."""
    path = environment.get(ASKED_FILE)
    return Path(path) if path and environment.get(FENCE_JOB) == job_of(environment) else None


_own: Requests | None = None
_looked_s = -math.inf
