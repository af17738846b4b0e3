"""State machine of the embedded cluster: which job starts, ends, waits. It touches no clock, process, file or socket.

Every method takes the time as an argument, changes the records held here, and leaves behind what must now be done to
real processes (`Effect`). The caller takes both with `take`, makes the records durable, and only then acts.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from perdure.backends.local.placement import TaskPlace, choose_victims, free_capacity, occupy, place
from perdure.backends.local.records import (
    AttemptRecord,
    InjectedFault,
    LocalEnding,
    LocalJob,
    LocalNode,
    TaskExit,
    Timing,
)
from perdure.backends.local.spec import JobSpec, signal_number
from perdure.errors import ClusterError, NotFound
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import Node
from perdure.slurm_words.reasons import CANNOT_RUN, RESOURCES

MAX_WAITING = 20_000
RESTARTED = "cluster daemon restarted"


@dataclass(frozen=True, slots=True)
class Launch:
    """Start all tasks of an attempt."""

    job: LocalJob
    attempt: AttemptRecord


@dataclass(frozen=True, slots=True)
class SignalTasks:
    """Send a signal to the process groups of some tasks; KILL goes to all they have started."""

    job_id: str
    incarnation: int
    ranks: tuple[int, ...]
    signum: int


@dataclass(frozen=True, slots=True)
class SignalNode:
    """Send a signal to everything that runs on a node, what is left of ended attempts included."""

    node: str
    signum: int


Effect = Launch | SignalTasks | SignalNode


@dataclass(frozen=True, slots=True)
class CoreStep:
    """What changed, and what is to be done once that is durable."""

    jobs: tuple[LocalJob, ...]
    attempts: tuple[AttemptRecord, ...]
    nodes: tuple[LocalNode, ...]
    effects: tuple[Effect, ...]


class Core:
    """The state of one cluster: every job it remembers, the attempts that run, the nodes."""

    def __init__(
        self,
        nodes: Iterable[LocalNode],
        jobs: Iterable[LocalJob],
        running: Iterable[AttemptRecord],
        next_job: int,
        timing: Timing,
        log_pattern: str,
    ) -> None:
        """`log_pattern` makes the path of an attempt's log: ``/state/logs/{job}-{incarnation}.log``."""
        self.nodes: dict[str, LocalNode] = {node.name: node for node in nodes}
        self.jobs: dict[str, LocalJob] = {job.job_id: job for job in jobs}
        self.running: dict[str, AttemptRecord] = {attempt.job_id: attempt for attempt in running}
        self.timing = timing
        self._waiting: dict[str, None] = {job.job_id: None for job in self.jobs.values() if job.state.is_waiting}
        self._next_job = next_job
        self._log_pattern = log_pattern
        self._schedule_due = True
        self._changed_jobs: dict[str, None] = {}
        self._changed_attempts: dict[tuple[str, int], AttemptRecord] = {}
        self._changed_nodes: dict[str, None] = {}
        self._effects: list[Effect] = []

    def take(self) -> CoreStep:
        """Hand over what has changed and what is to be done since the last call."""
        step = CoreStep(
            tuple(self.jobs[job_id] for job_id in self._changed_jobs),
            tuple(self._changed_attempts.values()),
            tuple(self.nodes[name] for name in self._changed_nodes),
            tuple(self._effects),
        )
        self._changed_jobs, self._changed_attempts, self._changed_nodes, self._effects = {}, {}, {}, []
        return step

    # What users and operators ask for

    def submit(self, spec: JobSpec, now: float) -> str:
        """Queue a job and return its id. Raises `ClusterError` where this cluster can never run it."""
        if len(self._waiting) >= MAX_WAITING:
            raise ClusterError("submit", f"{MAX_WAITING} jobs wait already", "Submit again when some have ended")
        if unknown := sorted({*spec.require, *spec.exclude} - self.nodes.keys()):
            raise ClusterError("submit", f"no node is called {unknown[0]!r}", f"Use one of {', '.join(self.nodes)}")
        if self.candidates(spec, spec.exclude) < spec.node_count:
            nodes = "1 node" if spec.node_count == 1 else f"{spec.node_count} nodes"
            size = f"{nodes} with {spec.gpus_per_node} GPUs{' each' if spec.node_count > 1 else ''}"
            raise ClusterError("submit", f"this cluster can never offer {size}", "Ask for less or exclude fewer nodes")
        job_id, self._next_job = str(self._next_job), self._next_job + 1
        state, reason = (JobState.HELD, "JobHeldUser") if spec.hold else (JobState.PENDING, "")
        job = LocalJob(job_id, spec, state, now, now + spec.delay_s, spec.exclude, spec.require, reason)
        self.put_job(job)
        return job_id

    def candidates(self, spec: JobSpec, excluded: Iterable[str]) -> int:
        """How many nodes could ever host a task of such a job."""
        barred = set(excluded)
        return sum(node.name not in barred and node.gpus >= spec.gpus_per_node for node in self.nodes.values())

    def _could_start(self, job: LocalJob) -> bool:
        """Whether it could on an empty cluster: it may have come back with fewer nodes, or GPUs."""
        enough = self.candidates(job.spec, job.excluded) >= job.node_count
        return enough and self.nodes.keys() >= set(job.required)

    def inject(self, name: str, what: str, now: float) -> None:
        """Do something to a node: "fail", "freeze", "thaw" or "return".

        Raises `NotFound` for an unknown node, `ClusterError` where the node is in no state for it.
        """
        node = self.nodes.get(name)
        if node is None:
            raise NotFound(name, "no node has this name", f"Use one of {', '.join(self.nodes)}")
        match what:
            case "fail" if node.fault is not InjectedFault.FAILED:
                self._effects.append(SignalNode(name, signal.SIGKILL))
                self.put_node(replace(node, fault=InjectedFault.FAILED, fault_s=node.fault_s if node.fault else now))
            case "freeze" if node.fault is None and not node.down:
                self._effects.append(SignalNode(name, signal.SIGSTOP))
                self.put_node(replace(node, fault=InjectedFault.FROZEN, fault_s=now))
            case "thaw" if node.fault is InjectedFault.FROZEN:
                self._thaw(node, now)
            case "return":
                self._return(node, now)
            case "fail" | "freeze" | "thaw":
                raise ClusterError(name, f"a node in this state cannot {what}", "Look at it with: perdure nodes")
            case _:
                raise ClusterError(name, f"nothing is called {what!r}", "Use fail, freeze, thaw or return")

    # What processes report

    def task_ended(self, job_id: str, incarnation: int, rank: int, status: int, now: float) -> None:
        """The task of a rank is over. A task on a node that is dead or frozen cannot report, so nothing is heard."""
        attempt = self.running.get(job_id)
        if attempt is None or attempt.incarnation != incarnation or self.nodes[attempt.nodes[rank]].fault:
            return
        attempt = replace(attempt, exits=(*attempt.exits, TaskExit(rank, status)))
        self._put_attempt(attempt)
        if len(attempt.exits) == len(attempt.nodes):
            self._finish_by_exits(attempt, now)
        elif status != 0 and attempt.ending is None:
            self.end_attempt(attempt, AttemptState.FAILED, f"task {rank} on {attempt.nodes[rank]} failed first", now)

    def launch_failed(self, job_id: str, incarnation: int, reason: str, now: float) -> None:
        """The tasks of an attempt could not be started."""
        attempt = self.running.get(job_id)
        if attempt is not None and attempt.incarnation == incarnation:
            self._finish(attempt, AttemptState.LAUNCH_FAILED, reason, now)

    def stop(self, reason: str, now: float) -> None:
        """End all that runs, as the daemon's owner ends it: no node failed, and what may start again goes back."""
        for attempt in tuple(self.running.values()):
            if attempt.ending is not None:
                self._finish_by_exits(attempt, now)
            else:
                goes_back = self.jobs[attempt.job_id].may_restart
                self._finish(attempt, AttemptState.REQUEUED if goes_back else AttemptState.CANCELLED, reason, now)

    def all_lost(self, reason: str, now: float) -> None:
        """Nothing runs any more: the daemon has been restarted after a crash."""
        for attempt in tuple(self.running.values()):
            self._finish(attempt, AttemptState.NODE_FAIL, reason, now)
        for node in tuple(self.nodes.values()):
            if node.fault is not None:
                self.put_node(replace(node, fault=None, fault_s=0.0, ended=False))

    # Time

    def tick(self, now: float) -> None:
        """Do what is due: notice faults, send signals, end attempts at their walltime, start jobs."""
        for node in tuple(self.nodes.values()):
            self._tick_node(node, now)
        for attempt in tuple(self.running.values()):
            self._tick_attempt(attempt, now)
        if self._schedule_due or any(self.jobs[j].reason == "BeginTime" for j in self._waiting):
            self._schedule(now)

    def next_wake_s(self) -> float | None:
        """The next instant at which `tick` has something to do by itself; None where only news can change anything."""
        instants = [node.fault_s + self._node_wait_s(node) for node in self.nodes.values() if self._is_timed(node)]
        for attempt in self.running.values():
            instants += self._attempt_instants(attempt)
        instants += [self.jobs[j].eligible_s for j in self._waiting if self.jobs[j].reason == "BeginTime"]
        return min(instants, default=None)

    # What others may look at

    def told_nodes(self) -> tuple[Node, ...]:
        """The nodes as others see them."""
        used = dict.fromkeys(self.nodes, 0)
        busy: set[str] = set()
        for attempt in self.running.values():
            busy.update(attempt.nodes)
            for name, gpus in zip(attempt.nodes, attempt.devices, strict=True):
                used[name] += len(gpus)
        return tuple(node.told(node.name in busy, used[node.name]) for node in self.nodes.values())

    # Changing records

    def put_job(self, job: LocalJob) -> None:
        """Replace a job's record."""
        self.jobs[job.job_id] = job
        self._changed_jobs[job.job_id] = None
        self._schedule_due = True
        if job.state.is_waiting:
            self._waiting[job.job_id] = None
        else:
            self._waiting.pop(job.job_id, None)

    def put_node(self, node: LocalNode) -> None:
        """Replace a node's record."""
        self.nodes[node.name] = node
        self._changed_nodes[node.name] = None
        self._schedule_due = True

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drop jobs that are over."""
        for job_id in job_ids:
            del self.jobs[job_id]

    def end_attempt(self, attempt: AttemptRecord, state: AttemptState, reason: str, now: float) -> None:
        """Send TERM to an attempt, to be followed by KILL; once its tasks are gone it will have ended as `state`."""
        ending = LocalEnding(state, reason, now + self.timing.kill_wait_s)
        if attempt.ending is not None:  # a new reason gives no new time
            ending = replace(ending, kill_s=attempt.ending.kill_s, killed=attempt.ending.killed)
        else:
            self._signal(attempt, signal.SIGTERM)
        self._put_attempt(replace(attempt, ending=ending))

    def _put_attempt(self, attempt: AttemptRecord) -> None:
        self._changed_attempts[attempt.job_id, attempt.incarnation] = attempt
        if attempt.state.is_over:
            self.running.pop(attempt.job_id, None)
            self._schedule_due = True
        else:
            self.running[attempt.job_id] = attempt

    def _signal(self, attempt: AttemptRecord, signum: int) -> None:
        """To those tasks that run on a node that can be reached."""
        gone = {task.rank for task in attempt.exits}
        reached = {node.name for node in self.nodes.values() if node.fault is None}
        ranks = tuple(rank for rank, node in enumerate(attempt.nodes) if rank not in gone and node in reached)
        if ranks:
            self._effects.append(SignalTasks(attempt.job_id, attempt.incarnation, ranks, signum))

    # Attempts

    def _tick_attempt(self, attempt: AttemptRecord, now: float) -> None:
        spec = self.jobs[attempt.job_id].spec
        if attempt.ending is not None:
            if now >= attempt.ending.kill_s and not attempt.ending.killed:
                self._signal(attempt, signal.SIGKILL)
                self._put_attempt(replace(attempt, ending=replace(attempt.ending, killed=True)))
        elif spec.walltime_s is not None and now >= attempt.start_s + spec.walltime_s:
            self.end_attempt(attempt, AttemptState.TIMEOUT, f"walltime of {spec.walltime_s:g} s reached", now)
        elif (warn_s := self._warn_instant(attempt)) is not None and now >= warn_s:
            self._signal(attempt, signal_number(spec.signal) or 0)
            self._put_attempt(replace(attempt, warned=True))

    def _attempt_instants(self, attempt: AttemptRecord) -> list[float]:
        if attempt.ending is not None:
            return [] if attempt.ending.killed else [attempt.ending.kill_s]
        walltime_s, warn_s = self.jobs[attempt.job_id].spec.walltime_s, self._warn_instant(attempt)
        instants = [] if walltime_s is None else [attempt.start_s + walltime_s]
        return instants if warn_s is None else [*instants, warn_s]

    def _warn_instant(self, attempt: AttemptRecord) -> float | None:
        spec = self.jobs[attempt.job_id].spec
        if not spec.signal or spec.walltime_s is None or attempt.warned:
            return None
        return attempt.start_s + max(0.0, spec.walltime_s - spec.signal_before_s)

    def _finish_by_exits(self, attempt: AttemptRecord, now: float) -> None:
        """All tasks are gone: what ended the attempt, or else the first task that failed, says how."""
        failed = next((task for task in attempt.exits if task.status != 0), None)
        if attempt.ending is not None and attempt.ending.state is not AttemptState.FAILED:
            self._finish(attempt, attempt.ending.state, attempt.ending.reason, now)
        elif failed is None:
            self._finish(attempt, AttemptState.COMPLETED, "", now)
        else:
            code, signum = (failed.status, 0) if failed.status > 0 else (0, -failed.status)
            reason = attempt.ending.reason if attempt.ending else "NonZeroExitCode"
            self._finish(replace(attempt, exit_code=code, signal=signum), AttemptState.FAILED, reason, now)

    def _finish(self, attempt: AttemptRecord, state: AttemptState, reason: str, now: float) -> None:
        """End an attempt now, and settle what happens to its job."""
        if attempt.ending is not None and attempt.ending.state is AttemptState.CANCELLED:
            state, reason = AttemptState.CANCELLED, attempt.ending.reason
        nodes = (self.nodes.get(name) for name in attempt.nodes)  # a cluster may come back with fewer
        down = tuple(node.name for node in nodes if node is not None and node.down)
        failed_nodes = down if state is AttemptState.NODE_FAIL else ()
        self._signal(attempt, signal.SIGKILL)
        self._put_attempt(
            replace(attempt, state=state, end_s=now, reason=reason, failed_nodes=failed_nodes, ending=None)
        )
        self.put_job(self._job_after(self.jobs[attempt.job_id], state, reason, now))

    def _job_after(self, job: LocalJob, state: AttemptState, reason: str, now: float) -> LocalJob:
        requeued = state in (AttemptState.PREEMPTED, AttemptState.REQUEUED) or (
            state is AttemptState.NODE_FAIL and job.spec.requeue_on_node_fail
        )
        if requeued and job.may_restart:
            eligible_s = now + self.timing.requeue_delay_s
            return replace(
                job, state=JobState.PENDING, restarts=job.restarts + 1, eligible_s=eligible_s, reason=str(state)
            )
        ends = {AttemptState.COMPLETED: JobState.COMPLETED, AttemptState.CANCELLED: JobState.CANCELLED}
        return replace(job, state=ends.get(state, JobState.FAILED), reason=reason, end_s=now)

    # Nodes

    def _is_timed(self, node: LocalNode) -> bool:
        return node.fault is InjectedFault.THAWING or (node.fault is not None and not node.down)

    def _node_wait_s(self, node: LocalNode) -> float:
        if node.fault is not InjectedFault.THAWING:
            return self.timing.detect_s
        return self.timing.thaw_s + (self.timing.kill_wait_s if node.ended else 0.0)

    def _tick_node(self, node: LocalNode, now: float) -> None:
        if not self._is_timed(node) or now < node.fault_s + self._node_wait_s(node):
            return
        if node.fault is not InjectedFault.THAWING:
            self._take_down(node, now)
        elif not node.ended:
            self._effects.append(SignalNode(node.name, signal.SIGTERM))
            self.put_node(replace(node, ended=True))
        else:
            self._return(node, now)

    def _take_down(self, node: LocalNode, now: float, reason: str = "Not responding") -> None:
        """Notice that a node does not answer: what ran there has failed, whatever its processes still do."""
        self.put_node(replace(node, down=reason, since_s=now))
        for attempt in tuple(self.running.values()):
            if node.name in attempt.nodes:
                self._finish(attempt, AttemptState.NODE_FAIL, f"node {node.name} failed", now)

    def set_down(self, name: str, reason: str, now: float) -> None:
        """Give a node up: what ran there has failed, and its processes are killed where they can be reached."""
        self._take_down(self.nodes[name], now, reason)
        self._effects.append(SignalNode(name, signal.SIGKILL))

    def set_up(self, name: str, now: float) -> None:
        """Take a node back that was given up while nothing was wrong with it."""
        node = self.nodes[name]
        if node.down and node.fault is None:
            self._return(node, now)

    def _thaw(self, node: LocalNode, now: float) -> None:
        """Continue stopped processes; where the node was given up, what still runs there is ended soon."""
        self._effects.append(SignalNode(node.name, signal.SIGCONT))
        thawing = InjectedFault.THAWING if node.down else None
        self.put_node(replace(node, fault=thawing, fault_s=now, ended=False))

    def _return(self, node: LocalNode, now: float) -> None:
        """A fresh boot: whatever was left on the node is gone, and it takes work again unless it is drained."""
        if node.fault is not None and not node.down:  # nobody noticed yet; a boot is noticed
            self._take_down(node, now)
        if node.fault is not None or node.down:
            self._effects.append(SignalNode(node.name, signal.SIGKILL))
            self.put_node(replace(self.nodes[node.name], fault=None, fault_s=0.0, ended=False, down="", since_s=now))

    # The queue

    def _schedule(self, now: float) -> None:
        """Start what fits, in order of rank; what does not fit is passed over, or pushes others aside."""
        self._schedule_due = False
        nodes, running = tuple(self.nodes.values()), self.running
        free = free_capacity(nodes, running.values())
        unmet: dict[object, str] = {}  # needs that did not fit: what is free only shrinks, so they are not tried again
        for job in sorted((self.jobs[job_id] for job_id in self._waiting), key=lambda job: job.rank):
            if job.state is JobState.HELD:
                continue
            if job.eligible_s > now:
                self._wait(job, "BeginTime")
                continue
            places = None if job.need in unmet else place(job, free)
            if places is not None:
                free = occupy(free, ((each.node, each.gpus) for each in places))
                self._start(job, places, now)
                continue
            is_new = job.need not in unmet
            self._wait(job, unmet.setdefault(job.need, RESOURCES if self._could_start(job) else CANNOT_RUN))
            if is_new:
                for victim in choose_victims(job, nodes, tuple(running.values()), self.jobs):
                    self.end_attempt(victim, AttemptState.PREEMPTED, f"preempted by job {job.job_id}", now)
        self._schedule_due = False  # saying why a job waits frees nothing

    def _wait(self, job: LocalJob, reason: str) -> None:
        if job.reason != reason:
            self.put_job(replace(job, reason=reason))

    def _start(self, job: LocalJob, places: tuple[TaskPlace, ...], now: float) -> None:
        job = replace(job, state=JobState.RUNNING, incarnation=job.incarnation + 1, reason="", end_s=None)
        attempt = AttemptRecord(
            job_id=job.job_id,
            incarnation=job.incarnation,
            state=AttemptState.RUNNING,
            nodes=tuple(each.node for each in places),
            devices=tuple(each.gpus for each in places),
            start_s=now,
            log=self._log_pattern.format(job=job.job_id, incarnation=job.incarnation),
            user=job.spec.user,
        )
        self.put_job(job)
        self._put_attempt(attempt)
        self._effects.append(Launch(job, attempt))


def fresh_nodes(count: int, gpus: int, slots: int, known: Mapping[str, LocalNode], now: float) -> list[LocalNode]:
    """Nodes ``n1`` to ``n<count>`` of one size; what is `known` of them (drained, down) is kept."""
    names = [f"n{i}" for i in range(1, count + 1)]
    return [
        replace(known[name], gpus=gpus, slots=slots) if name in known else LocalNode(name, gpus, slots, now)
        for name in names
    ]
