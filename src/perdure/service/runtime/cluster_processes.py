"""This controller's share of the clusters, each served by a process of its own that is started and ended here."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from perdure.errors import ConfigError
from perdure.service.runtime.cluster_process import serve_cluster
from perdure.service.runtime.presence import LockSight, Presence
from perdure.service.runtime.share import share_change

log = logging.getLogger("perdure")

SHARED = "perdure.service.runtime.shared_memory"  # imported before any fork
MOST_STARTING = 4  # at a time: a start takes a second of a core
AGAIN_S = 10.0  # after a process ended by itself, before its cluster is tried again
ENDING_S = 15.0  # that a process may take to end before it is killed


@dataclass(slots=True)
class _OneProcess:
    """A process that serves a cluster; `ends_s` is when it is killed, None where it was not asked to end."""

    process: ForkServerProcess
    ends_s: float | None = None


def cluster_files(directory: Path) -> dict[str, Path]:
    """The settings files of a directory by the names of their clusters. Raises `ConfigError`."""
    try:
        found = {path.stem: path for path in sorted(directory.iterdir()) if path.suffix == ".toml"}
    except OSError as err:
        raise ConfigError(
            str(directory), f"cannot be read: {err.strerror}", "Name a directory with --clusters"
        ) from err
    if not found:
        raise ConfigError(str(directory), "has no settings file", "Write one a cluster: NAME.toml")
    return found


class ClusterProcesses:
    """Called from one thread, turn after turn."""

    def __init__(self, directory: Path, state: Path, common: Mapping[str, object], presence: Presence) -> None:
        """`common` are the settings of all clusters, by "group.key"; `state` is where each gets a directory."""
        self._directory, self._state, self._common, self._presence = directory, state, dict(common), presence
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([SHARED])
        self._mine: dict[str, _OneProcess] = {}  # the oldest first
        self._not_before_s: dict[str, float] = {}

    def turn(self) -> LockSight:
        """Start and end what the share asks for. Raises `StateError`, `ConfigError`."""
        files, now = cluster_files(self._directory), time.monotonic()
        self._bury(now)
        names = tuple(files)
        seen = self._presence.look(names)
        serving = [name for name, one in self._mine.items() if one.ends_s is None]
        waiting = {name for name, at_s in self._not_before_s.items() if now < at_s}
        change = share_change(names, serving, seen.held | waiting | self._mine.keys(), seen.controllers, seen.rank)
        for name in change.stop:
            log.info("%s: is let go: %d controllers share %d clusters", name, seen.controllers, len(names))
            self._end(name, now)
        starting = sum(name not in seen.held for name in serving)
        for name in change.start[: max(0, MOST_STARTING - starting)]:
            self._start(name, files[name])
        return seen

    def close(self) -> None:
        """End all processes."""
        for name in self._mine:
            self._end(name, time.monotonic())
        until_s = time.monotonic() + ENDING_S
        for one in self._mine.values():
            one.process.join(max(0.0, until_s - time.monotonic()))
            one.process.kill()
        self._presence.close()

    def _start(self, name: str, file: Path) -> None:
        process = self._context.Process(target=serve_cluster, args=(file, self._state, self._common), name=name)
        process.start()
        self._mine[name] = _OneProcess(process)

    def _end(self, name: str, now: float) -> None:
        one = self._mine[name]
        if one.ends_s is None:
            one.process.terminate()
            one.ends_s = now + ENDING_S

    def _bury(self, now: float) -> None:
        """Forget processes that ended, and kill what does not."""
        for name, one in list(self._mine.items()):
            if one.process.exitcode is not None:
                if one.ends_s is None:
                    log.warning("%s: its process ended with %s", name, one.process.exitcode)
                    self._not_before_s[name] = now + AGAIN_S
                one.process.close()
                del self._mine[name]
            elif one.ends_s is not None and now >= one.ends_s:
                one.process.kill()
