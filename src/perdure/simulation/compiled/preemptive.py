"""Policies that give all GPUs again after each event, compiled: shortest remaining first, least attained service.

`perdure.scheduling.shortest` and `las` define them. One structure serves all (`levels`): they differ by the key by
which jobs are ranked within a level, and by what moves jobs between levels. Of the policies without levels all jobs are
in the only one.

Sources: J. Gu et al., "Tiresias", NSDI 2019 (least attained service in levels, the Gittins index); SRTF and SRSF are
its baselines.
"""

from __future__ import annotations

import numpy as np

from perdure.scheduling.keyed import KeyedPolicy
from perdure.scheduling.las import Gittins2D, LeastAttained
from perdure.scheduling.shortest import FewestGpus, ShortestRemaining, ShortestService
from perdure.simulation.compiled.gittins_indices import refresh
from perdure.simulation.compiled.gpu_pass import all_fit, give
from perdure.simulation.compiled.kernel import entry, kernel
from perdure.simulation.compiled.level_moves import (
    cease_to_run,
    come,
    come_down,
    next_move,
    rise,
    settle_turns,
    sink,
)
from perdure.simulation.compiled.levels import (
    ATTAINED,
    GITTINS,
    GPUS,
    REMAINING,
    REMAINING_SERVICE,
    Levels,
    Rules,
    levels_of,
)
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.running_jobs import withdraw
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of

_BY: dict[type[KeyedPolicy], int] = {ShortestRemaining: REMAINING, ShortestService: REMAINING_SERVICE, FewestGpus: GPUS}


def prepare(policy: KeyedPolicy | LeastAttained, jobs: Workload, total_gpus: int) -> Levels | None:
    """Levels without jobs; None where equal jobs are to be as they stood (`AllByKey.inert`)."""
    if isinstance(policy, LeastAttained):
        return levels_of(jobs, _rules(policy, jobs), total_gpus)
    return None if policy.inert else levels_of(jobs, Rules(_BY[type(policy)]), total_gpus)


def _rules(policy: LeastAttained, jobs: Workload) -> Rules:
    """The rules of a Tiresias policy, in ticks and GPU-ticks.

    Ranks are made whole numbers that keep the order of the indices, so that keys of jobs compare exactly: the greatest
    index becomes 0.
    """
    limits = np.array([round(limit * jobs.ticks_per_s) for limit in policy.queue_limits], np.int64)
    options = policy.counts_gpus, float(policy.promote_knob), policy.late_demotion, policy.resets_on_retry, limits
    if not isinstance(policy, Gittins2D):
        return Rules(ATTAINED, *options)
    table = policy.steps(view_of(jobs, 0))
    ranks = np.unique(-table.ranks, return_inverse=True)[1].astype(np.int64)
    return Rules(GITTINS, *options, table.bounds, ranks)


@kernel
def _leave(state, levels, row):  # type: ignore[no-untyped-def]
    """A job whose attempt ends is no longer among the running ones.

    What it was served stays with it for its next attempt.
    """
    withdraw(levels, row)
    cease_to_run(state, levels, row)


@kernel
def _give(state, levels):  # type: ignore[no-untyped-def]
    """Move jobs between levels, and give out GPUs.

    In the plain policy's order: running jobs are sorted to the front of their queue, those that sank go to the tail of
    the next one, and those that waited long enough to the tail of the first; then the pass.
    """
    sinking = sink(state, levels)
    if not all_fit(state) or (levels.rules.late and levels.rules.by == GITTINS):
        refresh(state, levels)  # else nobody looks at the order of the running jobs
    come_down(state, levels, sinking)
    rise(state, levels)
    if state.tally[0].waiting:
        give(state, levels)
    settle_turns(levels, sinking)


kernels(Levels, come, _leave, _give, next_move)


@entry
def advance(state, levels, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for these policies."""
    return run(state, levels, asks, resumed)
