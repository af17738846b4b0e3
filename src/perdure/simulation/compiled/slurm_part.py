"""The part of compiled Slurm: the settings, the queue, the running jobs, shares, limits and dependencies.

A *part* is what one policy keeps from pass to pass; the loop hands it to the policy's kernels with the common `State`.
All is read from the same objects as the plain policy uses (`requests_of`, `Priorities`, `SchedulerSettings`), so that
both start from the same numbers; nothing of Slurm's rules is written twice here. Arrays are as long as they can ever
become, since kernels allocate nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.backfill import CycleTimes
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.priorities import Priorities
from perdure.scheduling.slurm.requests import JobRequests, requests_of
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.scheduling.view import View
from perdure.simulation.compiled import dependencies, event_heap, expected_ends, fair_shares, free_gpus, limit_counts
from perdure.simulation.compiled.kernel import FLAG, LONG, Records, records
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of


class SlurmPart(NamedTuple):
    """The settings, the queue and the running jobs of compiled Slurm.

    Between passes the agenda has one entry for each running job, and `queue` each eligible job once, in the order of
    the priorities of the last calculation; ``of_size[g]`` counts those that ask for g GPUs, and ``tally.narrowest`` is
    the least of their sizes. `forecast`, `started` and the counts of `tested` mean something within a cycle only.

    The fields of `tally`: `many`, the length of the queue; `calculated`, the tick of the last calculation of
    priorities; `next_cycle` and `next_whole_pass`, the ticks from which these are due; `changed`, whether anything has
    happened that a backfill cycle could make use of; `cut`, whether the depth ended the last main pass, so that the
    next whole pass has something to see.
    """

    how: Records  # one record: the settings, times in ticks
    job: Records
    queue: NDArray[np.int64]  # rows; the first `tally.many`
    of_size: NDArray[np.int64]  # (total_gpus + 2,): eligible jobs by the GPUs that they ask for
    fair: fair_shares.FairShares
    limits: limit_counts.LimitTable
    dependencies: dependencies.Dependencies
    begins: event_heap.Ticks  # jobs whose begin time lies ahead
    agenda: expected_ends.Agenda
    forecast: free_gpus.Forecast
    started: NDArray[np.int64]  # in this cycle
    reserved: NDArray[np.int64]  # reservations of each partition in this cycle
    tested: NDArray[np.int64]  # jobs tested in this cycle: of each partition, user, user in a partition, association
    tally: Records  # one record


def part_of(policy: Slurm, jobs: Workload, total_gpus: int) -> SlurmPart | None:
    """The part before the first event, where GPUs are only counted: nobody waits, nobody runs.

    None where a partition has nodes of its own: then nodes must be simulated (`slurm_nodes`). A job that its partition,
    QOS or account can never start is `refused`; it comes, and stays out of the queue for ever.
    """
    settings = policy.settings
    if any(each.nodes is not None for each in settings.partitions):
        return None
    return counted_part(settings, jobs, total_gpus, ())


def counted_part(settings: SchedulerSettings, jobs: Workload, total_gpus: int, sizes: Sequence[int]) -> SlurmPart:
    """The same for settings that are known to be modelled; `sizes` are the GPUs of each node, where those matter.

    At most `total_gpus` jobs run at once, as each has one GPU or more; `forecast` has a stretch for each of them and
    up to three for each job that a cycle may test. The heap of begin times has no room where no job has a begin time
    or a dependency, and the counts of `tested` none where no bound on tests is set.
    """
    view = view_of(jobs, total_gpus)
    asked = requests_of(view, settings, sizes)
    n, most = len(jobs), min(len(jobs), total_gpus)
    bounded = _bounds(settings)
    users, partitions, nodes = len(view.users), len(asked.partitions), len(asked.associations.known)
    counts = partitions + users + users * partitions + nodes if any(bounded) else 0
    later = n if view.asks.eligible is not None or view.asks.needs is not None else 0
    return SlurmPart(
        _how(settings, view, partitions, users),
        _jobs(view, asked),
        np.zeros(n, np.int64),
        np.zeros(total_gpus + 2, np.int64),
        fair_shares.fair_shares_of(asked.associations.tree, Priorities.of(view, asked, settings.priority).usage),
        limit_counts.limit_table(asked.holders),
        dependencies.dependencies_of(view.asks.needs, n),
        event_heap.empty_ticks(n, later),
        expected_ends.empty_agenda(most),
        free_gpus.empty_forecast(most + 3 * min(n, settings.backfill.max_job_test) + 8),
        np.zeros(most, np.int64),
        np.zeros(partitions, np.int64),
        np.zeros(counts, np.int64),
        records(
            1, many=LONG, narrowest=LONG, calculated=LONG, next_cycle=LONG, next_whole_pass=LONG, changed=FLAG, cut=FLAG
        ),
    )


def _bounds(settings: SchedulerSettings) -> tuple[int, ...]:
    """How many jobs a cycle tests at most of one partition, user, user in a partition, and association; 0: no bound.

    bf_max_job_part, bf_max_job_user, bf_max_job_user_part and bf_max_job_assoc of SchedulerParameters.
    """
    each = settings.backfill
    return each.max_job_part, each.max_job_user, each.max_job_user_part, each.max_job_assoc


def _how(settings: SchedulerSettings, view: View, partitions: int, users: int) -> Records:
    """The settings as one record, times in ticks; weights are 0 without priority/multifactor.

    Intervals are at least one tick, or the loop would stand still at an instant. A weight of 0 also switches off the
    work for it: without `fair_weight` no usage is counted.
    """
    backfill, main, priority, per_s = settings.backfill, settings.main, settings.priority, view.ticks_per_s
    times = CycleTimes.of(backfill, per_s)
    values = {
        "interval": max(1, round(backfill.interval_s * per_s)),
        "window": times.window,
        "resolution": times.resolution,
        "min_age_reserve": times.min_age_reserve,
        "between_passes": max(1, round(main.sched_interval_s * per_s)),
        "depth": main.default_queue_depth,
        "partition_depth": main.partition_job_depth,
        "max_job_test": backfill.max_job_test,
        "max_job_start": backfill.max_job_start,
        "part_count_reserve": backfill.job_part_count_reserve,
        "min_prio_reserve": backfill.min_prio_reserve,
        "period": max(1, round(priority.calc_period_s * per_s)),
        "age_weight": priority.weights.age if priority.multifactor else 0,
        "fair_weight": priority.weights.fairshare if priority.multifactor else 0,
        "partitions": partitions,
        "users": users,
    }
    values |= zip(("max_part", "max_user", "max_user_part", "max_assoc"), _bounds(settings), strict=True)
    flags = {
        "enabled": backfill.enabled,
        "accrue_always": "ACCRUE_ALWAYS" in priority.flags,
        "bounded": any(_bounds(settings)),
    }
    how = records(1, max_age=np.float64, **dict.fromkeys(values, LONG), **dict.fromkeys(flags, FLAG))
    for name, value in {**values, **flags, "max_age": priority.max_age_s * per_s}.items():
        how[name] = value
    return how


def _jobs(view: View, asked: JobRequests) -> Records:
    """A record for each job, none of which has come yet.

    `fixed` is what does not change of its priority: partition, QOS, size and nice value, by their weights. Age and fair
    share are added at each calculation. A begin time is a tick; without one it is ``-NEVER``, which is always over.
    """
    job = records(
        len(view.gpus),
        fixed=np.float64,  # of its priority
        priority=LONG,  # as last calculated
        tier=LONG,
        partition=LONG,
        user=LONG,
        node=LONG,  # its association
        limit=LONG,  # 0 where there is none
        eligible=LONG,  # long ago where there is no begin time
        since=LONG,  # from when it accrues age
        ends=LONG,  # expected
        refused=FLAG,  # it never starts
        waits=FLAG,
    )
    tiers = np.array([each.priority_tier for each in asked.partitions], np.int64)
    job["fixed"] = asked.fixed
    job["partition"], job["tier"] = asked.partition, tiers[asked.partition]
    job["user"], job["node"], job["limit"] = view.user, list(asked.associations.of_job), asked.limit
    job["eligible"] = -event_heap.NEVER if view.asks.eligible is None else view.asks.eligible
    job["refused"][list(asked.refused)] = True
    return job
