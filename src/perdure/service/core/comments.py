"""One line in a job's own record for each decision: what failed, what was done, where to read more. Pure."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from datetime import datetime

import re2
from msgspec.structs import replace

from perdure.model.actions import Action, Comment, Exclude, Release, Requeue
from perdure.model.identity import AttemptId
from perdure.model.job_comment import COMMENT_PREFIX
from perdure.retry.decide import COSTS

MAX_CHARACTERS = 200
MARK_CHARACTERS = 6
FAILED_AT = "failed %Y-%m-%d %H:%M:%S"  # accounting would write a T as t
MAX_ANSWERED = 40  # characters of what was not understood
LEAST_CAUSE = 40  # characters that what failed keeps where the line is too long; what was done comes first
_ASIDE = re2.compile(r" \([^()]*\)")


def instance_mark(where: str) -> str:
    """Tells one service from another on the same cluster; `where` its journal is."""
    return hashlib.sha256(where.encode("utf-8", "replace")).hexdigest()[:MARK_CHARACTERS]


def journal_place(database: str, host: str, state: str) -> str:
    """What `instance_mark` is made of: services that take over from each other share it."""
    return database or f"{host}:{state}"


def line_of(attempt: AttemptId, note: str, misread: str, mark: str, failed_s: float | None = None) -> str:
    """The line about a decision; `note`: its reason, `misread`: the owner's words for Perdure that it does not know.

    It says when the attempt failed: Slurm's controller takes no new line for a job that is over, and shows the old one.
    """
    when = f"{datetime.fromtimestamp(failed_s):{FAILED_AT}}: " if failed_s is not None else ""
    end = f"; not understood: {misread[:MAX_ANSWERED]}" if misread else ""
    end = f"{_plain(end)}. perdure why {attempt.job_id} #{mark}"
    room = MAX_CHARACTERS - len(COMMENT_PREFIX) - len(when) - len(end)
    return f"{COMMENT_PREFIX}{when}{_fitted(_plain(note.partition(COSTS)[0]), room)}{end}"


def _fitted(said: str, room: int) -> str:
    """A reason ("what failed: what was done") in this many characters: asides go first, then the end of what failed."""
    if len(said) <= room:
        return said
    said = str(_ASIDE.sub("", said))
    cause, colon, done = said.rpartition(": ")
    cause = _cut(cause, max(LEAST_CAUSE, room - len(colon) - len(done)))
    return _cut(f"{cause}{colon}{done}", room)


def _cut(text: str, room: int) -> str:
    return textwrap.shorten(text, room, placeholder="...")


def _plain(text: str) -> str:
    return " ".join("".join(char if 32 <= ord(char) < 127 else " " for char in text).split())


def commented(actions: Sequence[Action], attempt: AttemptId, line: str) -> tuple[Action, ...]:
    """The actions that follow a decision, with the line: in the first that changes the job's record, else on its own.

    On its own it would come too late for a job that starts at once, and say what was not done where that came too late.
    """
    for at, action in enumerate(actions):
        if isinstance(action, Requeue | Exclude | Release) and action.attempt == attempt:
            return (*actions[:at], replace(action, comment=line), *actions[at + 1 :])
    return (*actions, Comment(attempt, line))
