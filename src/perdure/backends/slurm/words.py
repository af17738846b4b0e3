"""Slurm's words for states, exit codes, durations and GPUs, in ours."""

from __future__ import annotations

from functools import lru_cache

import re2

from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState

_ATTEMPT_STATES = {
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
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
WHILE_WAITING = frozenset({"BeginTime", "Resources", "Priority", "PartitionDown", "PartitionInactive"})
"""Reasons that say nothing of a job that waits no more; Slurm keeps them in the record of one that was cancelled."""
HELD_BY_A_PERSON = frozenset({"JobHeldUser", "JobHeldAdmin"})
SPECIAL_EXIT = "SpecialExit"
CLEARS_UP = "COMPLETING: it has ended, and its nodes clear up"
_HELD_REASONS = HELD_BY_A_PERSON | {SPECIAL_EXIT, "JobHoldMaxRequeue"}
LAUNCH_FAILED = "launch_failed_requeued_held"  # blanks are printed as underscores
CANNOT_RUN = "BadConstraints"  # Slurm then holds the job, too
PUT_BACK_AND_HELD = "job_requeued_in_held_state"
_HELD_TEXTS = (PUT_BACK_AND_HELD, LAUNCH_FAILED)
_CANNOT_OPEN_OUTPUT = 53  # the signal part of an exit code; no signal has that number

_OWN_REASONS = (
    "not responding", "node unexpectedly rebooted", "prolog error", "epilog error", "kill task failed", "nhc:",
    "low realmemory", "low cpus", "low socket*core", "low tmpdisk", "batch job complete failure", "duplicate jobid",
    "gres/", "reboot asap", "resumetimeout reached", "suspendtimeout reached",
)  # fmt: skip
_NODE_TOTAL = re2.compile(r"(?:^|,)node=(\d{1,6})(?:$|,)")
_DURATION = re2.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d\d)(?::(\d\d))?")


def is_waiting(state: str) -> bool:
    return state in _WAITING


def is_held(state: str, priority: int, reason: str) -> bool:
    """True for a waiting job that nothing starts until somebody releases it."""
    return state in _WAITING and (
        state in _HELD_STATES or priority == 0 or reason in _HELD_REASONS or reason.startswith(_HELD_TEXTS)
    )


def job_state(state: str, priority: int, reason: str) -> JobState:
    """Where a job stands, from the words of ``scontrol show job``. COMPLETING counts as running: it holds nodes."""
    if state in _WAITING:
        return JobState.HELD if is_held(state, priority, reason) else JobState.PENDING
    if state == "COMPLETING":
        return JobState.RUNNING
    match _ATTEMPT_STATES.get(state):
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
    state = _ATTEMPT_STATES.get(_whole_word(word), AttemptState.FAILED)
    if state is AttemptState.REQUEUED and exit_code:
        return AttemptState.FAILED
    not_launched = (reason == "JobLaunchFailure" and not signal) or (exit_code, signal) == (0, _CANNOT_OPEN_OUTPUT)
    if state is AttemptState.FAILED and not_launched:
        return AttemptState.LAUNCH_FAILED
    return state


def _whole_word(word: str) -> str:
    """``CANCELLED by 1000`` and the cut-off ``OUT_OF_ME+`` are the states that they begin with."""
    first = word.split(" ", 1)[0]
    if not first.endswith("+"):
        return first
    return next((known for known in _ATTEMPT_STATES if known.startswith(first[:-1])), first)


def exit_status(text: str) -> tuple[int, int]:
    """Read ``rc:signal``. (0, 0) for anything else."""
    code, _, signal = text.partition(":")
    return (int(code), int(signal)) if code.isdecimal() and signal.isdecimal() else (0, 0)


@lru_cache(maxsize=1024)
def duration_s(text: str) -> float | None:
    """Read ``[D-]H:MM[:SS]``. None for UNLIMITED, Partition_Limit and anything else.

    >>> duration_s("1-00:30:00")
    88200.0
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[4] is None and not found[1]:  # M:SS
        return float(first * 60 + second)
    return float(days * 86400 + first * 3600 + second * 60 + third)


def gpus(text: str) -> int | None:
    """GPUs in a list of resources, however this version of Slurm writes them. None where no GPU is named.

    Where counts with and without a type stand side by side, the one without holds the others.

    >>> gpus("cpu=2,gres/gpu=4,gres/gpu:h100=4"), gpus("gpu:h100:4(S:0-1),gpu:a100:2"), gpus("gres:gpu"), gpus("cpu=1")
    (4, 6, 1, None)
    """
    plain = typed = 0
    found = False
    for item in text.split(","):
        kind, *rest = item.partition("(")[0].removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
        if kind != "gpu" or len(rest) > 2:
            continue
        found = True
        count = int(rest[-1]) if rest and rest[-1].isdecimal() and len(rest[-1]) < 10 else 1
        if rest and not rest[0].isdecimal():
            typed += count
        else:
            plain += count
    return max(plain, typed) if found else None


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


def is_slurms_own(reason: str) -> bool:
    """Whether Slurm itself, or its node health check, wrote a node's reason; all other text counts as a person's.

    >>> is_slurms_own("Not responding"), is_slurms_own("Low RealMemory (reported:1 < 9)"), is_slurms_own("new rack")
    (True, True, False)
    """
    return not reason or reason.lower().startswith(_OWN_REASONS)


def node_total(text: str) -> int | None:
    """Nodes in a list of resources; None where none are named.

    >>> node_total("cpu=2,mem=128M,node=2,billing=2"), node_total("(null)")
    (2, None)
    """
    found = _NODE_TOTAL.search(text)
    return int(found[1]) if found else None
