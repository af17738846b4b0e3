"""A simulated queue that is stopped, forked, given one more job, or begun with a picture."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import (
    BackfillSettings,
    MainSettings,
    Partition,
    PrioritySettings,
    PriorityWeights,
    Qos,
    RunningLimits,
    SchedulerSettings,
)
from perdure.simulation.live import LiveQueue, PlainLive
from perdure.simulation.simulate import Engine, simulate
from tests.simulation.tables import jobs

EIGHT = Cluster.parse("1x8")
POLICY = Slurm(
    SchedulerSettings(
        priority=PrioritySettings(weights=PriorityWeights(age=500, job_size=300), max_age_s=600, calc_period_s=20),
        backfill=BackfillSettings(interval_s=10, resolution_s=20),
    )
)
PROBES = jobs((1, 0, 50), (8, 0, 50))
ENGINES: list[Engine] = ["plain", "compiled"]


def crowd(seed: int, n: int = 80) -> JobTable:
    rng = np.random.default_rng(seed)
    duration = rng.integers(1, 120, n)
    rows = zip(rng.choice([1, 2, 4, 8], n), np.sort(rng.integers(0, 1500, n)), duration, strict=True)
    return jobs(*rows, walltime_s=duration + rng.integers(0, 90, n).astype(float))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "compiled":
        pytest.importorskip("numba")
    found: Engine = request.param
    return found


def ends_like_a_replay(queue: LiveQueue, table: JobTable) -> bool:
    wanted = simulate(table, EIGHT, POLICY, engine="plain").start_s
    return [queue.start_of(row) for row in range(len(table))] == wanted.tolist()


def test_stopping_changes_nothing(engine: Engine) -> None:
    table = crowd(1)
    queue = LiveQueue.replaying(table, EIGHT, POLICY, engine=engine)
    for until_s in (3.0, 200.0, 200.0, 201.0, 900.0):
        queue.advance(until_s)
    assert ends_like_a_replay(queue, table)


def test_a_fork_changes_nothing_in_its_parent(engine: Engine) -> None:
    table = crowd(2)
    queue = LiveQueue.replaying(table, EIGHT, POLICY, PROBES, engine)
    for until_s in range(100, 1500, 100):
        queue.advance(until_s)
        once = [queue.start_if_submitted(probe, until_s) for probe in (0, 1)]
        assert [queue.start_if_submitted(probe, until_s) for probe in (0, 1)] == once
        assert min(once) >= until_s
    assert ends_like_a_replay(queue, table)


def test_a_probe_starts_when_it_would_as_a_job_of_the_trace(engine: Engine) -> None:
    table = crowd(3)
    for at_s in (50.0, 333.0, 801.0):
        queue = LiveQueue.replaying(table, EIGHT, POLICY, PROBES, engine)
        queue.advance(at_s)
        for probe in (0, 1):
            one = replace(PROBES.take(np.array([probe])), submit_s=np.array([at_s]))
            whole = table.followed_by(one).by_submit()
            row = int(np.flatnonzero(whole.submit_s == at_s)[-1])
            wanted = simulate(whole, EIGHT, POLICY, engine="plain").start_s[row]
            assert queue.start_if_submitted(probe, at_s) == wanted


def test_both_engines_agree_on_pictures() -> None:
    pytest.importorskip("numba")
    for seed in range(60):
        picture = _picture(seed)
        found = []
        for engine in ENGINES:
            queue = LiveQueue.at(picture, 1000.0, EIGHT, POLICY, PROBES, engine)
            starts = [queue.start_if_submitted(probe, 1000.0) for probe in (0, 1)]
            found.append(starts + [queue.start_of(row) for row in range(len(picture))])
        assert found[0] == found[1]
        assert not any(map(isnan, found[0]))


def _picture(seed: int) -> JobTable:
    """Two jobs that run at 1000 s, one of which should be over; some that wait, and some to come."""
    rng = np.random.default_rng(seed)
    n = 20
    submit = np.concatenate([[0.0, 100.0], np.sort(rng.integers(200, 1400, n))])
    start = np.concatenate([[500.0, 400.0], np.full(n, np.nan)])
    gpus, duration = (
        np.concatenate([[4, 3], rng.integers(1, 9, n)]),
        np.concatenate([[700, 30], rng.integers(1, 90, n)]),
    )
    eligible = np.where(rng.random(n + 2) < 0.3, submit + 300, np.nan)
    eligible[:2] = np.nan
    kinds = rng.choice(["", "", "afterany", "afterok", "after", "singleton"], n + 2)
    kinds[:2] = ""
    others = [f":j{rng.integers(0, max(1, i))}" if kind.startswith("after") else "" for i, kind in enumerate(kinds)]
    needs = np.array([kind + other for kind, other in zip(kinds, others, strict=True)])
    user = rng.choice(list("ab"), n + 2).tolist()
    table = jobs(
        *zip(gpus, submit, duration, strict=True), start_s=start, eligible_s=eligible, dependency=needs, user=user
    )
    return replace(table, walltime_s=duration + 20.0)


def test_a_picture_goes_on_as_the_replay_that_it_was_taken_of(engine: Engine) -> None:
    """Taken while all is still: one job runs, and what waits has been seen by a cycle."""
    table = jobs((6, 0, 500), (8, 10, 50), (2, 20, 600), (2, 30, 700), walltime_s=np.array([500.0, 50, 600, 700]))
    wanted = simulate(table, EIGHT, POLICY, engine="plain").start_s
    picture = replace(table, start_s=np.where(wanted <= 300, wanted, np.nan))
    queue = LiveQueue.at(picture, 300.0, EIGHT, POLICY, engine=engine)
    assert [queue.start_of(row) for row in range(4)] == wanted.tolist()


def test_a_job_that_runs_before_its_begin_time_runs_on(engine: Engine) -> None:
    """As after a change of its begin time: when that comes, nothing waits for it."""
    table = jobs((6, 0, 500), (8, 10, 50), start_s=np.array([100.0, np.nan]), eligible_s=np.array([400.0, np.nan]))
    queue = LiveQueue.at(table, 300.0, EIGHT, POLICY, engine=engine)
    assert queue.start_of(1) == 600.0


def test_what_holds_a_job_of_a_picture_is_told() -> None:
    table = jobs((6, 0, 500), (8, 10, 50), (2, 20, 900), start_s=np.array([0.0, np.nan, np.nan]))
    queue = LiveQueue.at(table, 300.0, EIGHT, POLICY, engine="plain")
    queue.advance(301.0)
    holds = [queue.hold(row) for row in range(3)]
    assert [hold and hold.reason for hold in holds] == [None, "Resources", "Reservation"]
    assert [hold and hold.planned for hold in holds[1:]] == [500, 540]  # the end at 550, rounded down


def test_a_job_that_has_not_started_by_then_is_nan(engine: Engine) -> None:
    queue = LiveQueue.replaying(jobs((8, 0, 100)), EIGHT, POLICY, PROBES, engine)
    queue.advance(10.0)
    assert isnan(queue.start_if_submitted(1, 10.0, until_s=100.0))
    assert queue.start_if_submitted(1, 10.0, until_s=101.0) == 100.0


def test_a_picture_that_cannot_be_is_refused() -> None:
    late = jobs((1, 0, 10), start_s=np.array([50.0]))
    with pytest.raises(InputError, match="job j0: it started before it came, or after now"):
        LiveQueue.at(late, 40.0, EIGHT, POLICY)
    wide = jobs((6, 0, 10), (6, 0, 10), start_s=np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="running jobs hold 12 GPUs, and the cluster has 8"):
        LiveQueue.at(wide, 40.0, EIGHT, POLICY)


def test_the_begin_time_of_a_probe_counts_though_later_jobs_are_to_come(engine: Engine) -> None:
    """One of before it comes is over by then."""
    table, probes = jobs((1, 0, 10), (1, 5000, 10)), replace(PROBES, eligible_s=np.array([50.0, 400.0]))
    queue = LiveQueue.at(table, 100.0, EIGHT, POLICY, probes, engine)
    assert [queue.start_if_submitted(probe, 100.0) for probe in (0, 1)] == [100.0, 400.0]


def test_a_refused_probe_never_starts_and_limits_hold_in_both_engines() -> None:
    pytest.importorskip("numba")
    site = SchedulerSettings(
        partitions=(Partition("p", max_time_s=1000),),
        qos=(Qos("normal", limits=RunningLimits(max_jobs_per_user=2)),),
        backfill=BackfillSettings(interval_s=10, resolution_s=20),
    )
    probes = replace(PROBES, walltime_s=np.array([60.0, 2000.0]))
    found = []
    for engine in ENGINES:
        queue = LiveQueue.replaying(crowd(4, 60), EIGHT, Slurm(site), probes, engine)
        queue.advance(700.0)
        starts = [queue.start_if_submitted(probe, 700.0, 50_000.0) for probe in (0, 1)]
        assert isnan(starts[1])
        found.append([starts[0], *(queue.start_of(row) for row in range(60))])
    assert found[0] == found[1]
    assert found[0][0] > 700


def test_a_queue_on_nodes_knows_the_nodes_of_its_partitions() -> None:
    """The probe needs two GPUs of node 0, which are free at 90."""
    site = SchedulerSettings(partitions=(Partition("a", nodes=(0,)), Partition("b", nodes=(1,))))
    table = jobs((2, 0, 90), (1, 0, 20), partition=np.array(["a", "b"]), start_s=np.array([0.0, 10.0]))
    probe = jobs((2, 0, 50), partition=np.array(["a"]))
    queue = LiveQueue.at(table, 15.0, Cluster.parse("2x2"), Slurm(site), probe, placement=placement_named("first-fit"))
    assert queue.start_if_submitted(0, 15.0) == 90
    assert queue.start_if_submitted(0, 15.0) == 90


def test_a_probe_may_come_before_all_that_is_to_come_but_not_before_a_trace(engine: Engine) -> None:
    later = jobs((8, 2000, 50))
    queue = LiveQueue.at(later, 1000.0, EIGHT, POLICY, PROBES, engine)
    assert queue.start_if_submitted(1, 1000.0) == 1000
    queue.advance(2001.0)
    assert queue.start_if_submitted(1, 2001.0) == 2050
    alone = LiveQueue.at(jobs(), 1000.0, EIGHT, POLICY, PROBES, engine)
    assert alone.start_if_submitted(1, 1000.0) == 1000
    with pytest.raises(InputError, match="it comes before the queue begins"):
        LiveQueue.replaying(later, EIGHT, POLICY, PROBES, engine).submit(0, 1999.0)


def test_a_picture_may_tell_which_nodes_running_jobs_have() -> None:
    """First fit would have put the running job on node 0, and the next one beside it."""
    site = SchedulerSettings(partitions=(Partition("a", nodes=(0, 1)),))
    table = jobs((2, 0, 90), (4, 10, 20), (4, 11, 20), start_s=np.array([0.0, np.nan, np.nan]))
    first_fit, held = placement_named("first-fit"), {0: ((1, 2),)}
    queue = LiveQueue.at(table, 15.0, Cluster.parse("2x4"), Slurm(site), engine="plain", placement=first_fit, held=held)
    queue.advance(16.0)
    assert [queue.nodes_of(row) for row in range(3)] == [{1}, {0}, set()]
    assert [queue.start_of(row) for row in (1, 2)] == [15, 35]
    assert queue.nodes_of(2) == {0}


def test_priorities_are_calculated_from_the_instant_that_is_told(engine: Engine) -> None:
    """Each 20 s. At 25 s the second job is as old as it was at 20 s and goes first, or as at 10 s and does not."""
    table = jobs((8, 0, 25), (8, 1, 50), (7, 24, 50), nice=np.array([0, 50, 0]))
    starts = {}
    for began_s in (0.0, -10.0):
        queue = LiveQueue.replaying(table, EIGHT, POLICY, engine=engine, began_s=began_s)
        starts[began_s] = [queue.start_of(row) for row in range(3)]
    assert starts == {0.0: [0, 25, 75], -10.0: [0, 75, 25]}


def _site_on_nodes(seed: int) -> tuple[JobTable, Cluster, Slurm, AsAsked, dict[int, Shares]]:
    """Partitions that share nodes, jobs that run on some of them at 1000 s, others that wait, and some to come."""
    rng = np.random.default_rng(seed)
    n_nodes, n, size = int(rng.integers(2, 7)), 40, 4
    names = np.array(list("abc"))
    partitions = tuple(
        Partition(
            name,
            nodes=tuple(sorted(rng.choice(n_nodes, int(rng.integers(1, n_nodes + 1)), replace=False).tolist())),
            priority_tier=int(rng.choice([1, 1, 2])),
        )
        for name in names
    )
    submit = np.sort(rng.integers(0, 1600, n)).astype(float)
    gpus, nodes, partition = rng.integers(1, 9, n), rng.integers(1, 4, n), rng.choice(3, n)
    duration = rng.integers(1, 200, n).astype(float)
    free = np.full(n_nodes, size)
    start, held = np.full(n, np.nan), {}
    for row in range(int((submit < 900).sum())):
        shares = []
        for node in partitions[partition[row]].nodes or ():
            if free[node] and len(shares) < nodes[row] and rng.random() < 0.7:
                shares.append((node, int(rng.integers(1, free[node] + 1))))
        if shares and rng.random() < 0.4:
            for node, taken in shares:
                free[node] -= taken
            held[row], start[row] = tuple(shares), float(rng.integers(submit[row], 1000))
            gpus[row] = sum(taken for _, taken in shares)
    table = replace(
        jobs(*zip(gpus, submit, duration, strict=True), partition=names[partition], start_s=start),
        walltime_s=duration + rng.integers(0, 150, n),
        nodes=nodes,
    )
    site = replace(
        POLICY.settings,
        partitions=partitions,
        backfill=BackfillSettings(
            interval_s=10,
            resolution_s=float(rng.choice([1, 20])),
            end_window_s=float(rng.choice([0, 30])),
            window_s=float(rng.choice([100, 86_400])),
            max_job_test=int(rng.choice([3, 500])),
            max_job_part=int(rng.choice([0, 0, 2])),
            max_job_start=int(rng.choice([0, 0, 1])),
        ),
        main=MainSettings(int(rng.choice([2, 100])), 60.0, int(rng.choice([0, 0, 1]))),
    )
    placement = AsAsked((*nodes.tolist(), *PROBES.nodes.tolist()))
    return table, Cluster(np.full(n_nodes, size)), Slurm(site), placement, held


def test_both_engines_agree_on_partitions_that_share_nodes() -> None:
    pytest.importorskip("numba")
    started = 0
    for seed in range(120):
        table, cluster, policy, placement, held = _site_on_nodes(seed)
        found = []
        for engine in ENGINES:
            queue = LiveQueue.at(table, 1000.0, cluster, policy, PROBES, engine, placement, held)
            assert isinstance(queue.simulation, PlainLive) == (engine == "plain")
            fork = queue.start_if_submitted(0, 1000.0, 9000.0)
            found.append([fork, *(queue.start_of(row, 9000.0) for row in range(len(table)))])
        assert found[0] == pytest.approx(found[1], nan_ok=True), seed
        started += int(np.isfinite(found[0]).sum())
    assert started > 1500
