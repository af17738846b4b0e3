"""The logs of failed attempts, kept: Slurm cuts a job's files when it is started again.

One compressed file an attempt, readable for the service alone, in the form in which logs are shown. What cannot be
kept holds up no decision.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.durable import make_directory, write_whole
from perdure.model.identity import AttemptId
from perdure.model.output import Output, as_one_text

log = logging.getLogger("perdure")

MAX_BYTES = 4 * 1024 * 1024  # of one attempt, before it is compressed
MAX_FILES = 100_000
DIRECTORY = "logs"
_SUFFIX = ".log.gz"
_SAFE = re.compile(r"[A-Za-z0-9_+-]{1,64}")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept, and for how long. Nothing where `max_bytes` is 0."""

    max_bytes: int = 1 << 30
    max_age_s: float = 30 * 86400.0


class KeptLogs:
    """A directory of logs. Safe to share between threads: each file is written once, whole, and then only read."""

    def __init__(self, state: Path, retention: Retention | None = None) -> None:
        self._directory = state / DIRECTORY
        self._retention = retention or Retention()

    def path(self, attempt: AttemptId) -> Path:
        """Where an attempt's log is kept, if it is."""
        job = attempt.job_id
        safe = job if _SAFE.fullmatch(job) else hashlib.sha256(job.encode("utf-8", "replace")).hexdigest()[:32]
        return self._directory / f"{safe}.{attempt.incarnation}{_SUFFIX}"

    def has(self, attempt: AttemptId) -> bool:
        return self.path(attempt).exists()

    def keep(self, attempt: AttemptId, output: Output) -> None:
        """Keep what was read, unless it is kept already. A disk that is full, say, is logged."""
        text = as_one_text(output, MAX_BYTES)
        path = self.path(attempt)
        if not text or self._retention.max_bytes == 0 or path.exists():
            return
        try:
            make_directory(self._directory, 0o700)
            write_whole(path, gzip.compress(text, 1), 0o600)
        except OSError as err:
            log.warning("%s: its log is not kept in %s: %s", attempt, self._directory, err.strerror)

    def read(self, attempt: AttemptId, max_bytes: int) -> bytes | None:
        """The last `max_bytes` of what was kept; None where nothing is."""
        try:
            with gzip.open(self.path(attempt)) as file:
                return file.read(MAX_BYTES + (1 << 20))[-max_bytes:]
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error) as err:
            log.warning("%s: its kept log cannot be read: %s", attempt, err)
            return None

    def prune(self, now: float) -> int:
        """Remove what is too old, then the oldest of what is too much; returns how many files."""
        room, removed = self._retention.max_bytes, 0
        for count, (written_s, size, path) in enumerate(sorted(self._files(), reverse=True), 1):
            room -= size
            if room < 0 or count > MAX_FILES or written_s < now - self._retention.max_age_s:
                with suppress(OSError):
                    path.unlink()
                removed += 1
        return removed

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, max(status.st_size, status.st_blocks * 512), Path(entry.path)))
        return found
