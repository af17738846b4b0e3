"""What the embedded cluster remembers of jobs, attempts and nodes: exactly what it keeps on disk."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from perdure.backends.local.spec import JobSpec
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState


class InjectedFault(StrEnum):
    """What has been done to a node."""

    FAILED = "failed"  # its processes are dead
    FROZEN = "frozen"  # its processes are stopped
    THAWING = "thawing"  # its processes run again, and are about to be ended


class Timing(Struct, frozen=True):
    """How fast the embedded cluster is, in seconds."""

    detect_s: float = 0.5  # from the fault of a node to the cluster's knowing
    kill_wait_s: float = 2.0  # from TERM to KILL
    thaw_s: float = 1.0  # from a thaw to the TERM of what should no longer run
    requeue_delay_s: float = 0.0  # from the cluster's own requeue to the earliest start


PRIORITY, PRIORITY_STEP = 10**12, 10**6  # of a job whose owner asks for none; and how far apart two of them are
PARTITION = "main"
"""All nodes, and the jobs on them, are of this one."""


class LocalNode(Struct, frozen=True):
    """One virtual node."""

    name: str
    gpus: int
    slots: int  # tasks it runs at most
    since_s: float
    down: str = ""  # why it is down; "" where it is not
    drained: str | None = None  # why it gets no new work; None where it does
    fault: InjectedFault | None = None
    fault_s: float = 0.0  # since when
    ended: bool = False  # while thawing: TERM was sent

    @property
    def takes_work(self) -> bool:
        return not self.down and self.drained is None and self.fault is None

    def state(self, busy: bool) -> NodeState:
        """What others are told; `busy` says whether an attempt runs on it."""
        if self.down:
            return NodeState.DOWN
        if self.drained is None:
            return NodeState.UP
        return NodeState.DRAINING if busy else NodeState.DRAINED

    def told(self, busy: bool, gpus_used: int) -> Node:
        why = self.down or self.drained or ""
        return Node(self.name, self.state(busy), why, self.gpus, gpus_used, self.since_s, partitions=(PARTITION,))


class LocalJob(Struct, frozen=True):
    """One job and its state. `incarnation` counts its starts; 0 before the first."""

    job_id: str
    spec: JobSpec
    state: JobState
    submit_s: float
    eligible_s: float
    excluded: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    reason: str = ""
    incarnation: int = 0
    restarts: int = 0
    end_s: float | None = None
    nice: int = 0  # taken from its priority
    resized: int = 0  # the nodes that it asks for since a restart; 0: those of its `spec`

    @property
    def node_count(self) -> int:
        return self.resized or self.spec.node_count

    @property
    def rank(self) -> tuple[int, int]:
        """Place in the queue: higher priority first, then the earlier submit."""
        return (-self.priority, int(self.job_id))

    @property
    def priority(self) -> int:
        """What its owner asked for, in large steps, less its nice."""
        return PRIORITY + PRIORITY_STEP * self.spec.priority - self.nice

    @property
    def need(self) -> tuple[object, ...]:
        """All that decides where it fits."""
        return (self.spec.gpus_per_node, self.node_count, self.excluded, self.required)

    @property
    def may_restart(self) -> bool:
        spec = self.spec
        return spec.may_requeue and (spec.max_requeues is None or self.restarts < spec.max_requeues)

    def told(self, cluster: str) -> Job:
        spec = self.spec
        return Job(
            cluster=cluster,
            job_id=self.job_id,
            name=spec.name,
            user=spec.user,
            state=self.state,
            submit_s=self.submit_s,
            partition=PARTITION,
            gpus=spec.gpus_per_node * self.node_count,
            node_count=self.node_count,
            restart_nodes=(spec.min_nodes, spec.node_count) if spec.min_nodes else None,
            walltime_s=spec.walltime_s,
            may_requeue=spec.may_requeue,
            wish=spec.wish,
            reason=self.reason,
            excluded=self.excluded,
            required=self.required,
            required_by="the job's owner",
            restarts=self.restarts,
            eligible_s=self.eligible_s,
            work_dir=spec.workdir,
        )


class LocalEnding(Struct, frozen=True):
    """An attempt is being ended: TERM was sent, KILL follows at `kill_s`."""

    state: AttemptState  # what it will have been
    reason: str
    kill_s: float
    killed: bool = False


class TaskExit(Struct, frozen=True):
    """How the task of one rank ended: as `subprocess.Popen.returncode` says it."""

    rank: int
    status: int


class AttemptRecord(Struct, frozen=True):
    """One execution of a job: task `i` runs on ``nodes[i]`` with the GPUs ``devices[i]``."""

    job_id: str
    incarnation: int
    state: AttemptState
    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...]
    start_s: float
    log: str
    user: str
    end_s: float | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    failed_nodes: tuple[str, ...] = ()
    exits: tuple[TaskExit, ...] = ()  # in the order in which they came
    ending: LocalEnding | None = None
    warned: bool = False  # the early signal was sent

    def told(self, cluster: str) -> Attempt:
        return Attempt(
            id=AttemptId(cluster, self.job_id, self.incarnation),
            state=self.state,
            nodes=self.nodes,
            start_s=self.start_s,
            end_s=self.end_s,
            exit_code=self.exit_code,
            signal=self.signal,
            reason=self.reason,
            gpus=sum(len(gpus) for gpus in self.devices),
            user=self.user,
            stdout=self.log,
            stderr=self.log,
            failed_nodes=self.failed_nodes,
        )
