"""The cluster under simulation, with a manager of its own mind, behind a line that fails, counts and is watched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from perdure.backends.protocol import TAIL_BYTES
from perdure.backends.simulated import FaultPlan, SimulatedBackend, SimulatedCluster
from perdure.backends.simulated.cluster import REMEMBERED_S, Script, SubmittedJob
from perdure.errors import ClusterBusy
from perdure.model.actions import (
    Action,
    Comment,
    JobAction,
    Outcome,
    OutcomeStatus,
)
from perdure.model.jobs import Attempt, AttemptState, JobState
from perdure.model.nodes import NodeState
from perdure.model.observation import Observation
from perdure.model.output import LogMark, Output
from tests.copying import replace
from tests.dst.broken import must

LOSSY = FaultPlan(p_lose_request=0.1, p_lose_reply=0.2, p_delay=0.1, delay_s=30.0)
HOSTILE = FaultPlan(0.1, 0.2, 0.1, 30.0, p_duplicate=0.2, p_stale=0.1, p_blind=0.05)
FAIR = FaultPlan()
LICENCES = {"bob": ("home",)}  # what a user's jobs ask for
MOST_STALE_S = 60.0  # that a picture of the manager may be old: much less than the service looks back


class Manager(SimulatedCluster):
    """A resource manager that may also think better of a job that it had given up."""

    def __init__(self, *given: int, **named: Any) -> None:
        super().__init__(*given, **named)
        self._past = []  # what it knew of jobs whose ids it has given to others
        self._returned_s, self._left_s = {}, {}  # by node: when it last came back into service, and left it

    def submit(self, script: Script) -> str:
        job_id = super().submit(script)
        submitted = self._jobs[job_id]
        submitted.job = replace(submitted.job, licences=LICENCES.get(script.user, ()))
        return job_id

    def give_again(self, job_id: str, script: Script) -> None:
        """Give the id of a job that is over to another one, as a manager does that has lost its state."""
        gone = self._jobs.pop(job_id)
        self._past.append(gone)
        ids, self._ids = self._ids, itertools.count(int(job_id))
        self.submit(script)
        self._ids = ids
        self._jobs[job_id].before = gone.incarnation or gone.before

    @property
    def every(self) -> tuple[SubmittedJob, ...]:
        """All jobs, also those whose id another one has."""
        return (*self._past, *self._jobs.values())

    def whose(self, job_id: str, incarnation: int = 0) -> SubmittedJob:
        """The job that had the id at this start; the one that has it now for none, or one that is still to come."""
        earlier = (s for s in self._past if s.job.job_id == job_id and s.before < incarnation <= s.incarnation)
        return next(earlier, self._jobs[job_id])

    def whose_at(self, job_id: str, time_s: float) -> SubmittedJob:
        """The job that had the id at an instant; the first one for an earlier instant."""
        first, *later = (s for s in self.every if s.job.job_id == job_id)
        return next((s for s in reversed(later) if s.job.submit_s <= time_s), first)

    def over_since(self, job_id: str) -> float:
        return self._jobs[job_id].over_s

    def has_had(self, job_id: str, user: str) -> bool:
        """Whether a job of that id is, or was, the user's."""
        return any((s.job.job_id, s.job.user) == (job_id, user) for s in self.every)

    def may_be_mistaken(self, job_id: str) -> bool:
        """Whether a job may have been seen first when it had been put back: that reads like the job before it."""
        return any(s.job.restarts for s in self.later(job_id))

    def later(self, job_id: str) -> list[SubmittedJob]:
        """The jobs of that id after the first one."""
        return [s for s in self.every if s.job.job_id == job_id][1:]

    def was_given_again(self, job_id: str) -> bool:
        return any(s.job.job_id == job_id for s in self._past)

    def preempt(self, job_id: str, *, back: bool) -> bool:
        """Take its nodes from a job that runs; `back` puts it back by itself."""
        submitted = self._jobs[job_id]
        if submitted.job.state is not JobState.RUNNING:
            return False
        assert submitted.latest is not None
        self._end(submitted, submitted.latest, AttemptState.PREEMPTED, back=back and submitted.script.may_requeue)
        self._start_what_fits()
        return True

    def was_out(self, node: str, since_s: float) -> bool:
        """Whether the node took no new work at some instant since then."""
        return not self._nodes[node].is_usable or self._returned_s.get(node, 0.0) >= since_s

    def was_in(self, node: str, since_s: float) -> bool:
        """Whether the node took new work at some instant since then."""
        return self._nodes[node].is_usable or self._left_s.get(node, 0.0) >= since_s

    def _set_node(self, name: str, state: NodeState, reason: str) -> None:
        super()._set_node(name, state, reason)
        changed_s = self._returned_s if self._nodes[name].is_usable else self._left_s
        changed_s[name] = self.now

    def requeue_by_itself(self, job_id: str) -> bool:
        submitted = self._jobs[job_id]
        if submitted.job.state is not JobState.FAILED or not submitted.script.may_requeue:
            return False
        if submitted.latest is None or self.recoveries[submitted.latest.id]:
            return False
        self._put_back(submitted, submitted.latest.id, 0.0)
        return True

    def _on_job(self, action: JobAction) -> Outcome:
        """What it has forgotten, it cannot bring back."""
        submitted = self._jobs.get(action.attempt.job_id)
        if submitted is not None and submitted.over_s <= self.now - REMEMBERED_S:
            return Outcome(OutcomeStatus.REFUSED, "the job is gone")
        outcome = super()._on_job(action)
        if outcome.status is OutcomeStatus.DONE and submitted is not None:
            must(action.user == submitted.job.user, "what is done to a job was meant for it", action)
        return outcome

    def return_all(self) -> None:
        for node in self._nodes.values():
            if node.state is not NodeState.UP:
                self.return_node(node.name)

    @property
    def at_rest(self) -> bool:
        """True where nothing runs or waits to run; held jobs wait for a person."""
        return all(s.job.state is JobState.HELD for s in self._live.values())


