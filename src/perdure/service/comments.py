"""One line in a job's own record for each decision: what failed, what was done, where to read more. Pure."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence

from perdure.model.actions import COMMENT_PREFIX, Action, Comment, Requeue
from perdure.model.identity import AttemptId
from perdure.model.value import replace

MAX_CHARACTERS = 200
MARK_CHARACTERS = 6


def instance_mark(where: str) -> str:
    """Tells one service from another on the same cluster; `where` its journal is."""
    return hashlib.sha256(where.encode("utf-8", "replace")).hexdigest()[:MARK_CHARACTERS]


def journal_place(database: str, state: str) -> str:
    """What `instance_mark` is made of: services that take over from each other share it."""
    return database or f"{socket.gethostname()}:{state}"


def mark_of(text: str) -> str:
    """The mark of the service that wrote a line; "" where it is none of ours.

    >>> mark_of("perdure: a wrong shape: it would fail again. perdure why 7 #0a1b2c"), mark_of("perdure:retry=never")
    ('0a1b2c', '')
    """
    line = text.strip('"')
    return line.rpartition("#")[2] if line.startswith(COMMENT_PREFIX) and "#" in line else ""


def line_of(attempt: AttemptId, note: str, misread: str, mark: str) -> str:
    """The line about a decision; `note`: its reason, `misread`: the owner's words for Perdure that it does not know."""
    said = note.partition(";")[0] + (f"; not understood: {misread[:40]}" if misread else "")
    end = f". perdure why {attempt.job_id} #{mark}"
    plain = " ".join("".join(char if 32 <= ord(char) < 127 else " " for char in said).split())
    return f"{COMMENT_PREFIX}{plain[: MAX_CHARACTERS - len(COMMENT_PREFIX) - len(end)]}{end}"


def commented(actions: Sequence[Action], attempt: AttemptId, line: str) -> tuple[Action, ...]:
    """The actions that follow a decision, with the line: in the requeue where there is one, else on its own."""
    if any(isinstance(action, Requeue) for action in actions):
        return tuple(replace(a, comment=line) if isinstance(a, Requeue) else a for a in actions)
    return (*actions, Comment(attempt, line))
