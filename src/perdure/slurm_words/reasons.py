"""Why a job waits, is held or has ended, and why a node is out of service, in Slurm's own words."""

from __future__ import annotations

PRIORITY = "Priority"
RESOURCES = "Resources"
RESERVATION = "Reservation"  # it would fit now, but not next to what jobs of a higher priority have reserved
DEPENDENCY = "Dependency"
NEVER_SATISFIED = "DependencyNeverSatisfied"
BEGIN_TIME = "BeginTime"
PARTITION_DOWN = "PartitionDown"
PARTITION_INACTIVE = "PartitionInactive"
PARTITION_TIME = "PartitionTimeLimit"
PARTITION_NODES = "PartitionNodeLimit"
WHILE_WAITING = frozenset({BEGIN_TIME, RESOURCES, PRIORITY, PARTITION_DOWN, PARTITION_INACTIVE})
"""Reasons that say nothing of a job that waits no more; Slurm keeps them in the record of one that was cancelled."""

HELD_BY_USER, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"  # an administrator's holds are also Slurm's own
HELD_BY_A_PERSON = frozenset({HELD_BY_USER, HELD_BY_ADMIN})
SPECIAL_EXIT = "SpecialExit"
MAX_REQUEUE = "JobHoldMaxRequeue"
HELD_REASONS = HELD_BY_A_PERSON | {SPECIAL_EXIT, MAX_REQUEUE}
LAUNCH_FAILED = "launch_failed_requeued_held"  # blanks are printed as underscores
PUT_BACK_AND_HELD = "job_requeued_in_held_state"
HELD_TEXTS = (PUT_BACK_AND_HELD, LAUNCH_FAILED)
CANNOT_RUN = "BadConstraints"  # Slurm then holds the job, too

JOB_LAUNCH_FAILURE = "JobLaunchFailure"
NODE_DOWN = "NodeDown"
NON_ZERO_EXIT = "NonZeroExitCode"
OUT_OF_MEMORY = "OutOfMemory"
TIME_LIMIT = "TimeLimit"
ENDS_OF_ATTEMPTS = (NON_ZERO_EXIT, OUT_OF_MEMORY, TIME_LIMIT, NODE_DOWN)
"""Reasons of attempts that ran; other reasons end jobs that wait."""

CLEARS_UP = "COMPLETING: it has ended, and its nodes clear up"
"""What we say in place of a reason, as a state does not reach the reader."""

_OWN_REASONS = (
    "not responding", "node unexpectedly rebooted", "prolog error", "epilog error", "kill task failed", "nhc:",
    "low realmemory", "low cpus", "low socket*core", "low tmpdisk", "batch job complete failure", "duplicate jobid",
    "gres/", "reboot asap", "resumetimeout reached", "suspendtimeout reached",
)  # fmt: skip


def with_blanks(reason: str) -> str:
    """A reason as it was written: Slurm prints blanks as underscores."""
    return reason.replace("_", " ")


def is_given_up(reason: str) -> bool:
    """Whether Slurm holds the job because it gave up on it, and no person does."""
    words = with_blanks(reason).lower()
    return "launch failed" in words or "maxrequeue" in words


def is_put_back_held(reason: str) -> bool:
    """Whether the job was put back and not released, or cannot run anywhere."""
    words = with_blanks(reason).lower()
    return "requeued in held state" in words or words == CANNOT_RUN.lower()


def is_slurms_own(reason: str) -> bool:
    """Whether Slurm itself, or its node health check, wrote a node's reason; all other text counts as a person's.

    >>> is_slurms_own("Not responding"), is_slurms_own("Low RealMemory (reported:1 < 9)"), is_slurms_own("new rack")
    (True, True, False)
    """
    return not reason or reason.lower().startswith(_OWN_REASONS)
