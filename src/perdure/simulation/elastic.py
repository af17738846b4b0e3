"""Replays jobs that have work instead of a running time, under a policy that gives them shares round by round.

Between rounds nothing starts. A job that is given another share first restarts, and then works at the speed that was
measured for its application there; at the end of each epoch and of each round it chooses its batch again, by what has
been learned of it. What it sees of its steps is all that the policy knows of its speed. An attempt that fails is lost
from its last epoch on, and comes back if the retry policy says so. Of two jobs that share their GPUs each is as slow as
beside the other for the whole round, even where that ends before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import ceil, isnan

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs
from perdure.scheduling.elastic import (
    ElasticJob,
    ElasticPolicy,
    ElasticView,
    GpuType,
    PipelinePolicy,
    SelectivePolicy,
    SettlingPolicy,
    Share,
    ShrinkingPolicy,
    SuspendingPolicy,
)
from perdure.scheduling.tuning import SearchStage
from perdure.simulation.elastic_apps import apps_of
from perdure.simulation.elastic_job import JobOracle, RunningJob, begun
from perdure.simulation.elastic_plan import ElasticError, check_plan, gpus_by_type, kept_speed
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.throughput.application import Application
from perdure.throughput.colocation import Colocation
from perdure.throughput.goodput import ROUNDING
from perdure.throughput.learned import Fits
from perdure.throughput.speed import Floats
from perdure.throughput.traits import Traits

_MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, slots=True)
class ElasticResult:
    """Jobs as columns (n_jobs,); times in seconds, as in the trace."""

    policy: str
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    asked_gpus: NDArray[np.int64]
    alone_s: Floats  # that it would run on the GPUs it asked for, with the batch it asked for
    restarts: NDArray[np.int64]
    gpu_s: Floats  # that it held GPUs, restarts included; half of it where it shared them
    restart_gpu_s: Floats  # of which it restarted
    attempts: NDArray[np.int64]
    passed: NDArray[np.bool_]  # how the last attempt ended
    rounds: int
    total_gpus: int
    types: tuple[GpuType, ...]
    held_gpu_s: Floats  # of `gpu_s`, on each type (n_jobs, n_types)
    alone_on_s: Floats  # as `alone_s`, on each type (n_jobs, n_types); infinite where it does not run
    use: tuple[tuple[float, tuple[int, ...]], ...]  # since when so many GPUs of each type were given
    gaps: tuple[float, ...] = ()  # how far, at most, plans were from the best where a solver ran out of time
    stopped: NDArray[np.bool_] | None = None  # early, by the tuner of their app
    app: NDArray[np.str_] | None = None  # of each job; "": none
    searches: Mapping[str, tuple[SearchStage, ...]] = field(default_factory=dict)  # all that each app has to do

    @property
    def jct_s(self) -> Floats:
        """From submit to end."""
        return self.end_s - self.submit_s


def gpu_types(cluster: Cluster) -> tuple[GpuType, ...]:
    """The types of a cluster, in its order. Raises `InputError` for one whose nodes differ."""
    found = []
    for name in dict.fromkeys(cluster.gpu_type.tolist()):
        sizes = cluster.gpus[cluster.gpu_type == name]
        if len(np.unique(sizes)) > 1:
            raise InputError(f"GPU type {name!r}", "its nodes differ in their GPUs", "Give each size a type of its own")
        found.append(GpuType(name, len(sizes), int(sizes[0])))
    return tuple(found)


def replay_elastic(
    jobs: AdaptiveJobs,
    cluster: Cluster,
    policy: ElasticPolicy,
    known: Mapping[str, Application],
    traits: Mapping[str, Traits],
    retry: Retry | None = None,
    *,
    pairs: Colocation | None = None,
    whole_seconds: bool = False,
) -> ElasticResult:
    """Replay all jobs; `retry` None lets each that failed come back at once. With `whole_seconds` epochs end at one.

    `pairs` tells how fast jobs are that share GPUs; without it they take turns.

    Raises `PerdureError` for what the profiles lack, and what the policy cannot plan for, and `ElasticError` for a plan
    that is not valid.
    """
    return prepared_elastic(jobs, cluster, policy, known, traits, retry, pairs=pairs, whole_seconds=whole_seconds).run()


def prepared_elastic(
    jobs: AdaptiveJobs,
    cluster: Cluster,
    policy: ElasticPolicy,
    known: Mapping[str, Application],
    traits: Mapping[str, Traits],
    retry: Retry | None = None,
    *,
    pairs: Colocation | None = None,
    whole_seconds: bool = False,
) -> PreparedReplay:
    """As `replay_elastic`, before the first round: all that can be refused without a plan is."""
    types, fits, batches = gpu_types(cluster), Fits(), dict[tuple[object, ...], tuple[int, int]]()
    known = {name: each.on(kind.name for kind in types) for name, each in known.items()}
    _must_be_profiled(types, known)
    rows = range(len(jobs))
    running = [begun(jobs, row, types, known, traits, fits, batches, adaptive=policy.adaptive) for row in rows]
    resume_s = policy.resume_s if isinstance(policy, SuspendingPolicy) else None
    for each in running:
        each.whole_seconds, each.resume_s, each.seen.oracle = whole_seconds, resume_s, JobOracle(each, types)
    _must_fit(jobs, running, types, shrinks=isinstance(policy, ShrinkingPolicy) and policy.shrinks)
    if not (isinstance(policy, PipelinePolicy) and policy.pipelines):
        _must_have_no_pipelines(policy.name, running)
    view = ElasticView(types, {}, 0.0, _fastest_first(types, known), pairs or Colocation())
    view.apps = apps_of(jobs, running)
    if isinstance(policy, SelectivePolicy):
        policy.check(replace(view, jobs={row: each.seen for row, each in enumerate(running)}))
    coming = [(float(submit_s), row) for row, submit_s in enumerate(jobs.submit_s)]  # a heap, as it is sorted
    whole = {app.name: tuple(app.stages(from_start=True)) for app in view.apps}
    return PreparedReplay(jobs, _Replay(policy, view, running, coming, retry), whole)


@dataclass(frozen=True, slots=True)
class PreparedReplay:
    """A replay that nothing stands against; it runs once."""

    jobs: AdaptiveJobs
    replay: _Replay
    searches: Mapping[str, tuple[SearchStage, ...]]

    def run(self) -> ElasticResult:
        """Raises `ElasticError` for a plan that is not valid."""
        while self.replay.coming or self.replay.there:
            self.replay.go_on()
        return _result(self.replay.policy, self.jobs, self.replay, self.searches)


@dataclass(slots=True)
class _Replay:
    """The instant that a replay has reached, and who is there, comes or comes back."""

    policy: ElasticPolicy
    view: ElasticView
    running: Sequence[RunningJob]  # all jobs, by row
    coming: list[tuple[float, int]]  # a heap of instants and rows
    retry: Retry | None
    there: dict[int, ElasticJob] = field(default_factory=dict)
    now_s: float = 0.0
    rounds: int = 0
    use: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    settling: SettlingPolicy | None = field(init=False)

    def __post_init__(self) -> None:
        self.view.jobs = self.there
        self.settling = self.policy if isinstance(self.policy, SettlingPolicy) else None

    def go_on(self) -> None:
        """Run to the next round of which the plan may differ, and plan it."""
        round_s = self.policy.round_s
        if not self.there:  # nothing can change before the next job: go to the round before it
            self.now_s = max(self.now_s, round_s * ((self.coming[0][0] - ROUNDING) // round_s))
        count = self._rounds_alike()
        changed = self._run(count * round_s)
        self.now_s += count * round_s
        self.rounds += count
        changed |= self._let_in()
        changed |= self._compare()
        if self.rounds > _MOST_ROUNDS:
            raise ElasticError(f"policy {self.policy.name}", f"{len(self.there)} jobs never end", "Fix the policy")
        if changed or self.settling is None or self.now_s >= self.settling.settled_until_s(self.view):
            self._plan()

    def _rounds_alike(self) -> int:
        """After how many rounds something may happen that could change the plan."""
        if not self.there or self.settling is None:
            return 1
        round_s, next_s = self.policy.round_s, self.coming[0][0] if self.coming else np.inf
        until_s = min(self.settling.settled_until_s(self.view), next_s) - self.now_s
        if until_s <= round_s:
            return 1
        alike_s = min(until_s, min(self.running[row].undisturbed_s() for row in self.there))
        # Of the last one, in which something may happen before its end, rounding may say that it does in the next.
        return max(1, ceil(alike_s / round_s) - 1) if np.isfinite(alike_s) else 1

    def _run(self, seconds: float) -> bool:
        """Run all that are there; whether one is not any more."""
        gone = False
        for row in list(self.there):
            self.running[row].run(self.now_s, seconds)
            again_s = _comes_again(self.running[row], row, self.retry)
            if again_s is not None:
                heappush(self.coming, (again_s, row))
            if again_s is not None or not isnan(self.running[row].end_s):
                del self.there[row]
                gone = True
        return gone

    def _let_in(self) -> bool:
        """Let in who has come by now; whether anybody has."""
        before = len(self.there)
        while self.coming and self.coming[0][0] <= self.now_s:
            _, row = heappop(self.coming)
            if not self.running[row].stopped:
                self.running[row].begin_attempt()
                self.there[row] = self.running[row].seen
        return len(self.there) > before

    def _compare(self) -> bool:
        """Let tuners stop jobs of their apps; whether one was stopped."""
        stopped = [row for app in self.view.apps for row in app.stop()]
        for row in stopped:
            self.running[row].stop(self.now_s)
            self.there.pop(row, None)
        return bool(stopped)

    def _plan(self) -> None:
        self.view.now_s, plan = self.now_s, dict[int, Share]()
        if self.there:
            plan = dict(self.policy.plan(self.view))
            check_plan(self.policy.name, plan, self.view)
            for row in self.there:
                kept = kept_speed(row, plan, self.view)
                self.running[row].give(plan.get(row), kept, self.view.types, self.now_s)
        given = gpus_by_type(plan, len(self.view.types))
        if not self.use or self.use[-1][1] != given:
            self.use.append((self.now_s, given))


def _result(
    policy: ElasticPolicy, jobs: AdaptiveJobs, replay: _Replay, whole: Mapping[str, tuple[SearchStage, ...]]
) -> ElasticResult:
    over, types = replay.running, replay.view.types
    return ElasticResult(
        policy.name,
        jobs.submit_s,
        np.array([each.started_s for each in over]),
        np.array([each.end_s for each in over]),
        jobs.gpus,
        np.array([each.seen.alone_s.min() for each in over]),
        np.array([each.seen.restarts for each in over], np.int64),
        np.array([each.gpu_s for each in over]),
        np.array([each.restart_gpu_s for each in over]),
        np.array([each.attempts for each in over], np.int64),
        np.array([np.isnan(each.failed_s) or each.stopped for each in over]),
        replay.rounds,
        sum(kind.gpus for kind in types),
        types,
        np.array([[each.held_gpu_s.get(kind.name, 0.0) for kind in types] for each in over]),
        np.array([each.seen.alone_s for each in over]),
        tuple(replay.use),
        tuple(getattr(policy, "gaps", ())),
        np.array([each.stopped for each in over]),
        None if jobs.apps is None else jobs.apps.app,
        whole,
    )


def _comes_again(job: RunningJob, row: int, retry: Retry | None) -> float | None:
    """When a job comes back whose attempt has just failed; None for another, and for one that is over now."""
    if isnan(job.failed_s):
        return None
    failed = FailedRun(row, job.attempts, -1, job.failed_s, job.ran_s)
    answer = Again() if retry is None else retry(failed)
    if answer is None:
        job.end_s = job.failed_s
        return None
    return job.failed_s + answer.delay_s


def _fastest_first(types: Sequence[GpuType], known: Mapping[str, Application]) -> Sequence[int]:
    """Places of the types, by how fast one GPU is against the fastest, in the mean of the applications."""
    single = np.array(
        [[each.speed[kind.name].single / max(each.stages(kind.name), 1) for kind in types] for each in known.values()]
    )
    told = ~np.isnan(single)
    single = np.where(told, single, 0.0)
    relative = single / np.maximum(single.max(axis=1, keepdims=True), 1e-300)
    speed = relative.sum(axis=0) / np.maximum(told.sum(axis=0), 1)
    return [int(place) for place in np.argsort(-speed, kind="stable")]


def _must_fit(jobs: AdaptiveJobs, running: Sequence[RunningJob], types: Sequence[GpuType], *, shrinks: bool) -> None:
    """Raises `InputError` for a job that asks for GPUs which no type has, or with which it was not measured."""
    for row, job in enumerate(running):
        seen = job.seen
        if np.isfinite(seen.alone_s).any() or (shrinks and not seen.rigid):
            continue
        pairs = zip(types, seen.reach, strict=True)
        reach = ", ".join(f"{kind.name} has {kind.gpus}, measured on up to {most}" for kind, most in pairs)
        what = f"it asks for {seen.asked_gpus} GPUs, with which {seen.application} runs on no type ({reach})"
        raise InputError(f"job {jobs.job_id[row]}", what, "Leave it out, or name more nodes in --cluster")


def _must_have_no_pipelines(policy: str, running: Sequence[RunningJob]) -> None:
    cut = next((job for job in running if job.application.pipeline is not None), None)
    if cut is not None:
        what = f"{cut.application.name} is a pipeline, of which {policy} would not keep replicas whole and together"
        raise InputError(f"job {cut.seen.name}", what, "Choose sia or a policy of Gavel, or leave it out")


def _must_be_profiled(types: Sequence[GpuType], known: Mapping[str, Application]) -> None:
    for application in known.values():
        for kind in types:
            if kind.name not in application.speed:
                there = ", ".join(application.speed)
                what = f"no steps on GPU type {kind.name!r} were measured, only on {there}"
                raise InputError(f"application {application.name!r}", what, "Name the types of --cluster like these")
