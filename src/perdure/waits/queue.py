"""The queue of a cluster at one instant: who runs, who waits, and on which nodes they may."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from perdure.model.jobs import JobSize, JobState, PolicyConsent


class QueuedJob(Struct, frozen=True):
    """A job that waits or runs, as the resource manager shows it. Times are seconds since the epoch."""

    job_id: str
    user: str
    state: JobState
    partitions: tuple[str, ...]  # in any of which it may start; of one that runs, where it does
    gpus: int = 0  # of the whole gang
    cpus: int = 0  # likewise
    nodes: int = 1
    walltime_s: float | None = None  # None is no limit
    priority: int = 0
    submit_s: float = 0.0
    eligible_s: float | None = None  # since when, or from when, it may start; None while that is open
    start_s: float | None = None  # of one that runs, since when; of one that waits, the manager's own plan
    reason: str = ""  # why it waits, in the manager's words
    dependency: str = ""
    account: str = ""
    qos: str = ""
    required: tuple[str, ...] = ()  # nodes that it must run on
    excluded: tuple[str, ...] = ()  # nodes that it must not run on
    running_on: tuple[str, ...] = ()  # nodes that it has
    tasks: int = 1  # jobs alike that wait behind this one: the rest of an array
    task_list: str = ""  # their numbers: "2-4,9", "0-98:2"; cut short with "..."
    most_tasks: int | None = None  # of that array may run at once
    reservation: str = ""  # in which it is to run
    parts: int = 1  # of a heterogeneous job, which start together
    name: str = ""  # its owner's: compared, and never shown
    nice: int = 0  # taken from what its priority would be, and so is in `priority` already
    consent: PolicyConsent = PolicyConsent.NONE  # by its owner's word
    may_requeue: bool = True
    asks: JobSize | None = None  # of one whose size may be set while it waits; `nodes` and `gpus` are its least
    sizes: tuple[int, ...] = ()  # GPUs that its owner lets it have, rising; (): it said nothing

    @property
    def array(self) -> str:
        """The number under which all tasks of an array, or all parts of a heterogeneous job, go."""
        return self.job_id.partition("_")[0].partition("+")[0].partition("[")[0]

    def has_task(self, task: int) -> bool:
        """Whether a task of its array waits behind this one."""
        for part in self.task_list.split(","):
            bounds, _, step = part.partition(":")
            first, _, last = bounds.partition("-")
            if not first.isdecimal():
                return bool(part)  # the list is cut short
            rest = range(int(first), int(last if last.isdecimal() else first) + 1, int(step) if step.isdecimal() else 1)
            if task in rest:
                return True
        return False

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue and nobody holds it."""
        return self.state is JobState.PENDING

    @property
    def is_held(self) -> bool:
        """Whether nothing will start it until somebody releases it."""
        return self.state is JobState.HELD

    @property
    def is_running(self) -> bool:
        """Whether it has its nodes; a suspended job keeps them."""
        return self.state in (JobState.RUNNING, JobState.SUSPENDED)


class QueuedNode(Struct, frozen=True):
    """A machine, and whether jobs may be put there."""

    name: str
    partitions: tuple[str, ...]
    is_usable: bool = True
    gpus: int = 0
    cpus: int = 0


class QueuedPartition(Struct, frozen=True):
    """Nodes that share one set of limits."""

    name: str
    is_up: bool = True
    is_default: bool = False
    max_time_s: float | None = None
    default_time_s: float | None = None
    max_nodes: int | None = None
    priority_tier: int = 1
    qos: str = ""  # whose limits hold for all its jobs


class QueuedReservation(Struct, frozen=True):
    """Nodes that are kept for some from an instant on, as for maintenance."""

    name: str
    begin_s: float
    end_s: float
    nodes: tuple[str, ...]


class Queue(Struct, frozen=True):
    """All of it, at `now_s` of the manager's clock."""

    now_s: float
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[QueuedNode, ...]
    partitions: tuple[QueuedPartition, ...]
    cluster: str = ""
    reservations: tuple[QueuedReservation, ...] = ()

    def job(self, job_id: str) -> QueuedJob | None:
        """The job of that id; of an array's id, or of one of its waiting tasks, the record of these; or else its first
        task.
        """
        exact = next((job for job in self.jobs if job.job_id == job_id), None)
        if exact is not None:
            return exact
        array, _, task = job_id.partition("+")[0].partition("_")
        alike = (job for job in self.jobs if job.array == array)
        return next((job for job in alike if not task.isdecimal() or job.has_task(int(task))), None)

    def partition(self, name: str) -> QueuedPartition | None:
        return next((each for each in self.partitions if each.name == name), None)

    def waiting(self) -> Iterator[QueuedJob]:
        return (job for job in self.jobs if job.is_waiting)

    def running(self) -> Iterator[QueuedJob]:
        return (job for job in self.jobs if job.is_running)

    def reservation_in_the_way(self, job: QueuedJob, start_s: float) -> QueuedReservation | None:
        """The first to come for others on nodes that a job may have, if one that starts then would still run."""
        names = {node.name for node in self.nodes_of(job.partitions)}
        until_s = float("inf") if job.walltime_s is None else start_s + job.walltime_s
        found = (
            each
            for each in self.reservations
            if each.name != job.reservation and not names.isdisjoint(each.nodes) and self.now_s < each.begin_s < until_s
        )
        return min(found, key=lambda each: each.begin_s, default=None)

    def nodes_of(self, partitions: tuple[str, ...]) -> tuple[QueuedNode, ...]:
        """The nodes of any of these partitions, usable or not."""
        return tuple(node for node in self.nodes if not set(partitions).isdisjoint(node.partitions))


class QueueLook(Struct, frozen=True):
    """A queue, and the settings of its manager that are in force: by their names in lower case, as text."""

    queue: Queue
    config: dict[str, str]


def ahead_of(job: QueuedJob, queue: Queue) -> list[QueuedJob]:
    """The waiting jobs that the manager considers before this one, in its order: tier, priority, submit, id.

    Of those that may want its nodes; what waits for its begin time or for another job is passed over.
    """
    tier = {each.name: each.priority_tier for each in queue.partitions}
    rivals = set(job.partitions).union(*(node.partitions for node in queue.nodes_of(job.partitions)))

    def precedence(each: QueuedJob) -> tuple[float, ...]:
        highest = max((tier.get(name, 1) for name in each.partitions), default=1)
        return (-highest, -each.priority, each.submit_s, _number(each.job_id))

    own = precedence(job)
    return sorted(
        (
            each
            for each in queue.waiting()
            if each.eligible_s is not None
            and each.eligible_s <= queue.now_s
            and not rivals.isdisjoint(each.partitions)
            and precedence(each) < own
            and each.job_id != job.job_id
        ),
        key=precedence,
    )


def _number(job_id: str) -> float:
    digits = job_id.partition("_")[0].partition("+")[0]
    return float(digits) if digits.isdecimal() else float("inf")
