"""Which signals that end a job's script are a person's word."""

from __future__ import annotations

import signal

from perdure.model.jobs import Attempt, AttemptState

SENT_BY_PERSONS = frozenset({1, 2, 3, 10, 12, 15})
"""HUP, INT, QUIT, USR1, USR2, TERM: what a program can catch, and what no crash of its own raises."""

SHELL_ADDS = 128
"""To the number of a signal that ended a program, for its exit code."""


def persons_signal(attempt: Attempt) -> int:
    """The signal that a person sent to the job, as ``scancel -s TERM -f`` does, and that ended it; else 0.

    A resource manager that ends a job itself (a limit, a preemption, a lost node) says so by the state. A machine that
    is shut down sends SIGTERM too: where a node went down under the job, nobody's wish is read from that. Of the exit
    codes by which a shell tells that a signal ended its program only that of SIGINT is a person's: nothing else sends
    it to a job.
    """
    if attempt.state is not AttemptState.FAILED or attempt.failed_nodes:
        return 0
    if (attempt.exit_code, attempt.signal) == (SHELL_ADDS + signal.SIGINT, 0):
        return int(signal.SIGINT)
    return attempt.signal if not attempt.exit_code and attempt.signal in SENT_BY_PERSONS else 0


def persons_deed(attempt: Attempt) -> str:
    """What a person did by `persons_signal`, for a sentence; "" where the signal is not a person's."""
    if not (number := persons_signal(attempt)):
        return ""
    force = "" if attempt.exit_code else " -f"  # which reaches the batch script, too
    return f"it was ended by {in_words(number)}, as scancel -s {signal_name(number)}{force} does"


def in_words(number: int) -> str:
    """``signal 15 (TERM)``."""
    name = signal_name(number)
    return f"signal {number} ({name})" if name else f"signal {number}"


def signal_name(number: int) -> str:
    """``TERM`` of 15; "" where no signal has that number."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return ""
