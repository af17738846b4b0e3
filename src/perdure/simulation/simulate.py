"""Replays a table of jobs on a cluster under a scheduling policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import COUNT, placement_named, room_of
from perdure.scheduling.placement.resources import NodeResource, resources_of
from perdure.scheduling.policies import Compat, PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.faults import NodeFaults
from perdure.simulation.fitting import must_fit
from perdure.simulation.outcome import ReplayOutcome
from perdure.simulation.plain import replay
from perdure.simulation.restart_cost import FREE, RestartCost
from perdure.simulation.result import Result
from perdure.simulation.retry_hook import Retry
from perdure.simulation.workload import Workload

Engine = Literal["auto", "plain", "compiled"]
_LOADING_S = 0.35  # that numba and the compiled loops take to load, once in a process
_PLAIN_US = {  # that the plain loop takes for a job, in microseconds, by policy; measured at 1,000 and 3,000 jobs
    "fifo": 12, "fjf": 12, "sjf": 12, "tetris": 20, "easy": 30, "maxmin": 50, "philly": 60, "fewest-gpus": 90,
    "srtf": 140, "srsf": 140, "las": 190, "las-2d": 190, "conservative": 350, "slurm": 500, "gittins-2d": 600,
}  # fmt: skip
_OTHER_US = 100
_PLACED = 3  # times that, where GPUs have places


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
    engine: Engine = "auto",
    faults: NodeFaults | None = None,
    repeats: int = 1,
    cost: RestartCost = FREE,
    beside: Sequence[str] = (),
) -> Result:
    """Replay all jobs of `table` on `cluster`; nothing is left out.

    `policy` is a name, perhaps with an argument, or a policy; a name is read with `options`, to which `compat` is
    added. `placement` is a name, a placement, or None where GPUs are only counted. `retry` None replays the recorded
    attempts as they are; with one, and with a placement, `faults` says which attempts fail for a fault of a node, that
    the job then meets again on that node alone. `spans` asks for `Result.spans`. `engine` "plain" or "compiled"
    insists on a loop; what only the plain one knows (the other policies and placements, spans, CPUs and memory) runs
    there all the same. `cost` is what a preemption adds to a job's running time. `repeats` says how many such replays
    this process is to do, and `beside` under which policies, this one and others: what is loaded for one serves all.

    Raises `InputError`, naming the job, for one that cannot be replayed, `ConfigError` for an unknown name and
    `PolicyError` for a policy that asks for the impossible.
    """
    jobs = Workload.of(table, cost=cost)
    if isinstance(policy, str):
        options = options or PolicyOptions()
        policy = policy_named(policy, replace(options, compat=compat or options.compat))
    if isinstance(placement, str):
        placement = placement_named(placement, seed)
    must_fit(table, cluster, placement)
    if retry is None or placement is None:
        faults = None
    if engine == "auto":
        engine = "compiled" if worth_compiling(len(jobs) * repeats, beside or (policy.name,), placement) else "plain"
    outcome = _outcome(jobs, cluster, policy, placement, retry, spans, engine, faults, resources_of(cluster, table))
    return outcome.result(jobs, policy.name, placement.name if placement else COUNT, seed, cluster.total_gpus)


def _outcome(
    jobs: Workload,
    cluster: Cluster,
    policy: Policy,
    placement: Placement | None,
    retry: Retry | None,
    spans: bool,
    engine: Engine,
    faults: NodeFaults | None,
    resources: tuple[NodeResource, ...],
) -> ReplayOutcome:
    if not spans and not resources and engine == "compiled":
        from perdure.simulation.compiled import run

        loop = run.compiled(jobs, cluster, policy, placement)
        if loop is not None:
            return run.replay(jobs, cluster, loop, placement, retry, faults)
    room = room_of(cluster, placement, jobs.ticks_per_s, resources)
    return ReplayOutcome.of(replay(jobs, room, policy, retry, faults), spans)


def worth_compiling(jobs: int, policies: Sequence[str], placement: Placement | None) -> bool:
    """Whether the plain loop would take longer for these jobs under all of the policies than loading the compiled one.

    False where numba is not installed.
    """
    loading_s = 0.0 if "perdure.simulation.compiled.run" in sys.modules else _LOADING_S
    each_us = sum(_PLAIN_US.get(policy.partition(":")[0], _OTHER_US) for policy in policies)
    return jobs * each_us * (_PLACED if placement else 1) > loading_s * 1e6 and find_spec("numba") is not None
