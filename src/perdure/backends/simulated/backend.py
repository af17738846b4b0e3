"""A `Backend` on a simulated cluster, behind a line that may lose, delay and duplicate what is said."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from msgspec.structs import replace

from perdure.backends.protocol import TAIL_BYTES
from perdure.backends.simulated.cluster import SimulatedCluster
from perdure.errors import ClusterBusy, NotFound
from perdure.model.actions import Action, Outcome
from perdure.model.jobs import Attempt
from perdure.model.observation import Observation
from perdure.model.output import Absent, LogMark, Output, OutputFile, Why, digest_of


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How often the line fails; each a probability in [0, 1] for one message."""

    p_lose_request: float = 0.0  # it never arrives
    p_lose_reply: float = 0.0  # it is carried out, and nobody hears of it
    p_delay: float = 0.0  # it is carried out later, up to `delay_s`, and nobody hears of it
    delay_s: float = 60.0
    p_duplicate: float = 0.0  # it is carried out, and arrives a second time up to `delay_s` later
    p_stale: float = 0.0  # a look shows what the look before showed
    p_blind: float = 0.0  # a look finds the controller silent


@dataclass(frozen=True, slots=True)
class _Late:
    """A message on its way."""

    due_s: float
    action: Action


class SimulatedBackend:
    """The cluster as it is seen over a bad line. `faults` may be changed at any time."""

    def __init__(self, cluster: SimulatedCluster, faults: FaultPlan | None = None, seed: int = 0) -> None:
        self.cluster = cluster.name
        self.faults = faults or FaultPlan()
        self.silent = False  # True: nothing gets through
        self._truth = cluster
        self._rng = np.random.default_rng(seed)
        self._late: deque[_Late] = deque()
        self._last: Observation | None = None

    def observe(self, since_s: float) -> Observation:
        """Look once. A stale look carries the present instant: nothing tells that it is stale."""
        self._deliver()
        if self.silent or self._strikes(self.faults.p_blind):
            return Observation(self.cluster, self._truth.now, unseen={"controller": "no answer from the simulation"})
        if self._last is not None and self._strikes(self.faults.p_stale):
            return replace(self._last, time_s=self._truth.now)
        self._last = self._truth.observation(since_s)
        return self._last

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:  # noqa: ARG002  (each attempt writes to a file of its own)
        """An attempt's output: its end, and its beginning where that is longer than `max_bytes`."""
        path = attempt.stdout
        try:
            data = self._truth.log(path)
        except NotFound as err:
            return Output((), (Absent(path, Why.MISSING, err.what),))
        if len(data) <= max_bytes:
            return Output.of(data, path)
        head = data[: max(1, max_bytes // 8)]
        tail = data[len(data) - max_bytes + len(head) :]
        skipped = len(data) - len(head) - len(tail)
        return Output((OutputFile(path, tail, head, skipped, end=len(data), digest=digest_of(data)),))

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, if the line lets it through and its answer back."""
        self._deliver()
        faults = self.faults
        if self.silent or self._strikes(faults.p_lose_request):
            self._no_answer(action)
        if self._strikes(faults.p_delay):
            self._send_late(action)
            self._no_answer(action)
        outcome = self._truth.carry_out(action)
        if self._strikes(faults.p_duplicate):
            self._send_late(action)
        if self._strikes(faults.p_lose_reply):
            self._no_answer(action)
        return outcome

    def lookup(self, action: Action) -> Outcome | None:
        """The result of an action. While it may still arrive, nobody can say."""
        self._deliver()
        if self.silent or self._strikes(self.faults.p_lose_reply):
            self._no_answer(action)
        outcome = self._truth.outcome(action)
        if outcome is None and any(late.action.key == action.key for late in self._late):
            self._no_answer(action)
        return outcome

    def close(self) -> None:
        """Nothing is held."""

    def _strikes(self, probability: float) -> bool:
        return probability > 0.0 and float(self._rng.random()) < probability

    def _send_late(self, action: Action) -> None:
        due_s = self._truth.now + float(self._rng.uniform(0.0, self.faults.delay_s))
        self._late.append(_Late(due_s, action))

    def _deliver(self) -> None:
        """Deliver the messages whose time has come."""
        if not self._late:
            return
        due = [late for late in self._late if late.due_s <= self._truth.now]
        self._late = deque(late for late in self._late if late.due_s > self._truth.now)
        for late in sorted(due, key=lambda one: one.due_s):
            self._truth.carry_out(late.action)

    def _no_answer(self, action: Action) -> NoReturn:
        raise ClusterBusy(self.cluster, f"no answer to {action.key}", "Ask again later")
