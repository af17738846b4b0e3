"""What a program asks for by the exit code that it ends with.

75 is EX_TEMPFAIL and 78 EX_CONFIG of ``sysexits.h``; 93 is NVIDIA's resiliency extension's "no restart". Slurm's usual
``RequeueExit=75`` and ``RequeueExitHold=78`` mean the same.
"""

from __future__ import annotations

from enum import StrEnum

OURS = "perdure exec: "
"""Begins each line that the launcher writes into the job's log."""

WALLTIME_SAID, WALLTIME_TOLD = f"{OURS}walltime ends in ", "sent to"
"""The launcher's line in the job's log where the walltime is near; seconds follow, and whether a process was warned."""

HANG_SAID = "perdure exec: hang: "
"""Begins the launcher's line that names the rank that stopped first, of a program that it holds to hang."""

HANG_ENDED = "perdure exec: ended for a hang: "
"""Begins the same line once the program is asked to end."""

SILENCE_SAID = "perdure exec: no sign of life for "
"""Begins its line before that, where the silence has become too long."""

FAILED_SAID = "perdure exec: failed rank: "
"""Begins its line about a rank that has failed while others wait for it."""

RETRY_ME, NEVER_AGAIN, STOP_HERE = 75, 78, 93


class ExitRequest(StrEnum):
    """The program's own word on whether it is to be run again."""

    NONE = ""
    RETRY = "retry"  # what stopped it passes
    NEVER = "never"  # it is configured wrongly
    STOP = "stop"  # a restart makes no progress, or a newer incarnation has taken over


def exit_request_of(exit_code: int) -> ExitRequest:
    """What this exit code asks for; most codes ask for nothing."""
    return _REQUESTS.get(exit_code, ExitRequest.NONE)


_REQUESTS = {RETRY_ME: ExitRequest.RETRY, NEVER_AGAIN: ExitRequest.NEVER, STOP_HERE: ExitRequest.STOP}
