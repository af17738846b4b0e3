"""Replays a table of jobs on a cluster under a scheduling policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import COUNT, placement_named, room_of
from perdure.scheduling.policies import Compat, PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.plain import replay
from perdure.simulation.result import AttemptLog, Result, SpanLog
from perdure.simulation.workload import Workload
from perdure.simulation.world import Retry, Trail


def simulate(
    table: JobTable,
    cluster: Cluster,
    policy: str | Policy,
    placement: str | Placement | None = COUNT,
    retry: Retry | None = None,
    seed: int = 0,
    compat: Compat | None = None,
    options: PolicyOptions | None = None,
    spans: bool = False,
) -> Result:
    """Replay all jobs of `table` on `cluster`; nothing is left out.

    `policy` is a name, perhaps with an argument, or a policy; a name is read with `options`, to which `compat` is
    added. `placement` is a name, a placement, or None where GPUs are only counted. `retry` None replays the recorded
    attempts as they are. `spans` asks for `Result.spans`.

    Raises `InputError`, naming the job, for one that cannot be replayed, `ConfigError` for an unknown name and
    `PolicyError` for a policy that asks for the impossible.
    """
    jobs = Workload.of(table)
    if isinstance(policy, str):
        options = options or PolicyOptions()
        policy = policy_named(policy, replace(options, compat=compat or options.compat))
    if isinstance(placement, str):
        placement = placement_named(placement, seed)
    _must_fit(table, cluster, placement)
    trail = replay(jobs, room_of(cluster, placement, jobs.ticks_per_s), policy, retry)
    return _result(policy.name, COUNT if placement is None else placement.name, seed, jobs, cluster, trail, spans)


def _must_fit(table: JobTable, cluster: Cluster, placement: Placement | None) -> None:
    """Every job finds its place in an empty cluster, if only on the placement's last rung."""
    for gpus in np.unique(table.gpus).tolist():
        room = room_of(cluster, placement, 1)
        relaxed = 10**9
        if not room.take(0, gpus, 0) and not room.take(0, gpus, relaxed):
            name = table.job_id[int(np.argmax(table.gpus == gpus))]
            what = f"it asks for {gpus} GPUs, and an empty cluster of {cluster.total_gpus} has no place for it"
            raise InputError(f"job {name}", what, "Leave the job out, take a larger cluster or another placement")


def _result(
    policy: str, placement: str, seed: int, jobs: Workload, cluster: Cluster, trail: Trail, spans: bool
) -> Result:
    def at(ticks: NDArray[np.int64] | list[int]) -> NDArray[np.float64]:
        return jobs.origin_s + np.asarray(ticks, np.int64) / jobs.ticks_per_s

    log = np.array(trail.log, np.int64).reshape(-1, 8).T
    job, number, submit, start, end, ran, passed, node = log
    return Result(
        policy,
        placement,
        seed,
        at(trail.start),
        at(trail.end),
        np.array(trail.preempted, np.int64),
        np.array(trail.promoted, np.int64),
        np.array(trail.passed, np.bool_),
        AttemptLog(job, number, at(submit), at(start), at(end), ran / jobs.ticks_per_s, passed.astype(bool), node),
        trail.events,
        trail.busy / jobs.ticks_per_s,
        cluster.total_gpus,
        _spans(trail, at) if spans else None,
    )


def _spans(trail: Trail, at: Callable[[list[int]], NDArray[np.float64]]) -> SpanLog:
    job, number, start, end, shares = zip(*trail.spans, strict=True) if trail.spans else ((), (), (), (), ())
    return SpanLog(np.array(job, np.int64), np.array(number, np.int64), at(list(start)), at(list(end)), tuple(shares))
