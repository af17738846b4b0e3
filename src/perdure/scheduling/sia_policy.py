"""Sia as a policy: each minute the configurations that `sia.choose` finds, for what has been learned of the jobs.

Source: S. Jayaram Subramanya et al., "Sia: heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023,
section 3; details after the behaviour of its public simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.scheduling.elastic import ElasticJob, ElasticView, Plan, Share
from perdure.scheduling.sia import NOT_RUN, Configurations, Floats, choose, normalised, restart_factor
from perdure.throughput.learned import expected_goodput, stages_of, whole_replicas

PROVEN = 2e-4  # a gap below this is the solver's tolerance
PLACES = 2  # decimals of a job's term: less is not worth a restart


@dataclass(frozen=True, slots=True)
class Sia:
    """A job starts on one GPU of any type, and may at most double the most GPUs that it was seen on.

    A pipeline starts with one replica, grows by whole ones, and at most doubles them. One that
    names its sizes starts on the smallest, and gets no others. So speed is never guessed far
    beyond what was seen. `lambda_` is what leaving a job out costs, in the unit of
    ``goodput^p``; `p` below 0 weighs slow jobs more than fast ones. Beyond `limit_s` seconds the solver's
    best plan so far is taken, and how far from the optimum it may be goes into `gaps`.
    """

    name: str = "sia"
    round_s: float = 60.0
    lambda_: float = 1.1
    p: float = -0.5
    limit_s: float = 10.0  # for the solver, in a round
    adaptive: bool = True
    shrinks: bool = True
    pipelines: bool = True
    gaps: list[float] = field(default_factory=list)  # of rounds in which the solver ran out of time

    def check(self, view: ElasticView) -> None:
        """Raises `InputError` for a gang, or a pipeline, that is no configuration."""
        jobs, configs = list(view.jobs.values()), _configurations(view)
        least = self._replicas(view, jobs, configs) == 1
        for row, job in enumerate(jobs):
            if job.rigid and not (_rigid_speed(job, configs) > 0).any():
                what = f"it asks for {job.asked_gpus} GPUs, and Sia knows powers of two on a node, or whole nodes"
                raise InputError(f"job {job.name}", what, "Choose another policy, or leave it out")
            if job.learned.stages and not (job.rigid or least[row].any()):
                stages = ", ".join(
                    f"{n} of {kind.name}" for n, kind in zip(job.learned.stages, view.types, strict=True)
                )
                what = f"a replica takes {stages}, and Sia knows powers of two on a node, or whole nodes that are there"
                raise InputError(f"job {job.name}", what, "Choose another policy, or leave it out")

    def plan(self, view: ElasticView) -> Plan:
        free = np.array([each.gpus for each in view.types])
        pinned = {row: job.share for row, job in view.jobs.items() if job.restarting and job.share is not None}
        for share in pinned.values():
            free[share.gpu_type] -= share.gpus
        rows = [row for row in view.jobs if row not in pinned]
        if not rows:
            return pinned
        jobs = [view.jobs[row] for row in rows]
        configs = _within_reach(_configurations(view), jobs)
        worth = self._worth(view, jobs, configs)
        found = choose(worth, configs, free, self.lambda_, self.p, self.limit_s)
        chosen = found.config.tolist()
        if found.gap > PROVEN:
            self.gaps.append(found.gap)
        given = {row: _share(configs, config) for row, config in zip(rows, chosen, strict=True) if config != NOT_RUN}
        return {**pinned, **given}

    def _worth(self, view: ElasticView, jobs: list[ElasticJob], configs: Configurations) -> Floats:
        """The normalised goodput of each job in each configuration, less where it must restart; NaN for impossible."""
        sizes = np.array([each.gpus_per_node for each in view.types])
        most = np.array([_most_replicas(job) for job in jobs])
        replicas = self._replicas(view, jobs, configs)
        may = (replicas > 0) & (replicas <= most[:, None])
        for row, job in enumerate(jobs):
            if job.sizes:
                may[row] &= np.isin(configs.gpus, job.sizes)
        few = may.any(axis=0)  # of the others no job may have any: their goodput is not asked for
        expected = np.full(may.shape, np.nan)
        learned = [job.learned for job in jobs]
        expected[:, few] = expected_goodput(learned, configs.gpus[few], configs.gpu_type[few], sizes)
        unknown = np.isnan(expected).all(axis=1)  # they have one replica at most: each of its GPUs counts as one
        expected[unknown] = configs.gpus
        expected[~may] = np.nan
        fewest = np.where(may, configs.gpus, configs.gpus.max()).min(axis=1)
        for row, job in enumerate(jobs):
            if job.rigid:  # only the type is chosen, by what was profiled
                fewest[row] = job.asked_gpus
                expected[row] = _rigid_speed(job, configs)
        worth = normalised(expected, fewest)
        age_s = np.array([view.now_s - job.submit_s for job in jobs])
        restarts = np.array([job.restarts for job in jobs])
        factor = restart_factor(age_s, restarts, np.array([job.restart_s for job in jobs]))
        shares = list(zip(configs.gpu_type.tolist(), configs.nodes.tolist(), configs.gpus.tolist(), strict=True))
        for row, job in enumerate(jobs):
            if job.share is not None:
                kept = shares.index((job.share.gpu_type, job.share.nodes, job.share.gpus))
                same = worth[row, kept]
                worth[row] *= factor[row]
                worth[row, kept] = same
        with np.errstate(divide="ignore"):
            term = np.minimum(np.round(worth**self.p, PLACES), 3000.0)
        return np.asarray(term ** (1 / self.p), float)

    @staticmethod
    def _replicas(view: ElasticView, jobs: list[ElasticJob], configs: Configurations) -> NDArray[np.int64]:
        """Whole replicas of each job in each configuration; 0 where it is not measured, or they are not whole."""
        stages = stages_of([job.learned for job in jobs], len(view.types))
        found = whole_replicas(configs.gpus, configs.gpu_type, stages)
        for row, job in enumerate(jobs):
            if job.reach:
                found[row, configs.gpus > np.array(job.reach)[configs.gpu_type]] = 0
        return found


def _configurations(view: ElasticView) -> Configurations:
    return Configurations.of_cluster(
        np.array([each.nodes for each in view.types]), np.array([each.gpus_per_node for each in view.types])
    )


def _most_replicas(job: ElasticJob) -> int:
    return max(min(job.sizes, default=1), min(2 * job.learned.most_gpus(), job.most_gpus))


def _within_reach(configs: Configurations, jobs: Sequence[ElasticJob]) -> Configurations:
    """Without those that no job could have: of 1,000 nodes there are 1,000 configurations, and most are too large."""
    asked = {job.asked_gpus for job in jobs if job.rigid} | {job.share.gpus for job in jobs if job.share}
    most = max((_most_replicas(job) * max(job.learned.stages, default=1) for job in jobs if not job.rigid), default=1)
    kept = (configs.gpus <= most) | np.isin(configs.gpus, list(asked))
    return Configurations(configs.nodes[kept], configs.gpus[kept], configs.gpu_type[kept])


def _rigid_speed(job: ElasticJob, configs: Configurations) -> Floats:
    """How fast it is in each configuration that has the GPUs it asks for (n_configs,), NaN in others."""
    return np.where(configs.gpus == job.asked_gpus, 1.0 / job.alone_s[configs.gpu_type], np.nan)


def _share(configs: Configurations, config: int) -> Share:
    return Share(int(configs.gpu_type[config]), int(configs.nodes[config]), int(configs.gpus[config]))