class Line(SimulatedBackend):
    """Outlives the services that speak over it. `watch` sees each order before it is sent."""

    def __init__(self, cluster: Manager, seed: int, passed: Callable[[], None], clock: Callable[[], float]) -> None:
        super().__init__(cluster, FAIR, seed)
        self.faults_struck = 0
        self.shown_s = 0.0  # the instant of the picture that was shown last
        self.known_s = 0.0  # that of the last one that the service has written down
        self.taken_out = set()  # nodes, by Perdure since the last look
        self.dumb = False  # True: no log can be read
        self.seen: Observation | None = None  # the last look at all
        self.watch: Callable[[Action], object] = lambda action: None
        self.watch_comment: Callable[[Comment], object] = lambda action: None
        self._passed = passed
        self._clock = clock

    def observe(self, since_s: float) -> Observation:
        self._passed()
        if self._last is not None and self._last.time_s < self._truth.now - MOST_STALE_S:
            self._last = None
        before = self._last
        seen = super().observe(since_s)
        if self._last is not before:
            self.shown_s = self._truth.now
        self.seen = replace(seen, time_s=self._clock())  # the service's machine stamps what it sees
        if not seen.unseen:
            self.taken_out.clear()
        return self.seen

    def look_at(self, job_id: str) -> Observation:
        """At one job alone, as an epilog has it looked at; what the manager puts back by itself is left to it.

        No later look shows it as it was before.
        """
        self._passed()
        job, latest = self._truth.job(job_id), self._truth.attempts(job_id)[-1:]
        found = [job] if job.state is JobState.FAILED and latest else []
        only = frozenset(each.job_id for each in found)
        if found and self._last is not None:
            jobs = [each for each in self._last.jobs if each.job_id not in only]
            attempts = [each for each in self._last.attempts if each.id != latest[0].id]
            self._last = replace(self._last, jobs=(*jobs, *found), attempts=(*attempts, *latest))
        return Observation(self.cluster, self._clock(), tuple(found), latest if found else (), only=only)

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        """A file system that hangs is a call that never ends, which the service gives up."""
        if self.dumb:
            self.faults_struck += 1
            raise ClusterBusy(attempt.stdout, "does not answer", "Wait")
        return super().output(attempt, max_bytes, known)

    def perform(self, action: Action) -> Outcome:
        self._passed()
        self.watch(action)
        outcome = super().perform(action)
        self._passed()
        return outcome

    def lookup(self, action: Action) -> Outcome | None:
        outcome = super().lookup(action)
        self._passed()
        return outcome

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """All or none of them: accounting is asked once."""
        self._passed()
        for action in actions:
            self.watch_comment(action)
        if self.silent or self._strikes(self.faults.p_lose_request):
            raise ClusterBusy(self.cluster, "accounting does not answer", "Ask again later")
        for action in actions:  # written twice it is the same line
            self._truth.effects[action.key] = 1
        self._passed()
        return [Outcome(OutcomeStatus.DONE, "written") for _ in actions]

    def _strikes(self, probability: float) -> bool:
        struck = super()._strikes(probability)
        self.faults_struck += struck
        return struck
