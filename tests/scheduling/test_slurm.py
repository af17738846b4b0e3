"""Slurm's rules on cases worked out by hand: who goes first, who is started, and what holds the others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.room import Counted
from perdure.scheduling.slurm.main_pass import main_pass
from perdure.scheduling.slurm.policy import Slurm, SlurmRanking
from perdure.scheduling.slurm.settings import (
    Association,
    BackfillSettings,
    MainSettings,
    Partition,
    PrioritySettings,
    PriorityWeights,
    Qos,
    RunningLimits,
    SchedulerSettings,
)
from perdure.simulation.allocation import Passes, PolicyError
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate
from perdure.simulation.workload import Workload
from perdure.simulation.world import world_of
from tests.simulation.tables import jobs

EIGHT = Cluster.parse("1x8")
FINE = BackfillSettings(interval_s=1, resolution_s=1, end_window_s=0)
BUILTIN = BackfillSettings(enabled=False)


def run(table: JobTable, cluster: Cluster = EIGHT, **settings: object) -> Result:
    """Under these settings; the plain loop, cycles each second, times not rounded."""
    how = SchedulerSettings(**{"backfill": FINE, **settings})  # type: ignore[arg-type]
    return simulate(table, cluster, Slurm(how), engine="plain")


def at_once(table: JobTable, settings: SchedulerSettings) -> SlurmRanking:
    """The ranking after the events of the first instant."""
    work = Workload.of(table)
    world = world_of(work, Counted(8), None, None)
    passes = Passes(world, Slurm(settings))
    world.admit()
    passes.give()
    assert isinstance(passes.ranking, SlurmRanking)
    return passes.ranking


# Who goes first


def test_without_weights_and_backfill_it_is_fifo() -> None:
    rng = np.random.default_rng(0)
    rows = [(g, s, d) for g, s, d in zip(rng.integers(1, 9, 200), np.sort(rng.integers(0, 900, 200)),
                                         rng.integers(1, 60, 200), strict=True)]  # fmt: skip
    table = jobs(*rows)
    fifo = simulate(table, EIGHT, "fifo", engine="plain")
    assert run(table, backfill=BUILTIN).digest() == fifo.digest()


def test_the_age_is_counted_up_to_the_last_calculation() -> None:
    """After 600 s of a day: 6 of 864 thousandths; a job that came since has none."""
    how = PrioritySettings(weights=PriorityWeights(age=864_000), max_age_s=86_400, calc_period_s=300)
    table = jobs((8, 0, 700), (8, 0, 1), (8, 350, 1), (8, 650, 1))
    world = world_of(Workload.of(table), Counted(8), None, None)
    passes = Passes(world, Slurm(SchedulerSettings(priority=how)))
    for now in (0, 350, 650):
        world.view.now = now
        world.admit()
        passes.give()
    assert isinstance(passes.ranking, SlurmRanking)
    assert [passes.ranking.priority(row) for row in (1, 2, 3)] == [6000, 2500, 1]


def test_factors_add_up_by_their_weights() -> None:
    settings = SchedulerSettings(
        priority=PrioritySettings(
            weights=PriorityWeights(job_size=1000, partition=100, qos=10, assoc=400, tres={"gres/gpu": 80})
        ),
        partitions=(Partition("slow", priority_job_factor=5), Partition("fast", priority_job_factor=10)),
        qos=(Qos("high", priority=20), Qos("low", priority=4)),
        associations=(Association("lab"), Association("lab", "x", priority=3), Association("lab", "y", priority=4)),
    )
    table = jobs(
        (8, 0, 9), (2, 0, 9), (4, 0, 9), user=["x", "x", "y"],
        partition=np.array(["fast", "slow", "fast"]), qos=np.array(["high", "low", "other"]),
        nice=np.array([0, 5, -7]), account=np.array(["lab"] * 3),
    )  # fmt: skip
    ranking = at_once(table, settings)
    assert ranking.requests.fixed.tolist() == [
        1000 + 100 + 10 + 300 + 80,
        250 + 50 + 2 + 300 + 20 - 5,
        500 + 100 + 0 + 400 + 40 + 7,
    ]


@pytest.mark.parametrize(
    ("favor_small", "flags", "wanted"),
    [
        (False, (), [1000, 250]),
        (True, (), [0, 750]),
        (False, ("SMALL_RELATIVE_TO_TIME",), [100, 125]),
        (True, ("SMALL_RELATIVE_TO_TIME",), [900, 875]),
    ],
)
def test_the_size_counts_for_large_or_small_jobs(favor_small: bool, flags: tuple[str, ...], wanted: list[int]) -> None:
    """Limits are 10 and 2 minutes."""
    how = PrioritySettings(weights=PriorityWeights(job_size=1000), favor_small=favor_small, flags=frozenset(flags))
    table = jobs((8, 0, 9), (2, 0, 9), walltime_s=np.array([600.0, 120.0]))
    assert at_once(table, SchedulerSettings(priority=how)).requests.fixed.tolist() == wanted


def test_a_tier_goes_before_any_priority() -> None:
    partitions = Partition("low", priority_tier=1), Partition("high", priority_tier=2)
    table = jobs((8, 0, 10), (8, 1, 10), (8, 2, 10), partition=np.array(["low", "low", "high"]),
                 nice=np.array([0, -500, 0]))  # fmt: skip
    assert run(table, partitions=partitions).start_s.tolist() == [0, 20, 10]


# Passes


def test_one_that_does_not_fit_ends_the_main_pass() -> None:
    table = jobs((6, 0, 100), (8, 1, 10), (1, 2, 50))
    assert run(table, backfill=BUILTIN).start_s.tolist() == [0, 100, 110]


def test_backfill_starts_what_delays_no_reservation() -> None:
    """The second job is due at 100; one that ends by then passes it, one that ends later does not."""
    table = jobs((6, 0, 100), (8, 1, 10), (1, 2, 98), (1, 3, 98))
    assert run(table).start_s.tolist() == [0, 100, 2, 110]


def test_every_job_that_is_tested_has_a_reservation() -> None:
    """EASY would start the last job at once, and delay the third, which nothing but its reservation protects."""
    table = jobs((6, 0, 100), (8, 1, 10), (4, 2, 50), (4, 3, 50), (2, 4, 96), (2, 5, 160))
    one = replace(FINE, job_part_count_reserve=1)
    assert run(table).start_s[5] == 160
    assert run(table, backfill=one).start_s[5] == 160
    wide = jobs((6, 0, 100), (4, 1, 10), (7, 1, 50), (2, 2, 120))
    assert run(wide).start_s.tolist() == [0, 100, 110, 160]
    assert run(wide, backfill=one).start_s.tolist() == [0, 100, 122, 2]


def test_beyond_the_window_nothing_is_reserved_and_wide_jobs_starve() -> None:
    """The wide job is due at 100; narrow ones pass it for ever where the window is shorter than that."""
    narrow = [(1, float(10 * i), 90.0) for i in range(1, 40)]
    table = jobs((4, 0, 100), (8, 1, 10), *narrow)
    kept, starved = (run(table, backfill=replace(FINE, window_s=s)).start_s[1] for s in (200, 20))
    assert kept == 100
    assert starved > 400


def test_a_cycle_comes_an_interval_after_the_last_and_only_upon_a_change() -> None:
    table = jobs((6, 0, 200), (8, 1, 10), (1, 35, 50), (1, 40, 50), (1, 150, 20))
    found = run(table, backfill=BackfillSettings(interval_s=30, resolution_s=1))
    assert found.start_s.tolist() == [0, 200, 60, 60, 150]


def test_cycles_keep_to_their_interval_also_where_some_were_left_out() -> None:
    """The last one that something had changed for was at 30: what comes at 75 waits for that of 90."""
    table = jobs((6, 0, 200), (8, 1, 10), (1, 75, 20))
    assert run(table, backfill=BackfillSettings(resolution_s=1)).start_s.tolist() == [0, 200, 90]


def test_the_end_of_a_reservation_is_rounded_down_to_the_resolution() -> None:
    """The second job is due from 100 to 150; with a resolution of 60 s the third is planned for 120."""
    table = jobs((6, 0, 100), (8, 0, 50), (8, 0, 50))
    for resolution_s, planned in ((1, 150), (60, 120)):
        settings = SchedulerSettings(backfill=replace(FINE, resolution_s=resolution_s))
        hold = at_once(table, settings).hold(2)
        assert hold is not None
        assert hold.planned == planned


def test_at_most_so_many_jobs_are_tested() -> None:
    table = jobs((6, 0, 100), (8, 1, 10), (8, 2, 10), (1, 3, 50))
    assert run(table).start_s[3] == 3
    assert run(table, backfill=replace(FINE, max_job_test=2)).start_s[3] == 120


def test_at_most_so_many_jobs_of_a_user_are_tested() -> None:
    table = jobs((6, 0, 100), (8, 1, 10), (1, 3, 50), (1, 3, 50), user=["a", "b", "b", "c"])
    found = run(table, backfill=replace(FINE, max_job_user=1))
    assert found.start_s[2:].tolist() == [110, 3]


def test_the_bounds_on_a_users_jobs_and_on_a_partitions_count_apart() -> None:
    table = jobs((6, 0, 100), (8, 1, 10), (1, 3, 50), user=["a"] * 3)
    assert run(table, backfill=replace(FINE, max_job_user=2, max_job_part=2)).start_s[2] == 3
    assert run(table, backfill=replace(FINE, max_job_user=2, max_job_part=1)).start_s[2] == 110
    assert run(table, backfill=replace(FINE, max_job_user=1, max_job_part=2)).start_s[2] == 110


def test_a_cycle_starts_at_most_so_many_and_goes_on_in_the_next() -> None:
    table = jobs((6, 0, 100), (8, 1, 10), (1, 3, 50), (1, 3, 50))
    found = run(table, backfill=replace(FINE, max_job_start=1, interval_s=10))
    assert found.start_s.tolist() == [0, 100, 10, 20]


def test_the_quick_pass_ends_at_its_depth_and_the_whole_one_goes_on() -> None:
    limited = Qos("one", limits=RunningLimits(max_jobs_per_user=1))
    table = jobs((1, 0, 500), *[(2, 5, 100)] * 3)
    found = run(table, backfill=BUILTIN, main=MainSettings(default_queue_depth=2), qos=(limited,))
    assert found.start_s.tolist() == [0, 5, 5, 60]


# Limits, partitions, dependencies


def test_a_limit_holds_the_job_and_nobody_behind_it() -> None:
    qos = Qos("small", limits=RunningLimits(max_gpus_per_user=4))
    table = jobs((4, 0, 100), (2, 1, 10), (2, 2, 10), user=["a", "a", "b"], qos=np.array(["small"] * 3))
    assert run(table, qos=(qos,)).start_s.tolist() == [0, 100, 2]


def test_the_account_above_limits_all_its_users() -> None:
    tree = Association("lab", limits=RunningLimits(grp_jobs=1)), Association("lab", "a"), Association("lab", "b")
    table = jobs((1, 0, 100), (1, 1, 10), (1, 2, 10), user=["a", "b", "c"], account=np.array(["lab", "lab", ""]))
    assert run(table, associations=tree).start_s.tolist() == [0, 100, 2]


def test_a_limit_of_the_qos_takes_the_place_of_the_accounts_where_its_jobs_count_all_the_same() -> None:
    lab = Association("lab", limits=RunningLimits(grp_gpus=2))
    wide = Qos("wide", limits=RunningLimits(grp_gpus=4))
    accounts, qos = np.array(["lab", "lab", ""]), np.array(["wide", "", ""])
    table = jobs((4, 0, 100), (1, 1, 10), (1, 2, 10), user=["a", "a", "b"], account=accounts, qos=qos)
    assert run(table, associations=(lab,), qos=(wide,)).start_s.tolist() == [0, 100, 2]


@pytest.mark.parametrize(("over", "start_s"), [(False, 100), (True, 1)])
def test_the_qos_of_the_partition_goes_first_unless_the_jobs_own_may_go_over_it(over: bool, start_s: int) -> None:
    tight = Qos("tight", limits=RunningLimits(grp_jobs=1))
    own = Qos("own", limits=RunningLimits(grp_jobs=5), over_partition=over)
    table = jobs((1, 0, 100), (1, 1, 10), qos=np.array(["own"] * 2))
    found = run(table, partitions=(Partition("main", qos="tight"),), qos=(tight, own))
    assert found.start_s.tolist() == [0, start_s]


def test_a_job_counts_in_the_account_that_it_names_and_else_in_its_users_first() -> None:
    one = RunningLimits(grp_jobs=1)
    tree = Association("lab", limits=one), Association("hall"), Association("lab", "a"), Association("hall", "a")
    named = np.array(["lab", "lab", "hall", ""])
    table = jobs((1, 0, 100), (1, 1, 10), (1, 2, 10), (1, 3, 10), user=["a"] * 4, account=named)
    assert run(table, associations=tree).start_s.tolist() == [0, 100, 2, 110]


def test_a_job_above_its_partitions_limit_never_starts_and_is_named() -> None:
    table = jobs((1, 0, 10), (1, 1, 10), walltime_s=np.array([60.0, 7200.0]))
    with pytest.raises(PolicyError, match="never starts job j1, which waits for: PartitionTimeLimit"):
        run(table, partitions=(Partition("short", max_time_s=3600),))


def test_a_job_without_a_limit_has_that_of_its_partition() -> None:
    """An hour by default: it does not pass a job that is due in 100 s, though it would be gone by then."""
    table = jobs((6, 0, 100), (8, 1, 10), (1, 2, 10), walltime_s=np.array([100.0, 10.0, np.nan]))
    assert run(table).start_s[2] == 2
    assert run(table, partitions=(Partition("p", default_time_s=3600),)).start_s[2] == 110


def test_what_is_not_eligible_does_not_age() -> None:
    how = PrioritySettings(weights=PriorityWeights(age=10_000), max_age_s=1000, calc_period_s=1)
    table = jobs((8, 0, 100), (8, 1, 10), (8, 50, 10), eligible_s=np.array([np.nan, 90.0, np.nan]))
    assert run(table, priority=how, backfill=BUILTIN).start_s.tolist() == [0, 110, 100]
    always = replace(how, flags=frozenset({"ACCRUE_ALWAYS"}))
    assert run(table, priority=always, backfill=BUILTIN).start_s.tolist() == [0, 100, 110]


def test_a_dependant_becomes_eligible_and_ages_when_what_it_waits_for_is_over() -> None:
    how = PrioritySettings(weights=PriorityWeights(age=10_000), max_age_s=1000, calc_period_s=1)
    table = jobs((8, 0, 100), (8, 1, 10), (8, 50, 10), dependency=np.array(["", "afterany:j0", ""]))
    assert run(table, priority=how, backfill=BUILTIN).start_s.tolist() == [0, 110, 100]


def test_a_begin_time_that_was_over_before_a_dependency_was_met_makes_no_job_older() -> None:
    how = PrioritySettings(weights=PriorityWeights(age=10_000), max_age_s=1000, calc_period_s=1)
    begin, waits = np.array([np.nan, 2.0, np.nan]), np.array(["", "afterany:j0", ""])
    table = jobs((8, 0, 100), (8, 1, 10), (8, 50, 10), dependency=waits, eligible_s=begin)
    assert run(table, priority=how, backfill=BUILTIN).start_s.tolist() == [0, 110, 100]


def test_a_dependency_that_cannot_be_met_holds_for_ever() -> None:
    table = jobs((8, 0, 100), (8, 1, 10), dependency=np.array(["", "afternotok:j0"]))
    with pytest.raises(PolicyError, match="never starts job j1, which waits for: DependencyNeverSatisfied"):
        run(table)


def test_singletons_of_a_user_run_one_after_another() -> None:
    table = jobs((1, 0, 10), (1, 0, 10), (1, 0, 10), user=["a", "a", "b"], dependency=np.array(["singleton"] * 3))
    assert run(table).start_s.tolist() == [0, 10, 0]


def test_each_job_that_waits_knows_what_holds_it() -> None:
    settings = SchedulerSettings(
        backfill=FINE, partitions=(Partition("p", max_time_s=1000),),
        qos=(Qos("none", limits=RunningLimits(max_gpus_per_job=1)), Qos("one", limits=RunningLimits(grp_jobs=1))),
    )  # fmt: skip
    table = jobs(
        (6, 0, 100), (8, 0, 10), (2, 0, 200), (3, 0, 10), (1, 0, 9), (1, 0, 9), (2, 0, 9), (2, 0, 9), (1, 0, 9),
        walltime_s=np.array([100.0, 10, 200, 10, 5000, 9, 9, 9, 9]), qos=np.array([*"abcde", "f", "none", "one", "f"]),
        eligible_s=np.array([np.nan] * 8 + [50.0]), dependency=np.array(["", "", "", "", "", "afterok:j0", "", "", ""]),
    )  # fmt: skip
    ranking = at_once(table, settings)
    holds = [ranking.hold(row) for row in range(9)]
    assert [hold and hold.reason for hold in holds] == [
        None, "Resources", "Reservation", "Priority", "PartitionTimeLimit", "Dependency", "QOSMaxGRESPerJob", None,
        "BeginTime",
    ]  # fmt: skip
    assert [hold and hold.planned for hold in holds[1:4]] == [100, 110, 110]
    assert [hold and hold.ahead for hold in holds[1:4]] == [0, 1, 2]


# Nodes


def on_nodes(table: JobTable, spec: str, *partitions: Partition, placement: str = "first-fit") -> Result:
    how = SchedulerSettings(backfill=FINE, partitions=partitions)
    return simulate(table, Cluster.parse(spec), Slurm(how), placement, spans=True)


def given(found: Result) -> list[list[int]]:
    """The nodes of each job."""
    assert found.spans is not None
    by_job = dict(zip(found.spans.job.tolist(), found.spans.shares, strict=True))
    return [[node for node, _ in by_job[row]] for row in sorted(by_job)]


A, B = Partition("a", nodes=(0, 1)), Partition("b", nodes=(1, 2))


def test_jobs_run_on_the_nodes_of_their_partition() -> None:
    table = jobs((4, 0, 10), (4, 0, 10), (2, 0, 10), partition=np.array(["b", "a", "b"]))
    found = on_nodes(table, "3x2", A, B)
    assert given(found) == [[1, 2], [0, 1], [2]]
    assert found.start_s.tolist() == [0, 10, 10]


def test_a_job_that_finds_no_room_closes_the_nodes_of_its_partition_for_the_pass() -> None:
    """To others too: the last job waits, though node 1 is idle, unless it may have node 2."""
    table = jobs((2, 0, 99), (4, 0, 10), (2, 0, 10), partition=np.array(["a", "a", "b"]))
    for nodes, start_s in (((1,), 109), ((2,), 0), ((1, 2), 0)):
        how = SchedulerSettings(backfill=BUILTIN, partitions=(A, Partition("b", nodes=nodes)))
        assert simulate(table, Cluster.parse("3x2"), Slurm(how), "first-fit").start_s.tolist() == [0, 99, start_s]


def test_backfill_on_nodes_delays_no_reservation() -> None:
    """The node is reserved from 50 on: a job that would last longer waits, one that would not starts."""
    table = jobs((1, 0, 50), (2, 0, 10), (1, 1, 60), (1, 2, 40), partition=np.array(["a"] * 4))
    plan = on_nodes(table, "1x2", Partition("a", nodes=(0,)))
    assert plan.start_s.tolist() == [0, 50, 60, 2]


def test_what_waits_for_nodes_of_its_own_leaves_the_others_to_backfill() -> None:
    table = jobs((2, 0, 99), (4, 0, 10), (2, 0, 500), (2, 0, 500), partition=np.array(["a", "a", "b", "b"]))
    found = on_nodes(table, "3x2", A, B)
    assert found.start_s.tolist() == [0, 99, 0, 109]
    assert given(found) == [[0], [0, 1], [2], [1]]


def test_an_exclusive_job_has_its_node_for_itself() -> None:
    whole = Partition("w", whole_nodes=True), Partition("s")
    table = jobs((1, 0, 50), (1, 1, 50), (1, 2, 50), (1, 3, 9), partition=np.array(["w", "s", "w", "s"]))
    found = on_nodes(table, "2x2", *whole)
    assert found.start_s.tolist() == [0, 1, 50, 3]
    assert given(found) == [[0], [1], [0], [1]]


def test_what_waits_for_the_whole_of_a_node_that_one_job_has_for_itself_is_not_delayed() -> None:
    """Both nodes are reserved from 100 on, when all that runs is over: what would last longer waits."""
    whole = Partition("w", whole_nodes=True), Partition("s")
    table = jobs((1, 0, 50), (1, 1, 99), (4, 2, 10), (1, 3, 200), partition=np.array(["w", "s", "s", "s"]))
    assert on_nodes(table, "2x2", *whole).start_s.tolist() == [0, 1, 100, 110]


def test_partitions_of_nodes_need_a_placement() -> None:
    with pytest.raises(ConfigError, match="partition a has nodes of its own, and GPUs are only counted"):
        run(jobs((1, 0, 1)), partitions=(A,))


def test_backfill_on_nodes_reserves_from_the_last_end_of_a_window_on() -> None:
    """Ends are expected at 50 and 58, which are of one window: the wide job is planned for 58, and one that ends by
    then passes it. End by end it is planned for 50, on nodes 0 and 2.
    """
    site = Partition("a", nodes=(0, 1, 2))
    table = jobs((2, 0, 50), (2, 0, 58), (4, 1, 10), (2, 2, 55), partition=np.array(["a"] * 4))
    starts = {}
    for window_s in (0.0, 30.0):
        how = SchedulerSettings(backfill=replace(FINE, end_window_s=window_s), partitions=(site,))
        starts[window_s] = simulate(table, Cluster.parse("3x2"), Slurm(how), "first-fit").start_s.tolist()
    assert starts == {0.0: [0, 0, 50, 58], 30.0: [0, 0, 57, 2]}


def test_of_a_partition_no_more_jobs_are_attempted_than_its_depth() -> None:
    attempted: list[int] = []
    state = SimpleNamespace(
        requests=SimpleNamespace(partition=[0, 0, 0, 1]), limited=lambda _: None, wait=lambda *_: None,
        take_note=lambda _: True,
    )  # fmt: skip
    space = SimpleNamespace(offer=lambda row, *_: attempted.append(row), settle=lambda _: None)
    list(main_pass(range(4), state, space, 0, 2))  # type: ignore[arg-type]
    assert attempted == [0, 1, 3]
