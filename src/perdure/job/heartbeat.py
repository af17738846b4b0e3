"""Signs of life of a node: the small file that ``perdure exec`` and ``perdure agent`` each write again and again.

A reader sees life in a `count` that grows between two looks of its own; clocks are never compared.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json

SCHEMA = "perdure.heartbeat/1"


class HeartbeatSource(StrEnum):
    """Who writes it, and so how much it is worth: the agent is the site's, a job's tasks are its owner's."""

    AGENT = "agent"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one process of a node says of itself."""

    source: HeartbeatSource
    node: str
    host: str
    pid: int
    count: int
    time_s: float  # by its own clock, for people
    every_s: float  # how often it writes
    is_over: bool = False  # it has ended in order: its silence means nothing
    job_id: str = ""
    incarnation: int = 0
    token: int = 0
    rank: int | None = None
    step: int | None = None
    silent_s: float | None = None  # since the program's last sign of life; None where it gives none
    log_silent_s: float | None = None  # since its log has grown; None where that is not a file
    problems: tuple[str, ...] = ()  # of the agent: what is wrong with the node
    jobs: tuple[str, ...] = ()  # of the agent: those whose heartbeats it sees on its node
    missing: tuple[str, ...] = ()  # of the agent: whose heartbeats have stopped, which is not a problem of the node


def write(path: Path, heartbeat: Heartbeat) -> None:
    """Raises `OSError`."""
    write_json(path, {"schema": SCHEMA, **asdict(heartbeat)})


def read(path: Path, owners: Collection[int] | None = None) -> Heartbeat:
    """With `owners` only one that one of these users has written.

    Raises `FileNotFoundError`, other `OSError`, or `InputError` where it is not a heartbeat.
    """
    fields = Fields(str(path), read_json(path, SCHEMA, owners))
    source = fields.text("source")
    if source not in tuple(HeartbeatSource):
        raise InputError(str(path), f"source is {source[:80]!r}", f"It must be one of {', '.join(HeartbeatSource)}")
    return Heartbeat(
        source=HeartbeatSource(source),
        node=fields.text("node"),
        host=fields.text("host"),
        pid=fields.whole("pid"),
        count=fields.whole("count"),
        time_s=fields.number("time_s"),
        every_s=fields.number("every_s"),
        is_over=fields.yes("is_over"),
        job_id=fields.text("job_id"),
        incarnation=fields.whole("incarnation", 0),
        token=fields.whole("token", 0),
        rank=fields.maybe_whole("rank"),
        step=fields.maybe_whole("step"),
        silent_s=fields.maybe_number("silent_s"),
        log_silent_s=fields.maybe_number("log_silent_s"),
        problems=fields.texts("problems"),
        jobs=fields.texts("jobs"),
        missing=fields.texts("missing"),
    )


class Pulse:
    """Writes one process's heartbeat when it is due. It never fails: a disk that is gone is no reason to end."""

    def __init__(self, path: Path, first: Heartbeat) -> None:
        self._path, self._last, self._written_s = path, first, -first.every_s

    def beat(self, now: float, **news: Any) -> None:
        """Write, where `every_s` have passed on the clock of `now`, with the fields that are new."""
        if now - self._written_s >= 0.9 * self._last.every_s:  # who wakes a little early does not miss a turn
            self._write(now, news)

    def end(self, **news: Any) -> None:
        """Say that the silence to come means nothing."""
        self._write(self._written_s, {**news, "is_over": True})

    def _write(self, now: float, news: dict[str, Any]) -> None:
        self._written_s = now
        self._last = replace(self._last, count=self._last.count + 1, time_s=time.time(), **news)
        with suppress(OSError):
            write(self._path, self._last)
