"""Replays a table of jobs on a cluster under a scheduling policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement import Counted
from perdure.scheduling.policies import Compat, PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.plain import replay
from perdure.simulation.result import AttemptLog, Result
from perdure.simulation.workload import Workload
from perdure.simulation.world import Retry, Trail


def simulate(
    table: JobTable,
    cluster: Cluster,
    policy: str | Policy,
    placement: str = "count",
    retry: Retry | None = None,
    seed: int = 0,
    compat: Compat | None = None,
    options: PolicyOptions | None = None,
) -> Result:
    """Replay all jobs of `table` on `cluster`; nothing is left out.

    `policy` is a name, perhaps with an argument, or a policy; a name is read with `options`, to which `compat` is
    added. `retry` None replays the recorded attempts as they are. Raises `InputError`, naming the job, for one that
    cannot be replayed, `ConfigError` for an unknown name and `PolicyError` for a policy that asks for the impossible.
    """
    jobs = Workload.of(table)
    _must_fit(table, cluster)
    if isinstance(policy, str):
        options = options or PolicyOptions()
        policy = policy_named(policy, replace(options, compat=compat or options.compat))
    trail = replay(jobs, Counted(cluster.total_gpus), policy, retry)
    return _result(policy.name, placement, seed, jobs, cluster, trail)


def _must_fit(table: JobTable, cluster: Cluster) -> None:
    large = np.flatnonzero(table.gpus > cluster.total_gpus)
    if len(large):
        row = int(large[0])
        what = f"it asks for {table.gpus[row]} GPUs, the cluster has {cluster.total_gpus}"
        raise InputError(f"job {table.job_id[row]}", what, "Leave the job out, or take a larger cluster")


def _result(policy: str, placement: str, seed: int, jobs: Workload, cluster: Cluster, trail: Trail) -> Result:
    def seconds(ticks: NDArray[np.int64] | list[int]) -> NDArray[np.float64]:
        return np.asarray(ticks, np.int64) / jobs.ticks_per_s

    log = np.array(trail.log, np.int64).reshape(-1, 8).T
    job, number, submit, start, end, ran, passed, node = log
    return Result(
        policy,
        placement,
        seed,
        seconds(trail.start),
        seconds(trail.end),
        np.array(trail.preempted, np.int64),
        np.array(trail.promoted, np.int64),
        np.array(trail.passed, np.bool_),
        AttemptLog(job, number, seconds(submit), seconds(start), seconds(end), seconds(ran), passed.astype(bool), node),
        trail.events,
        trail.busy / jobs.ticks_per_s,
        cluster.total_gpus,
    )
