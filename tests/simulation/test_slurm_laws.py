"""What holds for every site's Slurm and any jobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.room import Counted
from perdure.scheduling.slurm.policy import Slurm, SlurmRanking
from perdure.scheduling.slurm.settings import (
    BackfillSettings,
    Partition,
    PrioritySettings,
    PriorityWeights,
    SchedulerSettings,
)
from perdure.simulation.allocation import Passes
from perdure.simulation.checks import (
    Replay,
    gangs_are_whole,
    names_do_not_matter,
    no_gpu_is_used_twice,
    no_work_is_lost,
    the_same_seed_gives_the_same_schedule,
)
from perdure.simulation.fitting import accepted
from perdure.simulation.plain import PlainLoop
from perdure.simulation.simulate import simulate
from perdure.simulation.workload import Workload
from perdure.traces.trace import Trace
from tests.copying import replace
from tests.simulation.tables import jobs, tables
from tests.simulation.worlds import WORLDS, world

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
EVERY_SECOND = BackfillSettings(interval_s=1, resolution_s=1, window_s=1e6)


LAWS = (
    no_gpu_is_used_twice,
    gangs_are_whole,
    no_work_is_lost,
    the_same_seed_gives_the_same_schedule,
    names_do_not_matter,
)


@pytest.mark.parametrize("law", LAWS)
def test_laws_hold_for_every_site(law: Callable[[Replay], None]) -> None:
    for seed in range(0, WORLDS, 3):
        each = world(seed)
        whole = replace(each.table, attempts=None, submit_s=np.rint(each.table.submit_s))
        law(Replay(whole, each.cluster, Slurm(each.options.slurm), each.placement))


@quick
@given(table=tables(max_jobs=14), depth=st.sampled_from([1, 3, 500]))
def test_no_reservation_is_ever_delayed_where_jobs_run_as_long_as_their_limits(table: JobTable, depth: int) -> None:
    """Jobs stand in the order in which they came, so that all who come later have a lower priority."""
    table = replace(table, duration_s=table.duration_s + 1)
    policy = Slurm(SchedulerSettings(backfill=replace(EVERY_SECOND, max_job_test=depth)))
    loop = PlainLoop.of(Workload.of(table), Counted(8), policy, None)
    assert isinstance(loop.giver, Passes)
    assert isinstance(loop.giver.ranking, SlurmRanking)
    promised: dict[int, int] = {}
    while (now := loop.next_instant()) is not None:
        loop.happen(now)
        for row in range(len(table)):
            hold = loop.giver.ranking.hold(row)
            if hold is not None and hold.planned is not None:
                assert now < hold.planned <= promised.get(row, hold.planned)
                promised[row] = hold.planned
    for row, tick in promised.items():
        assert loop.world.trail.start[row] <= tick


@quick
@given(table=tables(max_jobs=14), weight=st.sampled_from([0, 1000]))
def test_without_backfill_a_job_starts_no_earlier_than_one_of_a_higher_priority(table: JobTable, weight: int) -> None:
    """Of jobs that came at one instant; ages are then equal."""
    table = replace(table, submit_s=np.zeros(len(table)))
    how = PrioritySettings(weights=PriorityWeights(age=500, job_size=weight))
    site = SchedulerSettings(priority=how, backfill=BackfillSettings(enabled=False))
    start_s = simulate(table, Cluster.parse("1x8"), Slurm(site), engine="plain").start_s
    order = np.argsort(-table.gpus if weight else np.zeros(len(table)), kind="stable")
    assert (np.diff(start_s[order]) >= 0).all()


@quick
@given(
    table=tables(max_jobs=14, max_gpus=4),
    placement=st.sampled_from(["first-fit", "best-fit", "consolidate", "ladder:15"]),
    nodes=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True), min_size=3, max_size=3),
    whole=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_jobs_stay_on_the_nodes_of_their_partition_and_share_none_that_one_has_for_itself(
    table: JobTable, placement: str, nodes: list[list[int]], whole: list[bool]
) -> None:
    names = np.unique(table.vc)
    partitions = tuple(
        Partition(name, nodes=tuple(sorted(some)), whole_nodes=alone)
        for name, some, alone in zip("abc", nodes, whole, strict=True)
    )
    assert set(names) <= set("abc")
    table = replace(table, partition=table.vc, duration_s=table.duration_s + 1)
    policy = Slurm(SchedulerSettings(backfill=EVERY_SECOND, partitions=partitions))
    spans = simulate(table, Cluster.parse("3x4+1x8"), policy, placement, spans=True).spans
    assert spans is not None
    of_name = {each.name: each for each in partitions}
    ran = list(zip(spans.job.tolist(), spans.start_s, spans.end_s, spans.shares, strict=True))
    for job, start_s, end_s, shares in ran:
        mine, held = of_name[table.partition[job]], {node for node, _ in shares}
        assert held <= set(mine.nodes or ())
        beside = [each for each in ran if each[0] != job and each[1] < end_s and start_s < each[2]]
        for _, _, _, theirs in beside if mine.whole_nodes else ():
            assert not held & {node for node, _ in theirs}


def test_jobs_that_slurm_refuses_are_left_out_and_counted_or_named() -> None:
    table = jobs((1, 0, 10), (1, 1, 10), (1, 2, 10), walltime_s=np.array([60.0, 7200.0, 9000.0]))
    site = SchedulerSettings(partitions=(Partition("short", max_time_s=3600),))
    cluster, found = Cluster.parse("1x8"), Trace(table, "perdure", {"others": 1})
    left = accepted(found, "jobs.csv", cluster, True, Slurm(site))
    assert left.table.job_id.tolist() == ["j0"]
    assert left.left_out == {"others": 1, "never started by Slurm (PartitionTimeLimit)": 2}
    with pytest.raises(InputError, match=r"jobs.csv: job j1: Slurm never starts it \(PartitionTimeLimit\)"):
        accepted(found, "jobs.csv", cluster, False, Slurm(site))
    assert accepted(found, "jobs.csv", cluster, False, Slurm()) is found
