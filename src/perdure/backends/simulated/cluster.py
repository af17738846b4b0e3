"""The simulated cluster itself: what is really true, and what was really carried out.

Time moves only in `advance`. Jobs follow a `Script`; the manager starts them first come, first served, passing over
those that do not fit, and requeues by itself after node failures and some exit codes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perdure.errors import NotFound
from perdure.model.actions import (
    Action,
    Cancel,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation

EVERY = -1  # as `Script.failures`: each attempt fails
START_S = 1_000_000.0
REMEMBERED_S = 300.0  # how long the manager lists a job that is over
NOT_RESPONDING = "Not responding"  # of a node that died by itself

_STATE_AFTER = {
    AttemptState.COMPLETED: JobState.COMPLETED,
    AttemptState.CANCELLED: JobState.CANCELLED,
}


class Script(Struct, frozen=True):
    """How a job behaves: each attempt prints `says`, runs for `run_s` seconds, then ends well or fails.

    The first `failures` attempts fail, and so does any on one of `bad_nodes`; a failing one prints `error`.
    """

    run_s: float = 10.0
    says: str = ""
    failures: int = 0
    bad_nodes: tuple[str, ...] = ()
    exit_code: int = 1
    error: str = ""
    node_count: int = 1
    min_nodes: int = 0  # that a restart may have; 0: none fewer than `node_count`
    gpus_per_node: int = 1
    may_requeue: bool = True
    user: str = "ada"
    name: str = "train"

    def fails(self, ordinal: int, nodes: Iterable[str]) -> bool:
        """Does the attempt of this ordinal (from 1) on these nodes fail?"""
        return self.failures == EVERY or ordinal <= self.failures or not set(nodes).isdisjoint(self.bad_nodes)


class SubmittedJob(Struct):
    """A job as the manager keeps it."""

    script: Script
    job: Job
    attempts: list[Attempt] = field(default_factory=list)
    ends_s: float = math.inf  # when the running attempt is through
    over_s: float = math.inf  # when the job was over
    before: int = 0  # the latest incarnation of another job that had the id

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def incarnation(self) -> int:
        return self.attempts[-1].id.incarnation if self.attempts else 0


class SimulatedCluster:
    """The truth. The same seed and the same calls give the same cluster.

    With `guarded` (the default) an action takes effect only on the attempt that it names, as long as that is the
    latest. Without, the manager does blindly what it is told, as often as it is told.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 4,
        *,
        name: str = "sim",
        gpus: int = 8,
        requeue_exit: frozenset[int] = frozenset(),
        guarded: bool = True,
    ) -> None:
        self.name = name
        self.now = START_S
        self.effects: Counter[str] = Counter()  # by key of the action: how often it was really carried out
        self.recoveries: Counter[AttemptId] = Counter()  # how often its job was put back after this attempt
        self._rng = np.random.default_rng(seed)
        self._nodes = {f"n{i}": Node(f"n{i}", NodeState.UP, gpus=gpus, since_s=self.now) for i in range(1, nodes + 1)}
        self._jobs: dict[str, SubmittedJob] = {}
        self._live: dict[str, SubmittedJob] = {}  # not over: all that time can change
        self._outcomes: dict[str, Outcome] = {}
        self._logs: dict[str, bytes] = {}
        self._ids = itertools.count(1)
        self._requeue_exit = requeue_exit
        self._guarded = guarded

    # -- what users and fate do

    def submit(self, script: Script) -> str:
        """Queue a job; it may start at the next `advance`. Returns its id."""
        job_id = str(next(self._ids))
        job = Job(
            self.name,
            job_id,
            script.name,
            script.user,
            JobState.PENDING,
            self.now,
            gpus=script.gpus_per_node * script.node_count,
            node_count=script.node_count,
            restart_nodes=(script.min_nodes, script.node_count) if script.min_nodes else None,
            may_requeue=script.may_requeue,
        )
        self._jobs[job_id] = self._live[job_id] = SubmittedJob(script, job)
        return job_id

    def advance(self, seconds: float) -> None:
        """Advance time: attempts end in the order of their ends, and whatever fits starts."""
        until = self.now + seconds
        self._start_what_fits()
        while (next_s := self._next_change_s()) <= until:
            self.now = next_s
            for submitted in [s for s in self._live.values() if s.ends_s <= next_s]:
                self._end_by_script(submitted)
            self._start_what_fits()
        self.now = until

    def fail_node(self, name: str, reason: str = NOT_RESPONDING) -> None:
        """Fail a node, and every attempt on it."""
        self._set_node(name, NodeState.DOWN, reason)
        for submitted in list(self._live.values()):
            latest = submitted.latest
            if submitted.job.state is JobState.RUNNING and latest is not None and name in latest.nodes:
                failed = replace(latest, reason=f"node {name} failed", failed_nodes=(name,))
                self._end(submitted, failed, AttemptState.NODE_FAIL, back=submitted.script.may_requeue)
        self._start_what_fits()

    def return_node(self, name: str) -> None:
        """Bring a dead or drained node back."""
        self._set_node(name, NodeState.UP, "")

    # -- what can be asked

    @property
    def idle(self) -> bool:
        """True where no job waits or runs."""
        return not self._live

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    def script(self, job_id: str) -> Script:
        return self._jobs[job_id].script

    def job(self, job_id: str) -> Job:
        return self._jobs[job_id].job

    def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        return tuple(self._jobs[job_id].attempts)

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(self._jobs)

    def observation(self, since_s: float) -> Observation:
        """All that is true and not yet forgotten."""
        told = [s for s in self._jobs.values() if s.over_s > min(since_s, self.now - REMEMBERED_S)]
        return Observation(
            self.name,
            self.now,
            tuple(s.job for s in told if s.over_s > self.now - REMEMBERED_S),
            tuple(a for s in told for a in s.attempts if a.end_s is None or a.end_s >= since_s),
            tuple(self._nodes.values()),
        )

    def log(self, path: str) -> bytes:
        """What an attempt has written. Raises `NotFound` where nothing was."""
        if path not in self._logs:
            raise NotFound(path, "no such log", "Ask for an attempt that ran here")
        return self._logs[path]

    def outcome(self, action: Action) -> Outcome | None:
        """The result of an action; None where it was never carried out and still could be."""
        return self._outcomes.get(action.key)

    # -- what can be ordered

    def carry_out(self, action: Action) -> Outcome:
        """Do what is asked, and remember it under the action's key."""
        earlier = self._outcomes.get(action.key)
        if self._guarded and earlier is not None and not _is_repeatable(action):
            return earlier
        outcome = self._on_node(action) if isinstance(action, NodeAction) else self._on_job(action)
        if outcome.status is OutcomeStatus.DONE:
            self._outcomes[action.key] = outcome
        self._start_what_fits()
        return outcome

    def _on_node(self, action: NodeAction) -> Outcome:
        node = self._nodes.get(action.node)
        if node is None:
            return Outcome(OutcomeStatus.REFUSED, f"no node {action.node}")
        if isinstance(action, Drain):
            busy = any(action.node in a.nodes for a in self._running())
            self._set_node(action.node, NodeState.DRAINING if busy else NodeState.DRAINED, action.reason)
        elif isinstance(action, Down):
            if node.state is not NodeState.DOWN:
                self.fail_node(action.node, action.reason)
        elif node.state is not NodeState.DOWN or node.reason != NOT_RESPONDING:
            self._set_node(action.node, NodeState.UP, "")
        self.effects[action.key] += 1
        return Outcome(OutcomeStatus.DONE)

    def _on_job(self, action: JobAction) -> Outcome:
        submitted = self._jobs.get(action.attempt.job_id)
        if submitted is None:
            return Outcome(OutcomeStatus.SUPERSEDED, "the job is gone")
        if self._guarded and submitted.incarnation != action.attempt.incarnation:
            return Outcome(OutcomeStatus.SUPERSEDED, f"attempt {submitted.incarnation} exists")
        outcome = action.taken(submitted.job.user) or self._change(submitted, action)
        if outcome.status is OutcomeStatus.DONE:
            self.effects[action.key] += 1
        return outcome

    def _change(self, submitted: SubmittedJob, action: JobAction) -> Outcome:
        done, job = Outcome(OutcomeStatus.DONE), submitted.job
        match action:
            case Requeue():
                return self._requeue(submitted, action)
            case Preempt() if job.state is JobState.RUNNING and job.may_requeue and submitted.latest is not None:
                self._end(submitted, submitted.latest, AttemptState.REQUEUED, back=False)
                self._put_back(submitted, action.attempt, 0.0)
                return done
            case Cancel() if not job.state.is_over:
                self._cancel(submitted)
                return done
            case Exclude() if job.state.is_waiting:
                submitted.job = _placed(job, submitted.script, action)
                return done
            case Extend(walltime_s=walltime_s) if job.state is JobState.RUNNING:
                if job.walltime_s is not None and job.walltime_s < walltime_s:
                    submitted.job = replace(job, walltime_s=walltime_s)
                return done
            case Hold() if job.state.is_waiting:
                submitted.job = replace(job, state=JobState.HELD, reason="held by Perdure")
                return done
            case Release() if job.state.is_waiting:
                submitted.job = replace(job, state=JobState.PENDING, reason="")
                return done
        return Outcome(OutcomeStatus.SUPERSEDED, f"the job is {job.state}")

    def _requeue(self, submitted: SubmittedJob, action: Requeue) -> Outcome:
        job = submitted.job
        if not job.may_requeue:
            return Outcome(OutcomeStatus.REFUSED, "the job must not be requeued")
        if job.state is JobState.CANCELLED or (self._guarded and not job.state.is_over):
            return Outcome(OutcomeStatus.SUPERSEDED, f"the job is {job.state}")
        latest = submitted.latest
        if job.state is JobState.RUNNING and latest is not None:
            self._end(submitted, latest, AttemptState.REQUEUED, back=False)
        self._put_back(submitted, action.attempt, action.delay_s)
        submitted.job = _placed(submitted.job, submitted.script, action)
        return Outcome(OutcomeStatus.DONE)

    def _cancel(self, submitted: SubmittedJob) -> None:
        if submitted.job.state is JobState.RUNNING and submitted.latest is not None:
            self._end(submitted, submitted.latest, AttemptState.CANCELLED, back=False)
        else:
            self._over(submitted, JobState.CANCELLED)

    # -- the manager at work

    def _running(self) -> list[Attempt]:
        return [s.attempts[-1] for s in self._live.values() if s.job.state is JobState.RUNNING]

    def _next_change_s(self) -> float:
        """When the next attempt ends or the next waiting job may start; jobs that wait for room do not count."""
        instants = [s.ends_s for s in self._live.values()]
        instants += [
            s.job.eligible_s
            for s in self._live.values()
            if s.job.state is JobState.PENDING and s.job.eligible_s is not None and s.job.eligible_s > self.now
        ]
        return min(instants, default=math.inf)

    def _start_what_fits(self) -> None:
        waiting = [
            s for s in self._live.values() if s.job.state is JobState.PENDING and (s.job.eligible_s or 0.0) <= self.now
        ]
        free = self._free() if waiting else {}
        for submitted in waiting:
            job, script = submitted.job, submitted.script
            fitting = [n for n, left in free.items() if left >= script.gpus_per_node and n not in job.excluded]
            if len(fitting) < job.node_count:
                continue
            order = self._rng.permutation(len(fitting))
            chosen = tuple(sorted([fitting[place] for place in order[: job.node_count]]))
            for name in chosen:
                free[name] -= script.gpus_per_node
            self._start(submitted, chosen)
        self._settle_drains()

    def _free(self) -> dict[str, int]:
        """GPUs that are free, by node."""
        free = {name: node.gpus for name, node in self._nodes.items() if node.state is NodeState.UP}
        for submitted in self._live.values():
            if submitted.job.state is JobState.RUNNING:
                for name in submitted.attempts[-1].nodes:
                    if name in free:
                        free[name] -= submitted.script.gpus_per_node
        return free

    def _start(self, submitted: SubmittedJob, nodes: tuple[str, ...]) -> None:
        job, script = submitted.job, submitted.script
        attempt_id = AttemptId(self.name, job.job_id, (submitted.incarnation or submitted.before) + 1)
        path = f"/simulated/{attempt_id}.log"
        submitted.attempts.append(
            Attempt(
                attempt_id,
                AttemptState.RUNNING,
                nodes,
                self.now,
                gpus=script.gpus_per_node * len(nodes),
                user=script.user,
                stdout=path,
            )
        )
        submitted.job = replace(job, state=JobState.RUNNING, reason="", eligible_s=None)
        submitted.ends_s = self.now + script.run_s
        self._logs[path] = script.says.encode(errors="replace") + b"\n"

    def _end_by_script(self, submitted: SubmittedJob) -> None:
        attempt, script = submitted.attempts[-1], submitted.script
        if not script.fails(len(submitted.attempts), attempt.nodes):
            self._end(submitted, attempt, AttemptState.COMPLETED, back=False)
            return
        self._logs[attempt.stdout] += script.error.encode(errors="replace") + b"\n"
        back = script.exit_code in self._requeue_exit and script.may_requeue
        self._end(submitted, replace(attempt, exit_code=script.exit_code), AttemptState.FAILED, back=back)

    def _end(self, submitted: SubmittedJob, attempt: Attempt, state: AttemptState, *, back: bool) -> None:
        """End the running attempt; `back` puts its job back into the queue, by the manager's own choice."""
        submitted.attempts[-1] = replace(attempt, state=state, end_s=self.now)
        submitted.ends_s = math.inf
        self._over(submitted, _STATE_AFTER.get(state, JobState.FAILED))
        if back:
            self._put_back(submitted, attempt.id, 0.0)

    def _over(self, submitted: SubmittedJob, state: JobState) -> None:
        submitted.job = replace(submitted.job, state=state)
        submitted.over_s = self.now
        self._live.pop(submitted.job.job_id, None)

    def _put_back(self, submitted: SubmittedJob, after: AttemptId, delay_s: float) -> None:
        self.recoveries[after] += 1
        submitted.over_s = math.inf
        submitted.job = replace(
            submitted.job,
            state=JobState.PENDING,
            reason="requeued",
            restarts=submitted.job.restarts + 1,
            eligible_s=self.now + delay_s,
        )
        self._live[submitted.job.job_id] = submitted

    def _set_node(self, name: str, state: NodeState, reason: str) -> None:
        if name not in self._nodes:
            raise NotFound(name, "no such node", f"Use one of: {', '.join(self._nodes)}")
        self._nodes[name] = replace(self._nodes[name], state=state, reason=reason, since_s=self.now)

    def _settle_drains(self) -> None:
        draining = [node for node in self._nodes.values() if node.state is NodeState.DRAINING]
        busy = {name for attempt in self._running() for name in attempt.nodes} if draining else set()
        for node in draining:
            if node.name not in busy:
                self._nodes[node.name] = replace(node, state=NodeState.DRAINED, since_s=self.now)


def _placed(job: Job, script: Script, action: Requeue | Exclude) -> Job:
    """The job kept off more nodes, and on as many as asked for."""
    node_count = action.node_count or job.node_count
    kept = [name for name in job.excluded if name not in action.lift]
    excluded = tuple(dict.fromkeys([*kept, *action.exclude]))
    return replace(job, excluded=excluded, node_count=node_count, gpus=script.gpus_per_node * node_count)


def _is_repeatable(action: Action) -> bool:
    """Actions that set a state may be wanted again after it was undone; those that move a job on may not."""
    return isinstance(action, (Hold, Release, Exclude))
