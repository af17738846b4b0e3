"""Slurm's words for the states of jobs and nodes, and its exit codes, in ours."""

from __future__ import annotations

from collections.abc import Collection

from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState
from perdure.slurm_words.reasons import HELD_REASONS, HELD_TEXTS, JOB_LAUNCH_FAILURE

ATTEMPT_STATES = {
    "RUNNING": AttemptState.RUNNING,
    "CONFIGURING": AttemptState.RUNNING,
    "SIGNALING": AttemptState.RUNNING,
    "STAGE_OUT": AttemptState.RUNNING,
    "POWER_UP_NODE": AttemptState.RUNNING,
    "EXPEDITING": AttemptState.RUNNING,
    "RESIZING": AttemptState.RUNNING,
    "SUSPENDED": AttemptState.SUSPENDED,
    "STOPPED": AttemptState.SUSPENDED,
    "COMPLETED": AttemptState.COMPLETED,
    "FAILED": AttemptState.FAILED,
    "SPECIAL_EXIT": AttemptState.FAILED,
    "TIMEOUT": AttemptState.TIMEOUT,
    "OUT_OF_MEMORY": AttemptState.OUT_OF_MEMORY,
    "NODE_FAIL": AttemptState.NODE_FAIL,
    "BOOT_FAIL": AttemptState.BOOT_FAIL,
    "LAUNCH_FAILED": AttemptState.LAUNCH_FAILED,
    "RECONFIG_FAIL": AttemptState.LAUNCH_FAILED,
    "PREEMPTED": AttemptState.PREEMPTED,
    "CANCELLED": AttemptState.CANCELLED,
    "REVOKED": AttemptState.CANCELLED,
    "REQUEUED": AttemptState.REQUEUED,
    "REQUEUE_HOLD": AttemptState.REQUEUED,
    "REQUEUE_FED": AttemptState.REQUEUED,
    "DEADLINE": AttemptState.DEADLINE,
}
FAILURES = (
    "FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "SPECIAL_EXIT",
)  # fmt: skip
ENDS = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
})  # fmt: skip
"""States of a job that has ended; `RARE_ENDS` are such too, but few versions of Slurm print them."""
RARE_ENDS = frozenset({"LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"})
ENDS_GRAVEST_FIRST = (
    "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL", "DEADLINE", "TIMEOUT",
    "PREEMPTED", "REQUEUED", "CANCELLED", "REVOKED", "COMPLETED",
)  # fmt: skip
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
CANNOT_OPEN_OUTPUT = 53  # the signal part of an exit code; no signal has that number


def is_waiting(state: str) -> bool:
    return state in WAITING


def is_held(state: str, priority: int, reason: str) -> bool:
    """True for a waiting job that nothing starts until somebody releases it."""
    return state in WAITING and (
        state in _HELD_STATES or priority == 0 or reason in HELD_REASONS or reason.startswith(HELD_TEXTS)
    )


def job_state(state: str, priority: int, reason: str) -> JobState:
    """Where a job stands, from the words of ``scontrol show job``. COMPLETING counts as running: it holds nodes."""
    if state in WAITING:
        return JobState.HELD if is_held(state, priority, reason) else JobState.PENDING
    if state == "COMPLETING":
        return JobState.RUNNING
    match ATTEMPT_STATES.get(state):
        case AttemptState.RUNNING:
            return JobState.RUNNING
        case AttemptState.SUSPENDED:
            return JobState.SUSPENDED
        case AttemptState.COMPLETED:
            return JobState.COMPLETED
        case AttemptState.CANCELLED:
            return JobState.CANCELLED
        case _:
            return JobState.FAILED


def attempt_state(word: str, exit_code: int, signal: int, reason: str) -> AttemptState:
    """How an attempt stands. An unknown word of a newer Slurm is a failure that is told apart by its reason.

    An attempt that ended by itself with a code, and was put back afterwards, is recorded as REQUEUED with that
    code; one that was put back while it ran has none. Slurm 22.05 gives JobLaunchFailure as the reason of every batch
    script that a signal ended: then it did run.
    """
    state = ATTEMPT_STATES.get(whole_word(word), AttemptState.FAILED)
    if state is AttemptState.REQUEUED and exit_code:
        return AttemptState.FAILED
    not_launched = (reason == JOB_LAUNCH_FAILURE and not signal) or (exit_code, signal) == (0, CANNOT_OPEN_OUTPUT)
    if state is AttemptState.FAILED and not_launched:
        return AttemptState.LAUNCH_FAILED
    return state


def whole_word(word: str, known: Collection[str] = tuple(ATTEMPT_STATES)) -> str:
    """``CANCELLED by 1000`` and the cut-off ``OUT_OF_ME+`` are the states that they begin with."""
    first = word.split(" ", 1)[0]
    if not first.endswith("+"):
        return first
    return next((each for each in known if each.startswith(first[:-1])), first)


def exit_status(text: str) -> tuple[int, int]:
    """Read ``rc:signal``. (0, 0) for anything else."""
    code, _, signal = text.partition(":")
    return (int(code), int(signal)) if code.isdecimal() and signal.isdecimal() else (0, 0)


def is_reserved(text: str) -> bool:
    """Whether a node's state shows a reservation that is in force: ``IDLE+MAINTENANCE+RESERVED``."""
    return not {"RESERVED", "MAINT", "MAINTENANCE"}.isdisjoint(text.split("+"))


def node_state(text: str) -> NodeState | None:
    """Read ``MIXED+DRAIN``, ``DOWN*``, ``IDLE+CLOUD+POWERED_DOWN``. None for a node that is only planned (FUTURE)."""
    silent = "*" in text
    words = {word.rstrip("*~#!%$@^-") for word in text.split("+")}
    if "FUTURE" in words:
        return None
    if words & {"DOWN", "ERROR", "INVAL", "INVALID_REG"}:
        return NodeState.DOWN
    if words & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"}:
        return NodeState.DRAINING if words & {"ALLOCATED", "MIXED", "COMPLETING", "DRAINING"} else NodeState.DRAINED
    if silent or words & {"NOT_RESPONDING", "UNKNOWN"}:
        return NodeState.UNKNOWN
    return NodeState.UP
