"""The worker of the policy in force: decides after looks, changes places, and has jobs put back.

Nothing is remembered between turns that the cluster or the journal does not tell: killed at any point, the next run
decides from the same. Places are changed like comments are written: they are not journalled, but seen at each look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from numpy.random import default_rng

from perdure.backends.protocol import Limiting, Reorderable, Resizable
from perdure.errors import PerdureError
from perdure.live_policy.decide import LiveDecision, decide
from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.opt_in import consent_of, unfit
from perdure.live_policy.outcome import PolicyOutcome, PolicyPromise, PolicyTerm, outcome_of
from perdure.live_policy.policies import ROUNDS, live_policy, thinned
from perdure.live_policy.preemptions import HOUR_S, PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.live_policy.sizes import SizeChange
from perdure.model.actions import Preempt
from perdure.model.clean_text import clean
from perdure.model.identity import AttemptId
from perdure.model.jobs import PolicyConsent
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.service.live_policy.policy_store import KeptNice, KeptSize, PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.waits.queue import Queue, QueuedJob, QueueLook

log = logging.getLogger("perdure")

PREEMPT_TTL_S = 60.0  # a preemption that is not begun by then is decided again
SERVICES_EVERY_S = 600.0
PAST_EVERY_S = 60.0
LIMITS_EVERY_S = 600.0
PAST_S = 30 * 86400.0  # of jobs that are over, for policies that plan in rounds
Kept = TypeVar("Kept", KeptNice, KeptSize)
STUBBORN = 3  # times that a job's place was changed without effect, after which it is left alone


def _own(kept: Mapping[str, Kept], jobs: Iterable[QueuedJob]) -> dict[str, Kept]:
    """Without what was kept of another user's job, whose number a manager that lost its state has given out again."""
    users = {job.job_id: clean(job.user) for job in jobs}
    return {job_id: each for job_id, each in kept.items() if users.get(job_id, each.user) == each.user}


