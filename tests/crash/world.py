"""The cluster of the crash tests: it outlives the service, keeps it under load, and knows what really happened."""

from __future__ import annotations

import itertools
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perdure.backends.simulated import EVERY, FaultPlan, Script, SimulatedBackend, SimulatedCluster
from perdure.model.jobs import AttemptState, JobState
from tests.crash.remote import handlers_of, serve

CLUSTER = "sim"
NODES = 10
REQUEUE_EXIT = 75

WRONG = "ValueError: shapes (3,4) and (5,6) not aligned: 4 (dim 1) != 5 (dim 0)"
PASSING = "ConnectionResetError: [Errno 104] Connection reset by peer"
BROKEN = "RuntimeError: CUDA error: uncorrectable ECC error encountered"

SCRIPTS = (  # with the share of each in the load
    (0.40, {}),
    (0.15, {"failures": EVERY, "error": WRONG}),
    (0.15, {"failures": 1, "error": PASSING}),
    (0.05, {"failures": 2, "error": PASSING}),
    (0.10, {"bad_nodes": ("n1", "n2"), "error": BROKEN}),
    (0.10, {"failures": 1, "error": PASSING, "exit_code": REQUEUE_EXIT}),
    (0.05, {"failures": 1, "error": PASSING, "may_requeue": False}),
)
LOSSY = FaultPlan(p_lose_request=0.1, p_lose_reply=0.2, p_delay=0.1, delay_s=30.0)
HOSTILE = FaultPlan(0.1, 0.2, 0.1, 30.0, p_duplicate=0.2, p_stale=0.1, p_blind=0.05)


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of all failures. `lost` and `doubled` name attempts and actions."""

    failures: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]


class World:
    """A cluster with users and fate. `guarded` is the manager's own: see `SimulatedCluster`."""

    def __init__(self, seed: int, guarded: bool) -> None:
        self.cluster = SimulatedCluster(
            seed, NODES, name=CLUSTER, requeue_exit=frozenset({REQUEUE_EXIT}), guarded=guarded
        )
        self.backend = SimulatedBackend(self.cluster, HOSTILE if guarded else LOSSY, seed)
        self._rng = np.random.default_rng(seed)
        self._calm = False
        self._numbers = itertools.count()
        self._acknowledged: list[list[str]] = []

    def advance(self, seconds: float) -> float:
        """Let users submit and nodes die, and time pass. Returns the new instant."""
        if not self._calm:
            for _ in range(self._rng.poisson(seconds / 5.0)):
                self._submit()
            self._strike()
        self.cluster.advance(seconds)
        return self.cluster.now

    def calm_down(self, _: object = None) -> None:
        """No new jobs, no new faults, all nodes back."""
        self._calm = True
        self.backend.faults = FaultPlan()
        for node in self.cluster.node_names:
            self.cluster.return_node(node)

    def tally(self, _: object = None) -> Tally:
        """Count each failure that was not recovered as it should be: once, or not at all."""
        lost, doubled, failures = [], [], 0
        for job_id in self.cluster.job_ids:
            script = self.cluster.script(job_id)
            for attempt in self.cluster.attempts(job_id):
                if not attempt.state.is_failure:
                    continue
                failures += 1
                hopeless = script.failures == EVERY and attempt.state is not AttemptState.NODE_FAIL
                due = 0 if hopeless or not script.may_requeue else 1
                times = self.cluster.recoveries[attempt.id]
                lost += [str(attempt.id)] if times < due else []
                doubled += [str(attempt.id)] * max(0, times - due)
            recoverable = script.failures != EVERY and script.may_requeue
            if recoverable and self.cluster.job(job_id).state is not JobState.COMPLETED:
                lost.append(f"{CLUSTER}/{job_id}")
        doubled += [key for key, times in self.cluster.effects.items() for _ in range(times - 1)]
        return Tally(failures, tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(doubled)))

    def number(self, _: object = None) -> int:
        """One that nobody has had, whoever died."""
        return next(self._numbers)

    def acknowledge(self, said: list[str]) -> None:
        """A program was told by the service that this is durable: what it is, and of which exception or handler."""
        self._acknowledged.append(said)

    def acknowledged(self, _: object = None) -> list[list[str]]:
        """All of that."""
        return self._acknowledged

    def failures(self, _: object = None) -> list[str]:
        """All attempts that failed."""
        of_all = (a for job_id in self.cluster.job_ids for a in self.cluster.attempts(job_id))
        return [str(a.id) for a in of_all if a.state.is_failure]

    def serve(self, listener: socket.socket) -> None:
        handlers = handlers_of(self.backend) | {
            "advance": self.advance,
            "calm_down": self.calm_down,
            "idle": lambda _: self.cluster.idle,
            "tally": self.tally,
            "failures": self.failures,
            "number": self.number,
            "acknowledged": self.acknowledge,
            "all_acknowledged": self.acknowledged,
        }
        serve(listener, handlers)

    def _submit(self) -> None:
        shares = [share for share, _ in SCRIPTS]
        traits = SCRIPTS[int(self._rng.choice(len(SCRIPTS), p=shares))][1]
        self.cluster.submit(Script(run_s=float(self._rng.uniform(3.0, 60.0)), **traits))

    def _strike(self) -> None:
        """Now and then a node dies, and a dead one comes back."""
        node = str(self._rng.choice(self.cluster.node_names))
        if self._rng.random() < 0.02:
            self.cluster.fail_node(node)
        elif self._rng.random() < 0.3:
            self.cluster.return_node(node)


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener
