"""Jobs that have work in place of a running time: the loop, Sia as a policy, and its published workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, EpochProfile, RateProfile, StepProfile
from perdure.scheduling.elastic import ElasticPolicy, ElasticView, GpuType, Plan, Share, is_placed
from perdure.scheduling.elastic_policies import ELASTIC
from perdure.scheduling.sia_policy import Sia
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_job import JobOracle
from perdure.simulation.elastic_metrics import ElasticMetrics, rho
from perdure.simulation.elastic_plan import ElasticError
from perdure.simulation.retry_hook import Again, FailedRun
from perdure.throughput.application import applications, rated_applications
from perdure.throughput.traits import PUBLISHED, Traits
from perdure.traces.profiles import read_adaptive, read_profiles
from tests.conftest import require

CLUSTER = Cluster.parse("2x4:slow + 1x4:fast")
ONE_TYPE = ("tiresias", "optimus", "pollux", "themis")
LAYOUTS = [(gpus,) for gpus in range(1, 5)] + [(few, many) for many in range(1, 5) for few in range(1, many + 1)]
TRAITS = {"net": Traits(restart_s=30, expected_restart_s=30)}


def steps() -> StepProfile:
    """Ideal scaling: a step takes .01 s an example on "slow", half of it on "fast", and nothing to synchronise."""
    rows = [
        (kind, layout, batch, batch * each_s + 0.001)
        for kind, each_s in (("slow", 0.01), ("fast", 0.005))
        for layout in LAYOUTS
        for batch in (1, 8, 16, 32)
    ]
    kind, layout, batch, step_s = (list(column) for column in zip(*rows, strict=True))
    return StepProfile(
        np.full(len(rows), "net"),
        np.array(kind),
        np.array([",".join(map(str, each)) for each in layout]),
        np.array([len(each) for each in layout]),
        np.array([sum(each) for each in layout]),
        np.array(batch, float),
        np.array(step_s),
        np.full(len(rows), 1e-4),
    )


def epochs() -> EpochProfile:
    """Ten epochs of 1,000 steps of 16 examples; in a noise so large that any batch is worth its size."""
    batch = np.repeat([16, 64], 10)
    progress = np.tile(np.arange(1, 11) * 1000.0, 2)
    return EpochProfile(np.full(20, "net"), batch, progress, np.full(20, 1e-6), np.ones(20), progress * 16 / batch)


def jobs(submit_s: tuple[float, ...] = (0.0,), gpus: int = 1, batch: int = 64) -> AdaptiveJobs:
    n = len(submit_s)
    names = np.array([f"net-{row}" for row in range(n)])
    return AdaptiveJobs(names, np.array(submit_s, float), np.full(n, "net"), np.full(n, gpus), np.full(n, batch))


def replayed(
    policy: Fixed | ElasticPolicy, given: AdaptiveJobs | None = None, cluster: Cluster = CLUSTER, **changes: Any
) -> ElasticResult:
    known = applications(steps(), epochs(), ["net"])
    return replay_elastic(given or jobs(), cluster, policy, known, TRAITS, **changes)


@dataclass(frozen=True)
class Fixed:
    """Gives the same share to all, or one share after the other."""

    shares: tuple[Share | None, ...]
    name: str = "fixed"
    round_s: float = 60.0
    adaptive: bool = True

    def plan(self, view: ElasticView) -> dict[Any, Any]:
        share = self.shares[min(round(view.now_s / self.round_s), len(self.shares)) - 1]
        return {} if share is None else dict.fromkeys(view.jobs, share)


def test_a_job_works_at_the_measured_speed_after_its_restart() -> None:
    found = replayed(Fixed((Share(0, 1, 1),)))
    # A first step of 16 examples shows the gradients; from the next epoch on the batch is chosen, which is as fast.
    assert found.start_s.tolist() == [60.0]
    assert found.end_s[0] == pytest.approx(60 + 30 + 10_000 * (16 * 0.01 + 0.001), rel=0.01)
    assert found.restarts.tolist() == [0]
    assert found.gpu_s[0] == pytest.approx(found.end_s[0] - 60)
    assert found.restart_gpu_s.tolist() == [30.0]


def test_a_policy_sees_the_restart_that_is_expected_and_the_job_takes_its_own() -> None:
    seen = set[float]()

    @dataclass(frozen=True)
    class Looks(Fixed):
        def plan(self, view: ElasticView) -> dict[Any, Any]:
            seen.update(job.restart_s for job in view.jobs.values())
            return super().plan(view)

    known = applications(steps(), epochs(), ["net"])
    found = replay_elastic(jobs(), CLUSTER, Looks((Share(0, 1, 1),)), known, {"net": Traits(50.0, 20.0)})
    assert (seen, found.restart_gpu_s.tolist()) == ({20.0}, [50.0])


def test_passes_that_are_only_added_up_do_not_synchronise() -> None:
    told = replace(steps(), sync_s=steps().step_s / 2)
    still = replace(Fixed((Share(0, 1, 1),)), adaptive=False)
    found = replay_elastic(jobs(batch=64), CLUSTER, still, applications(told, epochs(), ["net"]), TRAITS)
    # Two passes of 32 examples, .321 s each, of which only the second waits for the gradients of others.
    assert found.end_s[0] - found.start_s[0] == pytest.approx(30 + 2500 * (0.321 + 0.1605), rel=1e-4)


def test_no_step_has_more_examples_than_were_measured_together() -> None:
    found = replayed(replace(Fixed((Share(0, 1, 3),)), adaptive=False), jobs(gpus=3, batch=64))
    # 64 on three GPUs are 21 on each, and not 22.
    assert found.end_s[0] - found.start_s[0] == pytest.approx(30 + 160_000 / 63 * 0.211, abs=0.05)


def test_a_batch_chosen_where_more_fits_into_memory_is_not_taken_over() -> None:
    @dataclass(frozen=True)
    class Apart(Fixed):
        def plan(self, view: ElasticView) -> dict[Any, Any]:
            return {row: self.shares[row - len(self.shares)] for row in view.jobs}

    wide = Share(0, 2, 4, ((0, 2), (1, 2)))
    uneven = Share(0, 2, 4, ((2, 1), (3, 3)))
    told = steps()
    small = (told.placement != "1,3") | (told.local_batch <= 8)
    told = StepProfile(*(getattr(told, each.name)[small] for each in fields(told)))
    known, cluster = applications(told, epochs(), ["net"]), Cluster.parse("4x4:slow + 1x4:fast")
    beside = replay_elastic(jobs((0.0, 0.0)), cluster, Apart((wide, uneven)), known, TRAITS)
    alone = replay_elastic(jobs(), cluster, Apart((uneven,)), known, TRAITS)
    assert beside.end_s[1] == alone.end_s[0] != beside.end_s[0]


def test_work_is_kept_over_a_change_that_costs_a_restart() -> None:
    still = replayed(Fixed((Share(1, 1, 1),)))
    moved = replayed(Fixed((Share(1, 1, 1),) * 3 + (None,) + (Share(1, 1, 1),)))
    assert moved.restarts.tolist() == [1]
    assert moved.end_s[0] - still.end_s[0] == pytest.approx(60 + 30, abs=1.0)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_faster_type_is_faster(kind: int) -> None:
    found = replayed(Fixed((Share(kind, 1, 4),)))
    alone = replayed(Fixed((Share(0, 1, 1),)))
    assert (found.end_s - 90)[0] < (alone.end_s - 90)[0] / (3, 6)[kind]


def test_sia_takes_what_is_fast_and_grows() -> None:
    found = replayed(Sia())
    still = replayed(Fixed((Share(0, 1, 1),)))
    assert found.end_s[0] < 0.4 * still.end_s[0]
    assert found.restarts[0] >= 1


def test_sia_asked_twice_gives_the_same() -> None:
    given = jobs((0.0, 30.0, 100.0, 500.0))
    first, second = replayed(Sia(), given), replayed(Sia(), given)
    assert first.end_s.tolist() == second.end_s.tolist()
    assert np.isfinite(first.end_s).all()


def test_more_jobs_than_gpus_all_end() -> None:
    found = replayed(Sia(), jobs(tuple(range(20))))
    assert np.isfinite(found.end_s).all()
    figures = ElasticMetrics.of(found)
    assert 0 < figures.utilisation <= 1
    assert 0 < figures.jain <= 1
    assert figures.max_rho == pytest.approx(np.nanmax(rho(found)))


def test_rounds_without_jobs_are_passed_over() -> None:
    near, far = replayed(Sia(), jobs((5.0,))), replayed(Sia(), jobs((5.0 + 6e6,)))
    assert far.rounds == near.rounds
    assert far.jct_s[0] == pytest.approx(near.jct_s[0], rel=1e-6)
    assert ElasticMetrics.of(far).makespan_s == pytest.approx(far.jct_s[0])


@pytest.mark.parametrize("shares", [(Share(1, 2, 8),), (Share(0, 1, 3), Share(0, 1, 3), Share(0, 1, 3))])
def test_a_plan_that_finds_no_place_is_refused(shares: tuple[Share, ...]) -> None:
    class Wide(Fixed):
        def plan(self, view: ElasticView) -> dict[Any, Any]:
            return dict(enumerate(shares))

    with pytest.raises(ElasticError, match="find no place"):
        replayed(Wide((None,)), jobs((0.0,) * len(shares)))


def test_a_plan_for_a_job_that_is_not_there_is_refused() -> None:
    class Strange(Fixed):
        def plan(self, view: ElasticView) -> dict[Any, Any]:
            return {7: Share(0, 1, 1)}

    with pytest.raises(ElasticError, match="names 7"):
        replayed(Strange((None,)))


def test_powers_of_two_always_find_a_place() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        kind, shares, left = GpuType("x", 4, 8), [], 32
        while left and (size := int(rng.choice([1, 2, 4, 8, 16]))) <= left:
            shares.append(size)
            left -= size
        assert is_placed(sorted(shares, reverse=True), kind)


def test_what_the_profiles_lack_is_named() -> None:
    with pytest.raises(InputError, match=r"'tpu'.*were measured, only on fast, slow"):
        replay_elastic(jobs(), Cluster.parse("1x4:tpu"), Sia(), applications(steps(), epochs(), ["net"]), TRAITS)
    with pytest.raises(InputError, match="'gpt'"):
        applications(steps(), epochs(), ["gpt"])
    broken = replace(steps(), step_s=np.full(len(steps().step_s), np.nan))
    with pytest.raises(InputError, match="has no time"):
        applications(broken, epochs(), ["net"])


def failing(*shares: float, retry: Callable[[Any], Again | None] | None = None) -> ElasticResult:
    given = replace(jobs(), fails=(shares,))
    return replayed(Fixed((Share(1, 1, 1),)), given, retry=retry)


def test_a_failed_attempt_is_lost_from_its_last_epoch_on_and_comes_back() -> None:
    still, found = replayed(Fixed((Share(1, 1, 1),))), failing(0.595)
    epoch_s = (still.end_s[0] - 90) / 10
    assert (found.attempts.tolist(), found.passed.tolist()) == ([2], [True])
    # Nearly an epoch, longer than a round, is done twice; then it waits for a round, and restarts.
    assert 0 <= found.end_s[0] - still.end_s[0] - 0.95 * epoch_s - 30 <= 60.5
    worked_s = [float((each.gpu_s - each.restart_gpu_s)[0]) for each in (still, found)]
    assert worked_s[1] - worked_s[0] == pytest.approx(0.95 * epoch_s, rel=0.02)


def test_each_attempt_fails_after_its_part_of_what_is_left() -> None:
    asked = list[FailedRun]()

    def told(failed: FailedRun) -> Again:
        asked.append(failed)
        return Again()

    still, found = replayed(Fixed((Share(1, 1, 1),))), failing(0.5, 0.5, 0.05, retry=told)
    worked_s = [float((each.gpu_s - each.restart_gpu_s)[0]) for each in (still, found)]
    # The first has done 5 epochs of 10; the second 2.5 more, of which 2 are kept; the third .15 of the 3 that are left.
    assert (worked_s[1] - worked_s[0]) * 10 / worked_s[0] == pytest.approx(0.5 + 0.15, abs=0.03)
    ran = [each.ran_s - 30 for each in asked]
    assert [each * 10 / worked_s[0] for each in ran] == pytest.approx([5.0, 2.5, 0.15], abs=0.1)


def test_who_fails_right_at_a_checkpoint_loses_nothing() -> None:
    rates = RateProfile(np.array(["net"]), np.array(["slow"]), np.array([1]), np.ones(1, bool), np.ones(1))
    given = AdaptiveJobs(
        np.array(["a"]), np.zeros(1), np.array(["net"]), np.ones(1, np.int64), np.ones(1, np.int64), ((0.5,),),
        steps=np.array([600.0]),
    )  # fmt: skip
    once = replace(Fixed((Share(0, 1, 1),)), adaptive=False)
    found = replay_elastic(given, Cluster.parse("1x1:slow"), once, rated_applications(rates, ["net"]), TRAITS)
    assert (found.attempts.tolist(), found.gpu_s.tolist()) == ([2], [600.0 + 2 * 30])


def test_a_retry_policy_is_asked() -> None:
    asked = []

    def once(failed: FailedRun) -> Again | None:
        asked.append(failed.number)
        return Again(delay_s=600.0) if failed.number <= 1 else None

    found, at_once = failing(0.1, 0.5, retry=once), failing(0.1, 0.5)
    assert asked == [1, 2]
    assert (found.attempts.tolist(), found.passed.tolist()) == ([2], [False])
    assert (at_once.attempts.tolist(), at_once.passed.tolist()) == ([3], [True])
    assert ElasticMetrics.of(found).success_rate == 0.0
    assert failing(0.1, retry=lambda failed: None).attempts.tolist() == [1]
    late = failing(0.1, retry=lambda failed: Again(delay_s=600.0))
    assert late.end_s[0] - failing(0.1).end_s[0] == pytest.approx(600, abs=1)


@pytest.mark.parametrize("name", ELASTIC)
def test_each_policy_ends_all_jobs(name: str) -> None:
    cluster = Cluster.parse("2x4:slow") if name in ONE_TYPE else CLUSTER
    found = replayed(ELASTIC[name](), jobs((0.0, 10.0, 700.0)), cluster)
    assert np.isfinite(found.end_s).all()
    assert (found.start_s >= found.submit_s).all()


@dataclass
class Noted:
    """A policy, and the GPUs that each job ever had."""

    policy: ElasticPolicy
    sizes: dict[int, set[int]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def plan(self, view: ElasticView) -> Plan:
        plan = self.policy.plan(view)
        for row, share in plan.items():
            self.sizes.setdefault(row, set()).add(share.gpus)
        return plan


@pytest.mark.parametrize(
    ("name", "count", "asks"), [("sia", 5, 4), ("pollux", 5, 4), ("optimus", 5, 4), ("gandiva", 3, 2)]
)
def test_a_job_that_may_be_resized_is_and_rigid_ones_beside_it_never(name: str, count: int, asks: int) -> None:
    third = np.arange(count) == 2
    given = replace(jobs(tuple(range(count))), rigid=~third, gpus=np.where(third, asks, 2))
    policy = Noted(ELASTIC[name]())
    found = replayed(policy, given, Cluster.parse("2x4:slow"))
    assert np.isfinite(found.end_s).all()
    assert policy.sizes.pop(2) != {asks}
    assert set(map(frozenset, policy.sizes.values())) == {frozenset({2})}


@pytest.mark.parametrize("name", ["sia", "pollux"])
def test_a_job_that_scales_strongly_has_more_gpus_and_its_own_batch(name: str) -> None:
    batches = set[tuple[int, int]]()

    class Watched(Noted):
        """Sees what each job trains with, too."""

        def plan(self, view: ElasticView) -> Plan:
            for each in view.jobs.values():
                own = each.oracle.job if isinstance(each.oracle, JobOracle) else None
                if own is not None and own.layout:
                    gpus = sum(own.layout)
                    batches.add((gpus, gpus * own.local_batch * (own.accumulated + 1)))
            return super().plan(view)

    policy = Watched(ELASTIC[name]())
    given = replace(jobs(gpus=1, batch=32), own_batch=np.ones(1, bool))
    found = replayed(policy, given, Cluster.parse("2x4:slow"))
    assert np.isfinite(found.end_s).all()
    assert max(policy.sizes[0]) == 8
    assert {batch for gpus, batch in batches if 32 % gpus == 0} == {32}
    free = Watched(ELASTIC[name]())
    batches.clear()
    replayed(free, jobs(gpus=1, batch=32), Cluster.parse("2x4:slow"))
    assert {batch for _, batch in batches} != {32}


@pytest.mark.parametrize("name", ["sia", "pollux", "optimus"])
def test_no_job_gets_more_gpus_of_a_type_than_were_measured(name: str) -> None:
    narrow = steps()
    kept = (narrow.gpu_type != "slow") | (narrow.gpus <= 2)
    few = StepProfile(*(getattr(narrow, column)[kept] for column in StepProfile.__slots__))
    policy, known = Noted(ELASTIC[name]()), applications(few, epochs(), ["net"])
    found = replay_elastic(jobs((0.0,)), Cluster.parse("2x4:slow"), policy, known, TRAITS)
    assert np.isfinite(found.end_s).all()
    assert max(policy.sizes[0]) == 2


@pytest.mark.parametrize("name", [name for name in ELASTIC if name != "allox"])
def test_a_job_that_fits_nowhere_is_named(name: str) -> None:
    given = replace(jobs((0.0, 1.0), gpus=16), rigid=np.ones(2, bool))
    with pytest.raises(InputError, match=r"job net-0: it asks for 16 GPUs, .* \(slow has 8, measured on up to 8\)"):
        replayed(ELASTIC[name](), given, Cluster.parse("2x4:slow"))


def test_a_gang_that_is_no_configuration_of_sia_is_named() -> None:
    given = replace(jobs(gpus=3), rigid=np.ones(1, bool))
    with pytest.raises(InputError, match="job net-0: it asks for 3 GPUs, and Sia knows powers of two"):
        replayed(Sia(), given, Cluster.parse("2x4:slow"))


def test_between_points_of_one_node_nothing_is_known() -> None:
    few = steps()
    kept = few.nodes == 1
    known = applications(
        StepProfile(*(getattr(few, column)[kept] for column in StepProfile.__slots__)), epochs(), ["net"]
    )
    assert np.isnan(known["net"].speed["slow"].step_s((2, 2), 8)).all()


def test_a_trace_says_which_jobs_are_rigid(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    lines = [
        "name,time,application,num_replicas,batch_size,rigid",
        "a,0,net,2,64,yes",
        "b,1,net,2,64,No",
        "c,2,net,2,64,",
        "d,2,net,2,64,batch",
    ]
    trace.write_text("\n".join(lines))
    found = read_adaptive(trace)
    assert [found.is_rigid(row) for row in range(4)] == [True, False, False, False]
    assert [found.keeps_batch(row) for row in range(4)] == [True, False, False, True]
    trace.write_text("\n".join([*lines, "e,3,net,2,64,maybe"]))
    with pytest.raises(InputError, match=r"jobs.csv:6: rigid is neither yes nor no nor batch \(maybe\)"):
        read_adaptive(trace)


@pytest.mark.timeout(300)
def test_sias_workload(data_dir: Path | None) -> None:
    where = require("data", data_dir, "no profiles here")
    given = read_adaptive(where / "traces" / "sia_workloads" / "saturn.csv.gz", 1)
    measured, learnt = read_profiles(where / "gpu-profiles" / "sia")
    known = applications(measured, learnt, given.application.tolist())
    found = ElasticMetrics.of(
        replay_elastic(given, Cluster.parse("6x4:aws+2x8:dgx-ext+3x8:rtx"), Sia(), known, PUBLISHED)
    )
    assert found.jct_mean_s == pytest.approx(2091.0375, rel=0.15)
    assert found.jct_p99_s == pytest.approx(27765, rel=0.15)
    assert found.jct_max_s == pytest.approx(37910, rel=0.15)
