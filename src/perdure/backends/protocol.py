"""What Perdure needs of a resource manager. Every backend passes `perdure.backends.checks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from perdure.model.actions import Action, Outcome
from perdure.model.jobs import Attempt
from perdure.model.observation import Observation

TAIL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of an attempt's log, and its beginning where the whole was longer than asked for.

    `head` is empty where `tail` holds all. `skipped` counts the bytes between the two.
    """

    path: str
    tail: bytes
    head: bytes = b""
    skipped: int = 0
    free_bytes: int | None = None  # what the owner may still write on the file system that it is on


class Backend(Protocol):
    """One cluster.

    Methods may be called from one thread at a time. Each raises `ClusterBusy` where no answer came (for an
    action: it may have been done) and `ClusterError` where the resource manager refused to be asked at all.
    """

    cluster: str

    def observe(self, since_s: float) -> Observation:
        """Look once: all jobs and nodes that are known now, attempts that run or ended at or after `since_s`.

        Never raises for a part that is down: it names that part in `Observation.unseen`.
        """

    def log_tail(self, attempt: Attempt, max_bytes: int = TAIL_BYTES) -> LogTail:
        """Read the end of an attempt's output, with its owner's rights.

        Raises `LogRefused` for anything but a regular file of the owner, `NotFound` where there is none.
        """

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, unless it has been carried out or the world has moved on: then say so.

        Calling it twice with one action does what calling it once does.
        """

    def lookup(self, action: Action) -> Outcome | None:
        """Say what became of an action that may or may not have been carried out. None: it surely was not."""

    def close(self) -> None:
        """Let go of sockets and processes."""
