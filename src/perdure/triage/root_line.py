"""The root line of a failure: the line that its fingerprint is of, normalised, so that a site can learn what it means.

Where something is known of the cause, its line is the root line. Where all that is known is that the program ended, it
is the line that ends the last traceback, else the last alarming line of the log's end, else its last line; a launcher's
report of the end, and what a program tells of its doings, are the same for all failures and are passed over.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Sequence

from perdure.model.jobs import Attempt
from perdure.triage.evidence.frames import raised
from perdure.triage.evidence.launchers import LauncherReport
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.scheduler import Fact
from perdure.triage.grammar import BY, own_grammar
from perdure.triage.text.clean import decode
from perdure.triage.text.logtext import LogText
from perdure.triage.text.numbered import normalised
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.unnamed import COARSE, OF_LAUNCHER, UNKNOWN, end_lines, is_guess, is_open
from perdure.triage.verdict import UNNAMED, CauseRole

_OWN_EXCEPTION = r"^\s*(?:[\w.]+\.)?([A-Z]\w+)(?::|\s*$)"
_OF_PYTHON = frozenset(name for name in dir(builtins) if name[0].isupper())

MAX_MESSAGE = 200
"""Characters of a message that are kept to be shown."""

_TRACEBACK = "traceback"
_FIRST_WORDS = r"[\w<>]"


def says_no_more_than_the_end(primary: Hit | Fact | LauncherReport | None) -> bool:
    """Whether what is believed names no cause, and is not the line of one either."""
    if primary is None:
        return True
    of_cause = isinstance(primary, Hit) and primary.cause.role is CauseRole.ROOT
    return not of_cause and is_open(primary) and primary.cause.category == UNKNOWN


def is_named(cause: Cause, message: bytes) -> bool:
    """Whether what is written of a cause stands against what a few jobs of one site show of its message.

    Not so of a guess, of what nobody recognised, nor of an exception of the program's own that was read by its words.
    """
    if is_guess(cause) or cause.category == UNKNOWN:
        return False
    return not (cause.name in {BY, *COARSE} and is_own_exception(message))


def is_own_exception(message: bytes) -> bool:
    """Whether a line is that of an exception which Python itself does not have.

    >>> is_own_exception(b"acme.WarpError: lattice <n>"), is_own_exception(b"ValueError: <n>")
    (True, False)
    """
    found = capturing(_OWN_EXCEPTION).search(message)
    return found is not None and decode(found[1]) not in _OF_PYTHON


def root_line(hits: Sequence[Hit], text: LogText) -> bytes:
    """The line that says most of the end of a log; b"" where no line after the last step says anything."""
    for header in reversed([hit for hit in hits if hit.cause.name == _TRACEBACK]):
        if (line := raised(header)) is not None:
            return line.text.encode()
    lines = [line.text for line in end_lines(text, hits) if _is_own(line.text)]
    return next((line for line in lines if own_grammar().alarms(line)), lines[0] if lines else b"")


def _is_own(line: bytes) -> bool:
    return not compiled(OF_LAUNCHER).search(line) and compiled(_FIRST_WORDS).search(line) is not None


def shown_message(message: bytes) -> str:
    """A message as a person is shown it: one line, of bounded length, without what a terminal would obey."""
    text = " ".join(decode(message).split())
    return "".join(c if c.isprintable() else "?" for c in text)[:MAX_MESSAGE]


def message_of(
    primary: Hit | Fact | LauncherReport | None, hits: Sequence[Hit], text: LogText, attempt: Attempt | None
) -> bytes:
    """The root line, normalised; b"" where a fact is the cause, or no line tells anything."""
    nodes = attempt.nodes if attempt is not None else ()
    if says_no_more_than_the_end(primary) and (line := root_line(hits, text)):
        return normalised(line, nodes)
    return normalised(primary.text.encode(), nodes) if isinstance(primary, Hit) else b""


def fingerprint_of(primary: Hit | Fact | LauncherReport, message: bytes) -> str:
    """The same for causes whose lines differ only in numbers, paths, addresses, times and nodes."""
    if says_no_more_than_the_end(primary) and message:
        return of_message(message)
    return digest(primary.cause.category, message if isinstance(primary, Hit) else primary.cause.name.encode())


def of_message(message: bytes) -> str:
    """Of a message of which nothing is known but its words."""
    return UNNAMED + digest(UNKNOWN, message)


def digest(category: str, text: bytes) -> str:
    """16 hex digits."""
    return hashlib.sha256(category.encode() + b"\0" + text).hexdigest()[:16]
