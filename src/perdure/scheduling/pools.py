"""Policies that plan for one GPU type, on a cluster of several: each type is a pool, with a policy of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from perdure.scheduling.elastic import ElasticJob, ElasticPolicy, ElasticView, Plan, SelectivePolicy, Share, TrueSpeed


@dataclass(slots=True)
class TypePools:
    """A job stays in the pool that asks for least of its GPUs when it comes, itself included; of equals, the fastest.

    An app is in one pool with all of its jobs. Nobody moves, even where another pool is idle: how much a policy loses
    that knows one type is left to be seen.
    """

    make: Callable[[], ElasticPolicy]
    _model: ElasticPolicy = field(init=False)  # says how the policy is
    _policies: list[ElasticPolicy] = field(default_factory=list)  # by type
    _pool: dict[int, int] = field(default_factory=dict)  # of each job

    def __post_init__(self) -> None:
        self._model = self.make()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def round_s(self) -> float:
        return self._model.round_s

    @property
    def adaptive(self) -> bool:
        return self._model.adaptive

    @property
    def shrinks(self) -> bool:
        return bool(getattr(self._model, "shrinks", False))

    def check(self, view: ElasticView) -> None:
        """As the policy itself, of each pool."""
        if isinstance(self._model, SelectivePolicy):
            for place in range(len(view.types)):
                self._model.check(_pooled(view, place, {row: _in_pool(job, place) for row, job in view.jobs.items()}))

    def plan(self, view: ElasticView) -> Plan:
        if not self._policies:
            self._policies = [self._model, *(self.make() for _ in view.types[1:])]
        if len(view.types) == 1:
            return self._model.plan(view)
        self._house(view)
        plan = dict[int, Share]()
        for place, policy in enumerate(self._policies):
            jobs = {row: _in_pool(job, place) for row, job in view.jobs.items() if self._pool[row] == place}
            if jobs:
                found = policy.plan(_pooled(view, place, jobs))
                plan |= {row: share._replace(gpu_type=place) for row, share in found.items()}
        return plan

    def _house(self, view: ElasticView) -> None:
        """Find pools for those that have none."""
        self._pool = {row: place for row, place in self._pool.items() if row in view.jobs}
        asked = [0] * len(view.types)
        for row, place in self._pool.items():
            asked[place] += view.jobs[row].asked_gpus
        app_of = {row: app for app in view.apps for row in app.jobs}
        for row, job in view.jobs.items():
            if row in self._pool:
                continue
            others = app_of[row].jobs if row in app_of else ()
            beside = next((self._pool[other] for other in others if other in self._pool), None)
            place = self._emptiest(view, job, asked) if beside is None else beside
            self._pool[row] = place
            asked[place] += job.asked_gpus

    @staticmethod
    def _emptiest(view: ElasticView, job: ElasticJob, asked: list[int]) -> int:
        runs = [place for place in view.fastest_first if isfinite(job.alone_s[place])]
        # One that runs nowhere with all that it asks for gets fewer, where there are most.
        runs = runs or [max(range(len(view.types)), key=lambda place: min(view.types[place].gpus, job.reach[place]))]
        return min(runs, key=lambda place: (asked[place] + job.asked_gpus) / view.types[place].gpus)


def _pooled(view: ElasticView, place: int, jobs: Mapping[int, ElasticJob]) -> ElasticView:
    return replace(view, types=(view.types[place],), jobs=jobs, fastest_first=(0,))


def _in_pool(job: ElasticJob, place: int) -> ElasticJob:
    """A job as it is seen where there is one GPU type alone."""
    learned, only = job.learned, slice(place, place + 1)
    return replace(
        job,
        learned=replace(
            learned,
            local=learned.local[only],
            single=learned.single[only],
            speed=learned.speed[only],
            stages=learned.stages[only],
        ),
        alone_s=job.alone_s[only],
        share=None if job.share is None else job.share._replace(gpu_type=0),
        oracle=None if job.oracle is None else PoolSpeed(job.oracle, place, job.reach[place]),
        reach=job.reach[only],
    )


@dataclass(frozen=True, slots=True)
class PoolSpeed:
    """The true speed of a job on one GPU type."""

    oracle: TrueSpeed
    place: int
    reach: int  # GPUs, as far as was measured

    def step_s(self, gpu_type: int, gpus: int) -> float:  # noqa: ARG002
        return self.oracle.step_s(self.place, gpus)

    def steps_left(self) -> float:
        return self.oracle.steps_left()

    def most_gpus(self) -> int:
        return min(self.oracle.most_gpus(), self.reach)
