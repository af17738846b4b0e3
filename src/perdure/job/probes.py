"""Checks that a node's agent makes of its own node. Each says what is wrong in one line, or nothing.

A check that hangs (a file system whose server is gone keeps every process that touches it) is left hanging in a thread
of its own and told as such; the agent's heartbeat goes on alongside it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.job.background import BackgroundRun

LOW_MEMORY_FRAC = 0.01
COMMAND_TIMEOUT_S = 60.0
MAX_LINE = 200
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Probe:
    """One check: `look` returns what is wrong, "" for nothing."""

    name: str
    look: Callable[[], str]
    patience_s: float = 10.0  # it is reported as hanging after this long


def disk(path: Path) -> Probe:
    """Whether a directory can be read, on whatever file system."""

    def look() -> str:
        try:
            with os.scandir(path) as entries:
                next(entries, None)
            os.statvfs(path)
        except OSError as err:
            return f"{path}: {err.strerror}"
        return ""

    return Probe(str(path), look)


def memory(table: Path = Path("/proc/meminfo")) -> Probe:
    """Whether the host has memory left; says nothing where the kernel does not say."""

    def look() -> str:
        try:
            lines = (line.split() for line in table.read_text().splitlines())
            kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1}
            total, available = kib["MemTotal"], kib["MemAvailable"]
        except (OSError, ValueError, KeyError):
            return ""
        if available >= LOW_MEMORY_FRAC * total:
            return ""
        return f"memory: {available // _KIB} MiB of {total // _KIB} MiB are available"

    return Probe("memory", look)


def command(argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Probe:
    """A program of the site's own, run without a shell: 0 is well, anything else is told with its first line."""

    def look() -> str:
        try:
            ran = subprocess.run(
                list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=timeout_s, check=False, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{argv[0]}: killed after {timeout_s:.0f} s"
        except OSError as err:
            return f"{argv[0]}: {err.strerror}"
        said = ran.stdout.decode(errors="replace").strip().partition("\n")[0][:MAX_LINE]
        return f"{argv[0]}: exit {ran.returncode}" + (f": {said}" if said else "") if ran.returncode else ""

    return Probe(argv[0], look, patience_s=timeout_s + 10.0)


class Probing:
    """Runs probes alongside each other, each again `every_s` after its last start; never two runs of one at once."""

    def __init__(self, probes: Iterable[Probe], every_s: float) -> None:
        self._runs = [(probe, BackgroundRun(probe.look)) for probe in probes]
        self._every_s = every_s

    def look(self, now: float) -> tuple[str, ...]:
        """Start what is due; returns what is wrong as far as is known, never waiting."""
        for _, run in self._runs:
            run.start(now, self._every_s)
        return tuple(problem for probe, run in self._runs if (problem := _problem(probe, run, now)))

    def wait(self, seconds: float) -> None:
        """Until all that runs has ended, or for this long."""
        deadline_s = time.monotonic() + seconds
        for _, run in self._runs:
            run.wait(max(0.0, deadline_s - time.monotonic()))


def _problem(probe: Probe, run: BackgroundRun[str], now: float) -> str:
    if run.running_s(now) > probe.patience_s:
        return f"{probe.name}: does not answer for {run.running_s(now):.0f} s"
    return run.result or ""
