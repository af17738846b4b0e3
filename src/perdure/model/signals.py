"""Which signals that end a job's script are a person's word."""

from __future__ import annotations

import signal

from perdure.model.jobs import Attempt, AttemptState

SENT_BY_PERSONS = frozenset({1, 2, 3, 10, 12, 15})
"""HUP, INT, QUIT, USR1, USR2, TERM: what a program can catch, and what no crash of its own raises."""


def persons_signal(attempt: Attempt) -> int:
    """The signal that a person sent to the job's own script, as ``scancel -s TERM -f`` does, and that ended it; else 0.

    A resource manager that ends a job itself (a limit, a preemption, a lost node) says so by the state. A machine that
    is shut down sends SIGTERM too: where a node went down under the job, nobody's wish is read from that.
    """
    ended_by_it = attempt.state is AttemptState.FAILED and not attempt.exit_code and not attempt.failed_nodes
    return attempt.signal if ended_by_it and attempt.signal in SENT_BY_PERSONS else 0


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