class PolicyWorker:
    """Decides in its own thread's turns; pages read `latest`."""

    def __init__(
        self,
        backend: Reorderable,
        store: PolicyStore,
        settings: PolicySettings,
        switch: PolicySwitch,
        acts: Callable[[], bool],
        running: Callable[[], Iterable[AttemptId]],
        order: Callable[[Preempt, str, float], object],
        clock: Callable[[], float],
        checkpoints: Callable[[Sequence[QueuedJob]], Mapping[str, float]] = lambda _: {},
        promise: Callable[[str], PolicyPromise | None] = lambda _: None,
        sample: Sequence[float] = (),
    ) -> None:
        """`acts`: whether anything may be carried out now. `order` takes a preemption to be journalled and carried out,
        with its reason and the seconds in which it has to be begun. `running` tells which attempts run, `checkpoints`
        when running jobs last saved themselves, `promise` what a what-if said of a policy. `sample`: services of past
        jobs besides those in the journal. Raises `ConfigError` for a policy that cannot be in force.
        """
        if settings.name:
            live_policy(settings)
        self._backend, self._store, self.settings, self.switch = backend, store, settings, switch
        backend.queue()  # asked for now, the very first look tells it
        self._acts, self._running, self._order, self._clock = acts, running, order, clock
        self._checkpoints, self._promise, self._sample = checkpoints, promise, sample
        self._looked_s: float | None = None
        self._services: tuple[float, tuple[float, ...]] | None = None
        self._past: tuple[float, EndedJobs] | None = None
        self._limits: tuple[float, SiteLimits] | None = None
        self._asked: dict[str, tuple[int, int]] = {}  # by job: the nice that was set last, and how often in a row
        self._in_vain: Mapping[str, int] = {}  # how often it was planned to put a job back, and not begun
        self.latest: LiveDecision | None = None
        self.took_s = 0.0  # the last decision, reading the journal included
        self.trouble = ""

    @property
    def is_on(self) -> bool:
        """Whether a policy is named and not switched off; it may be shadow all the same."""
        return bool(self.settings.name) and not self.switch.is_off

    @property
    def is_acting(self) -> bool:
        return self.is_on and self._acts()

    def turn(self) -> None:
        """Decide once on what a new look saw, and carry it out where that is allowed. Raises `PerdureError`."""
        look = self._backend.queue()
        if look is None or look.queue.now_s == self._looked_s:
            return
        self._looked_s = look.queue.now_s
        nice, sizes = self._store.nice(), self._store.sizes()
        own_nice, own_sizes = _own(nice, look.queue.jobs), _own(sizes, look.queue.jobs)
        try:
            if self._acts():
                self._store.forget_nice(nice.keys() - own_nice.keys())
                self._store.forget_sizes(sizes.keys() - own_sizes.keys())
            self._work(look, own_nice, own_sizes)
        except PerdureError as err:
            self.trouble = f"{err.args[0]}: {err.args[1]}"
            raise
        self.trouble = ""

    def _work(self, look: QueueLook, kept: Mapping[str, KeptNice], sizes: Mapping[str, KeptSize]) -> None:
        begun_s = time.monotonic()
        found = decide(look, *self._known(look, kept, sizes)) if self.is_on else None
        self.took_s = time.monotonic() - begun_s
        self.latest = found
        self._note_term(look.queue)
        if not self._acts():
            return
        jobs = {job.job_id: job for job in look.queue.jobs}
        restored = self._restored(jobs, kept)
        wanted = {each.job_id: each.nice for each in found.changes} if found else {}
        self._store.keep_nice((jobs[job_id] for job_id in wanted if job_id not in kept), self._clock())
        self._set({**restored, **self._heeded(wanted, jobs)})
        self._store.forget_nice({*restored, *(job_id for job_id in kept if job_id not in jobs)})
        self._resize(found.sizes if found else (), jobs, sizes)
        if found is not None:
            self._preempt(found)

    def _known(
        self, look: QueueLook, kept: Mapping[str, KeptNice], sizes: Mapping[str, KeptSize]
    ) -> tuple[Mapping[str, list[tuple[float, float]]], PolicySettings, PolicyMemory]:
        """What `decide` needs besides the look."""
        settings, queue = self.settings, look.queue
        own = [job for job in queue.jobs if consent_of(job, settings) is not PolicyConsent.NONE]
        ran = self._store.ran([job.job_id for job in own])
        ready = [job for job in own if job.is_running and consent_of(job, settings) is PolicyConsent.PREEMPT]
        past = self._store.preemptions({job.job_id: job.start_s or 0.0 for job in ready}, queue.now_s)
        memory = PolicyMemory(
            preempted=past.done,
            preempted_s=self._store.preempted_since(queue.now_s - HOUR_S),
            on_their_way=past.open,
            checkpoint_s=self._checkpoints(ready),
            nice={job_id: each.nice for job_id, each in kept.items()},
            services=self._past_services(),
            past=self._past_jobs(queue.now_s, own),
            sizes={job_id: each.size for job_id, each in sizes.items()},
            limits=self._limits_now(look),
        )
        self._in_vain = past.in_vain
        return ran, settings, memory

    def _note_term(self, queue: Queue) -> None:
        """Note since when the policy is in force, and who takes part; and when it no longer is."""
        term, name = self._store.term(), self.settings.name
        goes_on = term is not None and term.until_s is None
        if goes_on and term is not None and (not self.is_acting or term.policy != name):
            self._store.end_term(queue.now_s)
            goes_on = False
        if not self.is_acting:
            return
        if not goes_on:
            self._store.begin_term(PolicyTerm(name, queue.now_s, None, self._promise(name)))
        own = (job for job in queue.jobs if consent_of(job, self.settings) is not PolicyConsent.NONE)
        self._store.note_jobs(job for job in own if not unfit(job))

    def outcome(self) -> tuple[PolicyTerm, PolicyOutcome] | None:
        """The latest time in force, and what came of it; None before the first."""
        term = self._store.term()
        return None if term is None else (term, outcome_of(self._store.lives(term), default_rng(0)))

    def _past_services(self) -> tuple[float, ...]:
        now = self._clock()
        if self.settings.name.partition(":")[0] != "gittins-2d":
            return ()
        if self._services is None or not 0 <= now - self._services[0] < SERVICES_EVERY_S:
            self._services = now, thinned([*self._sample, *self._store.services()])
        return self._services[1]

    def _limits_now(self, look: QueueLook) -> SiteLimits:
        if not isinstance(self._backend, Limiting):
            return SiteLimits()
        now = self._clock()
        if self._limits is None or not 0 <= now - self._limits[0] < LIMITS_EVERY_S:
            self._limits = now, self._backend.limits(look)
        return self._limits[1]

    def _past_jobs(self, now_s: float, own: Sequence[QueuedJob]) -> EndedJobs:
        if self.settings.name not in ROUNDS:
            return EndedJobs()
        if self._past is None or not 0 <= now_s - self._past[0] < PAST_EVERY_S:
            self._past = now_s, self._store.past(now_s - PAST_S)
        return replace(self._past[1], most_gpus=self._store.most_gpus([job.job_id for job in own]))

    def _resize(
        self, changes: Sequence[SizeChange], jobs: Mapping[str, QueuedJob], kept: Mapping[str, KeptSize]
    ) -> None:
        """Set sizes, and set those back that the policy has nothing to do with any more. A job that runs keeps its own,
        and what it asked for is kept until it is gone: it may be put back.
        """
        if not isinstance(self._backend, Resizable):
            return
        wanted = {each.job_id: (each.size, each.seen) for each in changes}
        done_with = {job_id for job_id in kept if (job := jobs.get(job_id)) is None or not self._takes_part(job)}
        for job_id in done_with:
            job, before = jobs.get(job_id), kept[job_id]
            if job is not None and job.asks is not None and job.asks != before.size:
                wanted[job_id] = before.size, job.asks
        new = {each.job_id: KeptSize(each.before, jobs[each.job_id].user) for each in changes}
        self._store.keep_sizes({job_id: each for job_id, each in new.items() if job_id not in kept}, self._clock())
        if wanted:
            complaints = self._backend.set_sizes(wanted)
            for job_id, said in list(complaints.items())[:1]:
                log.warning("policy: the size of %d jobs was not changed, job %s: %s", len(complaints), job_id, said)
        self._store.forget_sizes(done_with)

    def _takes_part(self, job: QueuedJob) -> bool:
        chooses = self.is_on and self.settings.name in ROUNDS
        return chooses and consent_of(job, self.settings) is not PolicyConsent.NONE

    def _restored(self, jobs: Mapping[str, QueuedJob], kept: Mapping[str, KeptNice]) -> dict[str, int]:
        """What jobs had before, of those in the queue with which the policy has nothing to do any more."""
        return {
            job_id: each.nice
            for job_id, each in kept.items()
            if (job := jobs.get(job_id)) is not None
            and not (self.is_on and consent_of(job, self.settings) is not PolicyConsent.NONE)
        }

    def _heeded(self, wanted: Mapping[str, int], jobs: Mapping[str, QueuedJob]) -> dict[str, int]:
        """Without jobs whose place does not change, however often it is asked for: their priority was set by hand."""
        asked = {}
        for job_id in wanted:
            before, times = self._asked.get(job_id, (0, 0))
            asked[job_id] = before, times + 1 if times and jobs[job_id].nice != before else 1
        left = {job_id for job_id, (_, times) in asked.items() if times > STUBBORN}
        self._asked = {job_id: (wanted[job_id], times) for job_id, (_, times) in asked.items()}
        return {job_id: nice for job_id, nice in wanted.items() if job_id not in left}

    def _set(self, nice: Mapping[str, int]) -> None:
        if not nice:
            return
        complaints = self._backend.set_nice(nice)
        if complaints:
            job_id, said = next(iter(complaints.items()))
            log.warning("policy: the place of %d jobs was not changed, job %s: %s", len(complaints), job_id, said)

    def _preempt(self, found: LiveDecision) -> None:
        attempts = {attempt.job_id: attempt for attempt in self._running()}
        for each in found.preemptions:
            if each.job_id in attempts:
                self._order(Preempt(attempts[each.job_id], self._episode(each.job_id)), each.why, PREEMPT_TTL_S)

    def _episode(self, job_id: str) -> str:
        times = self._in_vain.get(job_id, 0)
        return str(times) if times else ""
