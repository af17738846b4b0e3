"""``perdure agent``: one process a node that says "this node lives", what is wrong with it, and which jobs live on it.

It writes one small file into a directory that the service reads too, ``<node>.json``. The directory must be the
site's: whoever may write there can forge an agent, so one that anybody may write is refused, by agents and by the
service. Of files in it those are believed that the directory's owner, root or the reader itself has written.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perdure.errors import ConfigError, InputError
from perdure.job import files, heartbeat
from perdure.job.background import BackgroundRun
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, Pulse
from perdure.job.identity import Task
from perdure.job.liveness import LivenessRules, Watchlog, allowed_s, observe
from perdure.job.probes import Probing

MAX_TASKS = 4096  # that are looked at, the newest attempts of each directory first
MAX_PROBLEMS = 32
READ_S = 0.5  # that a look waits for the jobs' heartbeats


@dataclass(frozen=True, slots=True)
class Post:
    """What an agent looks at, and where it says so."""

    share: Path
    task: Task
    every_s: float = 3.0
    fences: tuple[Path, ...] = ()  # fence directories whose tasks on this node are looked for


class Agent:
    """Looks and writes; `look` is called again and again. Raises `ConfigError` where its directory cannot be used."""

    def __init__(self, post: Post, probing: Probing) -> None:
        check_share(post.share)
        self._post, self._probing = post, probing
        self._log, self._rules = Watchlog(), LivenessRules()
        self._reading = BackgroundRun(lambda: dict(heartbeats(post.fences, post.task.host)))
        first = Heartbeat(
            HeartbeatSource.AGENT,
            post.task.node,
            post.task.host,
            post.task.pid,
            count=0,
            time_s=0.0,
            every_s=post.every_s,
        )
        self._pulse = Pulse(post.share / f"{post.task.node}.json", first)
        self.problems: tuple[str, ...] = ()

    def look(self, now: float) -> None:
        """Look at the node and at the jobs' heartbeats, and write."""
        self._read(now)
        living, missing = self._jobs(now)
        self.problems = (*self._probing.look(now), *self._stuck(now))[:MAX_PROBLEMS]
        self._pulse.beat(now, problems=self.problems, jobs=living, missing=missing[:MAX_PROBLEMS])

    def end(self) -> None:
        """Say that the silence to come means nothing."""
        self._pulse.end(problems=self.problems)

    def _read(self, now: float) -> None:
        """Look at the jobs' heartbeats; their file system may hang, and that is not this node's end."""
        if not self._reading.is_running:
            self._reading.start(now)
            self._reading.wait(READ_S)
        if not self._reading.is_running and self._reading.result is not None:
            self._log = observe(self._log, self._reading.result, now, self._rules)

    def _jobs(self, now: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Jobs whose launchers beat on this node, and words for those that have stopped without an end."""
        living, missing = set(), []
        for seen in () if self._reading.is_running else self._log.seen.values():
            beat, silent_s = seen.heartbeat, now - seen.changed_s
            if silent_s <= allowed_s(beat, self._rules):
                living.add(beat.job_id)
            else:
                missing.append(f"job {beat.job_id}: no heartbeat of process {beat.pid} for {silent_s:.0f} s")
        return tuple(sorted(living)), tuple(sorted(missing))

    def _stuck(self, now: float) -> tuple[str, ...]:
        if not self._reading.is_running:
            return ()
        return (f"the jobs' fence directories: do not answer for {self._reading.running_s(now):.0f} s",)


def heartbeats(
    fences: Iterable[Path], host: str = "", owners: Collection[int] | None = None
) -> Iterator[tuple[str, Heartbeat]]:
    """The launchers' heartbeats in these fence directories, by file; those of one host, or of all.

    What cannot be read is passed over: it is written by jobs. With `owners` only what these users have written is read.
    """
    for fence in fences:
        for task in islice(files.tasks(fence), MAX_TASKS):
            with suppress(OSError, InputError):
                found = heartbeat.read(task.heartbeat, owners)
                if found.source is HeartbeatSource.JOB and host in ("", found.host):
                    yield str(task.heartbeat), found


def agents(share: Path) -> Mapping[str, Heartbeat]:
    """The agents' heartbeats in their directory, by file.

    Raises `OSError` where it cannot be read, `ConfigError` where anybody may write there.
    """
    believed = _believed(share)
    found = {}
    for path in sorted(share.iterdir()):
        with suppress(OSError, InputError):
            beat = heartbeat.read(path, believed)
            if beat.source is HeartbeatSource.AGENT and path.name == f"{beat.node}.json":
                found[str(path)] = beat
    return found


def keep_looking(agent: Agent, every_s: float, wait: Callable[[float], bool]) -> None:
    """Look every `every_s` seconds until `wait` says that it is over; it waits so long at most."""
    try:
        while True:
            agent.look(time.monotonic())
            if wait(every_s):
                return
    finally:
        agent.end()


def check_share(share: Path) -> None:
    """Raise `ConfigError` where this cannot be the directory of the agents."""
    try:
        _believed(share)
    except OSError as err:
        raise ConfigError(str(share), f"cannot be used: {err.strerror}", "Name a directory that all nodes see") from err


def _believed(share: Path) -> frozenset[int]:
    """The users whose word counts there. Raises `OSError`; `ConfigError` where anybody may write."""
    status = share.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(str(share), "not a directory", "Name a directory that all nodes see")
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(str(share), "anybody may write there and forge an agent", "Take that right away: chmod o-w")
    return frozenset((status.st_uid, 0, os.geteuid()))
