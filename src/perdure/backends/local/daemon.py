"""The embedded cluster's daemon: carries out what the core decides, after making it durable."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from perdure.backends.local import paths, requests
from perdure.backends.local.core import RESTARTED, Core, Effect, Launch, SignalNode, SignalTasks, fresh_nodes
from perdure.backends.local.environment import task_environment
from perdure.backends.local.outputs import MAX_BESIDE, LocalRun, LocalRuns
from perdure.backends.local.processes import LocalTask, Orders, TaskKey, Tasks, kill_leftover
from perdure.backends.local.queue import queue_of
from perdure.backends.local.records import AttemptRecord, LocalJob, Timing
from perdure.backends.local.spec import JobSpec
from perdure.backends.local.store import LocalStore
from perdure.backends.local.wire import decode, decode_action, encode
from perdure.errors import InputError, NotFound, PerdureError, StateError
from perdure.model.actions import Outcome

KEEP_JOBS_S = 300.0  # a job that is over is listed at least this long
PRUNE_EVERY_S = 60.0
END_WAIT_S = 5.0  # for killed processes to be gone; one that is stuck in the kernel is left to the next daemon
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Setup:
    """What a cluster is made of."""

    state_dir: Path
    cluster: str = "local"
    nodes: int = 4
    gpus: int = 8  # of each node
    slots: int = 16  # tasks that one node runs at most
    nice: int = 10
    timing: Timing = field(default_factory=Timing)


class Daemon:
    """One running cluster. Call its methods from one thread only."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        """Take possession of the state directory and settle what an earlier daemon left.

        On a full disk it waits for room, until `is_ending`. Raises `StateError` where another daemon has it or it
        cannot be used.
        """
        self.setup = setup
        self._clock = clock
        self._lock = _lock_state(setup.state_dir)
        paths.logs(setup.state_dir).mkdir(mode=0o700, exist_ok=True)
        self.is_ending = False
        self._store = LocalStore(paths.database(setup.state_dir), lambda: self.is_ending)
        for leftover in (leftovers := self._store.leftovers()):
            kill_leftover(leftover, f"PERDURE_STATE={setup.state_dir}")
        self._store.remove_processes((p.pid, p.born) for p in leftovers)
        self._tasks = Tasks()
        self._core = self._load()
        self._core.all_lost(RESTARTED, clock())
        self._prune_s = clock()
        self._operations: Mapping[str, Callable[[dict[str, Any]], object]] = {
            "ping": lambda _: {"cluster": setup.cluster, "pid": os.getpid()},
            "observe": self._observe,
            "submit": self._submit,
            "perform": self._perform,
            "lookup": self._lookup,
            "fault": self._fault,
            "runs": self._runs,
            "queue": self._queue,
            "set_nice": self._set_nice,
        }

    def _load(self) -> Core:
        store, setup, now = self._store, self.setup, self._clock()
        known = {node.name: node for node in store.nodes()}
        nodes = fresh_nodes(setup.nodes, setup.gpus, setup.slots, known, now)
        store.keep_nodes(node.name for node in nodes)
        pattern = str(paths.logs(setup.state_dir)).replace("{", "{{").replace("}", "}}") + "/{job}-{incarnation}.log"
        core = Core(nodes, store.jobs(), store.running(), store.next_job(), setup.timing, pattern)
        for node in nodes:
            core.put_node(node)
        return core

    # Time

    def advance(self) -> float | None:
        """Do all that is due; returns the seconds until something is due again, None where only news can tell."""
        now = self._clock()
        self._reap(now)
        self._core.tick(now)
        self._carry_out()
        if now - self._prune_s > PRUNE_EVERY_S:
            self._prune(now)
        wake_s = self._core.next_wake_s()
        return None if wake_s is None else max(0.0, wake_s - self._clock())

    def shut_down(self, reason: str) -> None:
        """End every process, remember that, and release the state directory."""
        self._tasks.kill_all()
        self._core.stop(reason, self._clock())
        self._store.save(self._core.take())
        deadline = time.monotonic() + END_WAIT_S
        while len(self._tasks) and time.monotonic() < deadline:
            over = self._tasks.reap()
            self._store.remove_processes((task.pid, task.born) for task, _ in over)
            time.sleep(0.0 if over else 0.005)
        self._store.close()
        self._lock.close()

    def _reap(self, now: float) -> None:
        over = self._tasks.reap()
        for task, status in over:
            self._core.task_ended(task.key.job_id, task.key.incarnation, task.key.rank, status, now)
        if over:
            self._store.remove_processes((task.pid, task.born) for task, _ in over)

    def _prune(self, now: float) -> None:
        self._prune_s = now
        job_ids, logs = self._store.prune()
        self._core.forget(job_ids)
        for log in logs:
            Path(log).unlink(missing_ok=True)
        for job_id in job_ids:
            shutil.rmtree(paths.fence(self.setup.state_dir, job_id), ignore_errors=True)

    # Acting

    def _carry_out(self, action: tuple[str, Outcome] | None = None) -> None:
        """Make durable what was decided, then do it; what fails in doing it is decided upon again."""
        while True:
            step = self._core.take()
            self._store.save(step, action)
            action = None
            for effect in step.effects:
                self._do(effect)
            if not step.effects:
                return

    def _do(self, effect: Effect) -> None:
        match effect:
            case Launch(job, attempt):
                self._launch(job, attempt)
            case SignalTasks(job_id, incarnation, ranks, signum):
                self._tasks.signal((TaskKey(job_id, incarnation, rank) for rank in ranks), signum)
            case SignalNode(node, signum):
                self._tasks.signal_node(node, signum)

    def _launch(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Start all tasks at their gates, write down who they are, then open the gates."""
        workdir = job.spec.workdir
        tasks: list[LocalTask] = []
        try:
            if not os.path.isdir(workdir):
                raise NotADirectoryError(f"working directory {workdir!r} does not exist")
            with _open_log(attempt.log) as log:
                for rank, node in enumerate(attempt.nodes):
                    key = TaskKey(attempt.job_id, attempt.incarnation, rank)
                    tasks.append(self._tasks.spawn(key, node, log))
        except OSError as err:
            self._tasks.signal((task.key for task in tasks), signal.SIGKILL)
            self._core.launch_failed(job.job_id, attempt.incarnation, f"launch failed: {err}", self._clock())
            return
        self._store.add_processes(task.leftover() for task in tasks)
        for task in tasks:
            self._tasks.open_gate(task, self._orders(job, attempt, task.key.rank))

    def _orders(self, job: LocalJob, attempt: AttemptRecord, rank: int) -> Orders:
        limits = {"RLIMIT_AS": job.spec.memory_mib, "RLIMIT_FSIZE": job.spec.file_size_mib}
        return Orders(
            argv=job.spec.argv,
            env=task_environment(self.setup.cluster, self.setup.state_dir, job, attempt, rank, os.environ),
            workdir=job.spec.workdir,
            nice=self.setup.nice,
            limits={name: mib * MIB for name, mib in limits.items() if mib is not None} | {"RLIMIT_CORE": 0},
        )

    # Answering

    def answer(self, request: dict[str, Any]) -> object:
        """Carry out one request and return what is to be told. Raises `PerdureError` where it cannot be."""
        name = str(request.get("op"))
        operation = self._operations.get(name)
        if operation is None:
            raise InputError("request", f"no operation is called {name!r}", "Use the client of this version")
        try:
            return operation(request)
        except PerdureError:
            raise
        except (KeyError, TypeError, ValueError) as err:
            raise InputError("request", f"it cannot be read: {err}", "Use the client of this version") from err

    def _observe(self, request: dict[str, Any]) -> object:
        since_s, now, core = float(request["since_s"]), self._clock(), self._core
        jobs_since_s = min(since_s, now - KEEP_JOBS_S)
        told = [job for job in core.jobs.values() if job.end_s is None or job.end_s >= jobs_since_s]
        attempts = [*self._store.ended_since(since_s), *core.running.values()]
        name = self.setup.cluster
        return {
            "cluster": name,
            "time_s": now,
            "jobs": [encode(job.told(name)) for job in told],
            "attempts": [encode(attempt.told(name)) for attempt in attempts],
            "nodes": [encode(node) for node in core.told_nodes()],
        }

    def _queue(self, _: dict[str, Any]) -> object:
        return encode(queue_of(self._core, self.setup.cluster, self._clock()))

    def _set_nice(self, request: dict[str, Any]) -> object:
        core = self._core
        for job_id, nice in request["nice"].items():
            job = core.jobs.get(str(job_id))
            if job is not None and job.nice != int(nice):
                core.put_job(replace(job, nice=int(nice)))
        self._carry_out()
        return {}

    def _submit(self, request: dict[str, Any]) -> object:
        spec = decode(JobSpec, request["spec"], "job")
        job_id = self._core.submit(spec, self._clock())
        self._carry_out()
        return {"job_id": job_id}

    def _perform(self, request: dict[str, Any]) -> object:
        action = decode_action(request["action"])
        outcome = self._store.outcome(action.key)
        if outcome is None:
            outcome = requests.perform(self._core, self.setup.cluster, action, self._clock())
            self._carry_out((action.key, outcome))
        return encode(outcome)

    def _lookup(self, request: dict[str, Any]) -> object:
        outcome = self._store.outcome(str(request["key"]))
        return None if outcome is None else encode(outcome)

    def _fault(self, request: dict[str, Any]) -> object:
        self._core.inject(str(request["node"]), str(request["what"]), self._clock())
        self._carry_out()
        return {}

    def _runs(self, request: dict[str, Any]) -> object:
        """How an attempt was started, and who ran alongside it."""
        job_id, incarnation = str(request["job_id"]), int(request["incarnation"])
        job, attempt = self._core.jobs.get(job_id), self._store.attempt(job_id, incarnation)
        if job is None or attempt is None:
            raise NotFound(f"job {job_id}", f"no attempt {incarnation} is known", "It may be too long ago")
        at_the_time = (*self._store.ended_since(attempt.start_s), *self._core.running.values())
        others = ((self._core.jobs[each.job_id], each) for each in at_the_time if each.job_id != job_id)
        beside = sorted(others, key=lambda pair: pair[1].start_s)[-MAX_BESIDE:]
        return encode(LocalRuns(self._run(job, attempt), tuple(self._run(*each) for each in beside)))

    def _run(self, job: LocalJob, attempt: AttemptRecord) -> LocalRun:
        env = task_environment(self.setup.cluster, self.setup.state_dir, job, attempt, 0, os.environ)
        return LocalRun(job.job_id, attempt.start_s, attempt.end_s, job.spec.argv, job.spec.workdir, env)


def _lock_state(state_dir: Path) -> IO[bytes]:
    """Hold the state directory for as long as this process lives."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        held = paths.lock(state_dir).open("ab")
    except OSError as err:
        raise StateError(str(state_dir), f"cannot be written: {err.strerror}", "Name another --state") from err
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        held.close()
        what = "a cluster daemon has it already"
        raise StateError(str(state_dir), what, "Stop that or name another --state") from err
    return held


def _open_log(path: str) -> IO[bytes]:
    """The fresh log of one attempt, readable by its owner alone."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb", 0)
