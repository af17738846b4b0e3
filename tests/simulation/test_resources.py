"""CPUs and memory beside GPUs: a job starts only where all that it asks for is free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.placed import Placed
from perdure.scheduling.placement.registry import PLACEMENTS, placement_named, room_of
from perdure.scheduling.placement.resources import NodeResource
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.fitting import fitting, misfits
from perdure.simulation.simulate import simulate
from perdure.traces.trace import Trace
from tests.simulation.reference.instances import Instance

GIB = 1024


def jobs(*rows: tuple[str, int, int, int, int]) -> JobTable:
    """Of users, GPUs, CPUs, GiB and seconds; all come at once."""
    users, gpus, cpus, gib, run_s = map(np.array, zip(*rows, strict=True))
    n = len(rows)
    return JobTable(
        np.arange(n).astype(str), np.zeros(n), gpus, run_s.astype(float), user=users, cpus=cpus, mem_mib=gib * GIB
    )


def starts(table: JobTable, spec: str, policy: str, placement: str = "count") -> list[float]:
    return simulate(table, Cluster.parse(spec), policy, placement).start_s.tolist()


def test_the_example_of_the_drf_paper() -> None:
    """9 CPUs and 18 GB; tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB: three and two of them run."""
    table = jobs(*[("a", 1, 1, 4, 10)] * 6, *[("b", 1, 3, 1, 10)] * 6)
    begins = starts(table, "1x100:cpu=9:mem=18G", "drf")
    assert (begins[:6].count(0), begins[6:].count(0)) == (3, 2)


def test_the_resource_that_a_user_needs_most_decides_and_not_the_gpus() -> None:
    """After a job each, c has 3 of 18 CPUs and 12 of 64 GiB, the least share, though as many GPUs as a: c is next.

    The second job of a then finds 4 CPUs of the 7 that it needs, until the second one of b ends.
    """
    a, b, c = ("a", 1, 7, 4), ("b", 2, 1, 4), ("c", 1, 3, 12)
    table = jobs((*a, 100), (*a, 40), (*b, 80), (*b, 50), (*c, 30), (*c, 60))
    assert starts(table, "1x8:cpu=18:mem=64G", "drf") == [0, 50, 0, 0, 0, 0]


def test_drf_of_gpus_alone_knows_only_those() -> None:
    table = jobs(*[("a", 1, 1, 4, 10)] * 6, *[("b", 1, 3, 1, 10)] * 6)
    begins = starts(table, "1x5", "drf")
    assert (begins[:6].count(0), begins[6:].count(0)) == (3, 2)  # by turns, a first


def test_tetris_prefers_the_job_that_uses_what_is_free_best() -> None:
    """Equal GPUs and seconds: the one that asks for more of the memory, of which all is free, goes first."""
    held = ("a", 1, 6, 1, 100)
    table = jobs(held, ("a", 2, 2, 1, 10), ("a", 2, 1, 8, 10))
    later = replace(table, submit_s=np.array([0.0, 1.0, 1.0]))
    assert starts(later, "1x4:cpu=8:mem=12G", "tetris")[1:] == [11, 1]
    assert starts(later, "1x3", "tetris")[1:] == [1, 11]  # as GPUs see it they are alike


def test_a_job_waits_for_the_scarcest_of_what_it_asks_for() -> None:
    table = jobs(("a", 1, 8, 1, 10), ("a", 1, 1, 1, 10), ("a", 1, 0, 16, 10), ("a", 1, 0, 1, 10))
    assert starts(table, "1x8:cpu=8", "fjf") == [0, 10, 0, 0]
    assert starts(table, "1x8:mem=17G", "fjf") == [0, 0, 10, 0]
    assert starts(table, "1x8:cpu=8", "fifo") == [0, 10, 10, 10]
    assert starts(table, "1x8", "fifo") == [0, 0, 0, 0]


def test_a_preempted_job_makes_room_on_all_counts() -> None:
    table = replace(jobs(("a", 1, 8, 1, 100), ("a", 1, 8, 1, 10)), submit_s=np.array([0.0, 5.0]))
    found = simulate(table, Cluster.parse("1x8:cpu=8"), "srtf")
    assert (found.start_s.tolist(), found.preempted.tolist()) == ([0, 5], [1, 0])


def test_a_borrower_makes_room_for_cpus_too() -> None:
    """A GPU is free, and only the one who borrowed has the CPUs for who is within quota."""
    table = replace(
        jobs(("b", 9, 9, 1, 100), ("a", 1, 5, 1, 10)), submit_s=np.array([0.0, 5.0]), vc=np.array(["b", "a"])
    )
    policy = policy_named("philly", PolicyOptions(quotas={"a": 5, "b": 5}))
    found = simulate(table, Cluster.parse("1x10:cpu=10"), policy)
    assert (found.start_s.tolist(), found.preempted.tolist()) == ([0, 5], [1, 0])
    assert simulate(table, Cluster.parse("1x10"), policy).preempted.tolist() == [0, 0]


def test_a_job_finds_its_cpus_on_the_nodes_of_its_gpus() -> None:
    """Each node has CPUs left, and neither has enough for the third job beside its GPU."""
    table = jobs(("a", 1, 6, 1, 10), ("a", 1, 6, 1, 10), ("a", 1, 4, 1, 10))
    assert starts(table, "2x4:cpu=8", "fjf", "first-fit") == [0, 0, 10]
    assert starts(table, "2x4:cpu=8", "fjf") == [0, 0, 0]


@pytest.mark.parametrize("placement", sorted({*PLACEMENTS, "skew:1"} - {"skew"}))  # by rows, which change here
def test_no_node_gives_more_than_it_has(placement: str) -> None:
    spec, preempted = Cluster.parse("2x4:cpu=8:mem=12M"), 0
    for seed in range(20):
        drawn = Instance.with_others(seed).table
        fit = np.flatnonzero(~misfits(drawn, spec, placement_named(placement)))
        table = drawn.take(fit)
        found = simulate(table, spec, "srtf", placement, spans=True)
        spans, preempted = found.spans, preempted + int(found.preempted.sum())
        assert spans is not None
        assert set(spans.job.tolist()) == set(range(len(table)))
        for asked, has in ((table.gpus, 4), (table.cpus, 8), (table.mem_mib, 12)):
            for instant in np.unique(spans.start_s):
                held = np.zeros(2)
                for i in np.flatnonzero((spans.start_s <= instant) & (instant < spans.end_s)).tolist():
                    job = spans.job[i]
                    for node, gpus in spans.shares[i]:
                        held[node] += -(-int(asked[job]) * gpus // int(table.gpus[job]))
                assert (held <= has).all()
    assert preempted


@pytest.mark.parametrize("policy", ["easy", "conservative", "slurm"])
def test_policies_that_reserve_gpus_alone_still_start_every_job(policy: str) -> None:
    for seed in range(20):
        drawn = Instance.with_others(seed)
        cluster = Cluster.parse("1x{}:cpu={}:mem={}M".format(drawn.total, *drawn.others))
        assert np.isfinite(simulate(drawn.table, cluster, policy).end_s).all()


def test_a_job_is_never_kept_off_the_only_node_with_enough_cpus() -> None:
    cluster = Cluster(np.array([4, 4]), cpus=np.array([8, 2]))
    room = room_of(cluster, placement_named("first-fit"), 1, (NodeResource("CPUs", [8], [8, 2]),))
    assert isinstance(room, Placed)
    room.avoid(0, 2, [1])
    assert room.avoided == {0: frozenset({1})}
    room.avoid(0, 2, [0])
    assert room.avoided == {0: frozenset({1})}


def test_what_does_not_fit_and_what_is_not_told_is_named() -> None:
    table = jobs(("a", 1, 9, 1, 10), ("a", 1, 0, 1, 10))
    with pytest.raises(InputError, match="it asks for 1 GPUs and 9 CPUs, and count finds no place"):
        simulate(table, Cluster.parse("1x8:cpu=8"), "fifo")
    trace = Trace(table, "perdure")
    kept = fitting(trace, "t.csv", Cluster.parse("1x8:cpu=8"), skip_bad=True)
    assert (len(kept.table), kept.left_out) == (1, {"no place for it by count": 1})
    assert kept.notes == ("1 of 2 jobs do not tell how many CPUs they ask for; they count as asking for none",)
    silent = Trace(replace(table, mem_mib=np.zeros(2, np.int64)), "perdure")
    with pytest.raises(InputError, match="no job tells how many MiB"):
        fitting(silent, "t.csv", Cluster.parse("1x8:mem=8G"), skip_bad=True)


def test_a_cluster_tells_a_resource_of_all_nodes_or_of_none() -> None:
    mixed = Cluster.parse("2x4:a100:cpu=8:mem=1T+1x8:cpu=16:mem=512G/2")
    assert (mixed.cpus.tolist(), mixed.mem_mib.tolist()) == ([8, 8, 16], [2**20, 2**20, 2**19])
    assert Cluster.parse("2x4").counts_gpus_alone
    for spec in ("2x4:cpu=8+1x8", "2x4:mem=8"):
        with pytest.raises(InputError):
            Cluster.parse(spec)
