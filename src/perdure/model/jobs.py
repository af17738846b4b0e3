"""Jobs and their attempts, as a resource manager reports them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from perdure.model.identity import AttemptId
from perdure.model.job_comment import ChainLink


class JobState(StrEnum):
    """Where a job is now. How its last attempt ended is the attempt's business."""

    PENDING = "pending"
    HELD = "held"  # pending, and nothing will start it until it is released
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)

    @property
    def is_waiting(self) -> bool:
        return self in (JobState.PENDING, JobState.HELD)


class AttemptState(StrEnum):
    """The state of an attempt, or how the resource manager says that it ended."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"  # a program ended with a code that is not zero, or by a signal
    TIMEOUT = "timeout"  # the walltime was reached
    OUT_OF_MEMORY = "out_of_memory"  # the host's memory, by the resource manager's word
    NODE_FAIL = "node_fail"
    BOOT_FAIL = "boot_fail"
    LAUNCH_FAILED = "launch_failed"  # it never got as far as the user's program
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"  # a person's wish, not a failure
    REQUEUED = "requeued"  # put back by somebody while it ran
    DEADLINE = "deadline"
    LOST = "lost"  # it is gone, and nobody can say how it ended

    @property
    def is_over(self) -> bool:
        return self not in (AttemptState.RUNNING, AttemptState.SUSPENDED)

    @property
    def is_failure(self) -> bool:
        """True where something went wrong; a preemption and a person's own cancel did not go wrong."""
        return self.is_over and self not in (AttemptState.COMPLETED, AttemptState.CANCELLED, AttemptState.REQUEUED)


class RetryPreference(StrEnum):
    """What the owner asked of Perdure for this job."""

    AUTO = "auto"
    NEVER = "never"  # do not recover it, whatever happens


class PolicyConsent(StrEnum):
    """What a scheduling policy may do with a job."""

    NONE = "none"  # nothing at all
    ORDER = "order"  # change its place among the waiting jobs
    PREEMPT = "preempt"  # that, and put it back into the queue while it runs


class JobSize(Struct, frozen=True):
    """What a waiting job asks for: this many nodes or more, with the same number of GPUs on each."""

    nodes: int
    most_nodes: int
    gpus_per_node: int
    tasks_per_node: int = 1
    cpus_per_task: int = 1

    @property
    def gpus(self) -> int:
        """Of the fewest nodes that it asks for."""
        return self.nodes * self.gpus_per_node


class Job(Struct, frozen=True, omit_defaults=True):
    """What a user submitted, and its state."""

    cluster: str
    job_id: str
    name: str
    user: str
    state: JobState
    submit_s: float  # seconds since the epoch
    partition: str = ""  # or several that it may start in, as in "a,b"
    gpus: int = 0  # of the whole gang
    node_count: int = 1
    restart_nodes: tuple[int, int] | None = None  # fewest and most for a restart, by its owner's word; None: as it asks
    walltime_s: float | None = None  # the limit asked for; None is no limit
    may_requeue: bool = True  # False after --no-requeue, or where the site says so for all jobs
    wish: RetryPreference = RetryPreference.AUTO
    reason: str = ""  # why it waits, in the resource manager's words
    excluded: tuple[str, ...] = ()  # nodes it must not run on
    required: tuple[str, ...] = ()  # nodes it must run on
    required_by: str = "-w"  # how its owner asked for these, in the resource manager's words
    restarts: int = 0  # the resource manager's own count; no identity
    eligible_s: float | None = None  # it does not start before this instant
    licences: tuple[str, ...] = ()  # names of what it asks for besides nodes
    command: str = ""  # its script, by its owner's word; "" where there is no file
    work_dir: str = ""
    submitted_from: str = ""  # host and session of whoever submitted it, "login1:4711"
    qos: str = ""
    account: str = ""
    requeue_at_timeout: bool = False  # it saves checkpoints: its owner wants it back in the queue at its walltime
    misread: str = ""  # what its owner wrote for Perdure, and nobody understands
    is_batch: bool = True  # False where it was begun at a terminal (salloc, srun): there is no script to run again
    is_cron: bool = False  # of its owner's scrontab: the resource manager starts it again at its next time
    link: ChainLink | None = None  # of the chain that it belongs to, by its owner's word

    def may_run_in(self, partitions: Iterable[str]) -> bool:
        """Whether one of these partitions is its own, or one of several in which it may start."""
        return not set(partitions).isdisjoint(self.partition.split(","))


SAME_SUBMIT_S = 1.0  # two submit instants of one job may lie so far apart


def begins_anew(before: Job, now: Job) -> bool:
    """Whether another job has the id now: a resource manager that lost its state gives ids out again.

    Such a job was submitted later. What was put back counts as submitted later, too, but is the same user's and has
    been restarted.
    """
    is_later = now.submit_s > before.submit_s + SAME_SUBMIT_S
    return is_later and (now.user != before.user or not now.restarts)


def came_after(job: Job, time_s: float, story_s: float = 0.0) -> bool:
    """Whether another job had the id at an instant: this one was submitted later.

    That of a job which was put back counts as later, too; of such a one only `story_s` counts: when it was submitted,
    where it was seen that it got another's id, else 0.
    """
    return time_s < max(story_s, 0.0 if job.restarts else job.submit_s) - SAME_SUBMIT_S


class Attempt(Struct, frozen=True, omit_defaults=True):
    """One execution of a job."""

    id: AttemptId
    state: AttemptState
    nodes: tuple[str, ...]
    start_s: float
    end_s: float | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""  # in the resource manager's words
    gpus: int = 0
    user: str = ""
    stdout: str = ""  # path; "" where unknown
    stderr: str = ""  # path; equal to `stdout` or "" where the two are one file
    failed_nodes: tuple[str, ...] = ()  # of `nodes`, those known to have gone down under it
    resubmits: bool = False  # its batch script submits jobs, or puts itself back
    warning: str = ""  # the option of sbatch by whose signal, sent before the walltime, it ended (or left by itself)

    @property
    def elapsed_s(self) -> float:
        """Seconds run; 0 while the end is unknown."""
        return max(0.0, self.end_s - self.start_s) if self.end_s is not None else 0.0

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.elapsed_s / 3600.0
