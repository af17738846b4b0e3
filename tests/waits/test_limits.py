"""Limits of QOS and accounts: the first in Slurm's order that a job would exceed, and when enough is given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.site_limits import CPUS, GPUS, AssociationLimits, QosLimits, SiteLimits, TresLimits
from perdure.waits.limits import LimitInTheWay, amount, limit_in_the_way, with_defaults
from perdure.waits.queue import Queue, QueuedJob, QueuedPartition

NOW_S = 1_000.0
ASKING = QueuedJob("9", "mira", JobState.PENDING, ("main",), gpus=4, cpus=8, account="lab", qos="gold")


def running(job_id: str, **more: Any) -> QueuedJob:
    given = {"user": "mira", "gpus": 2, "cpus": 4, "account": "lab", "qos": "gold", "start_s": NOW_S, **more}
    return QueuedJob(job_id, state=JobState.RUNNING, partitions=("main",), **given)


def queue(*jobs: QueuedJob, qos: str = "") -> Queue:
    return Queue(NOW_S, (ASKING, *jobs), (), (QueuedPartition("main", qos=qos),))


def gold(**limits: Any) -> SiteLimits:
    return SiteLimits((QosLimits("gold", TresLimits(**limits)),))


def found(site: SiteLimits, *jobs: QueuedJob, job: QueuedJob = ASKING, qos: str = "") -> tuple[str, str] | None:
    limit = limit_in_the_way(job, queue(*jobs, qos=qos), site)
    return None if limit is None else (limit.holder, limit.what)


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(0, 40))
def test_a_job_meets_a_limit_where_it_and_those_that_run_ask_for_more(gpus: list[int], most: int) -> None:
    jobs = [running(str(i), gpus=each) for i, each in enumerate(gpus)]
    exceeds = sum(gpus) + ASKING.gpus > most
    assert (found(gold(grp_tres={GPUS: most}), *jobs) == ("QOS gold", "GPUs")) == exceeds


@given(st.lists(st.sampled_from(["mira", "noor"]), max_size=6), st.integers(1, 4))
def test_a_limit_for_each_user_counts_that_users_jobs_alone(users: list[str], most: int) -> None:
    jobs = [running(str(i), user=user) for i, user in enumerate(users)]
    limit = limit_in_the_way(ASKING, queue(*jobs), gold(jobs_per_user=most))
    assert (limit is not None) == (users.count("mira") + 1 > most)
    assert limit is None or {job.user for job in limit.jobs} == {"mira"}


@pytest.mark.parametrize("over", [False, True])
def test_the_partitions_qos_goes_first_unless_the_jobs_own_is_to_go_before(over: bool) -> None:
    of_partition = QosLimits("part", TresLimits(grp_tres={GPUS: 1}))
    site = SiteLimits((of_partition, QosLimits("gold", TresLimits(grp_tres={GPUS: 1}), over_partition=over)))
    assert found(site, qos="part") == (("QOS gold" if over else "QOS part"), "GPUs")


def test_what_a_qos_sets_takes_the_place_of_the_same_limit_of_accounts() -> None:
    lab = AssociationLimits("lab", limits=TresLimits(grp_tres={GPUS: 1, CPUS: 1}))
    assert found(SiteLimits((), (lab,))) == ("account lab", "GPUs")
    assert found(SiteLimits(gold(grp_tres={GPUS: 100}).qos, (lab,))) == ("account lab", "CPUs")


def test_an_account_counts_the_jobs_of_all_accounts_below_it() -> None:
    top = AssociationLimits("top", limits=TresLimits(grp_jobs=2))
    below = (AssociationLimits("lab", parent="top"), AssociationLimits("ops", parent="top"), AssociationLimits("far"))
    site = SiteLimits((), (top, *below))
    assert found(site, running("1", account="ops")) is None
    assert found(site, running("1", account="ops"), running("2", account="lab")) == ("account top", "running jobs")
    assert found(site, running("1", account="far"), running("2", account="far")) is None


@pytest.mark.parametrize(
    ("reason", "holder"),
    [("", "QOS gold"), ("QOSGrpGRES", "QOS gold"), ("AssocGrpGRES", "account lab"), ("QOSMaxGRESPerUser", None)],
)
def test_the_managers_reason_says_of_which_kind_the_limit_is(reason: str, holder: str | None) -> None:
    lab = AssociationLimits("lab", limits=TresLimits(grp_tres={CPUS: 1}))
    site = SiteLimits(gold(grp_tres={GPUS: 1}).qos, (lab,))
    limit = found(site, job=replace(ASKING, reason=reason))
    assert (None if limit is None else limit[0]) == holder


ends = st.lists(st.tuples(st.integers(-900, 900), st.integers(1, 8)), max_size=8)


@given(ends, st.integers(0, 30), st.integers(1, 10))
def test_enough_is_free_at_the_first_end_after_which_the_job_fits(
    jobs: list[tuple[int, int]], most: int, asked: int
) -> None:
    its = tuple(running(str(i), gpus=g, start_s=NOW_S - 900, walltime_s=900.0 + end) for i, (end, g) in enumerate(jobs))
    limit = LimitInTheWay("QOS gold", GPUS, most, asked, of_user=False, jobs=its)
    free_s = limit.free_s(NOW_S)
    instants = sorted({max(NOW_S, NOW_S + end) for end, _ in jobs})

    def left(at_s: float) -> int:
        return sum(gpus for end, gpus in jobs if max(NOW_S, NOW_S + end) > at_s)

    fits = [at_s for at_s in instants if left(at_s) + asked <= most]
    if limit.used + asked > most:  # else nothing is in the way
        assert free_s == (fits[0] if fits else None)
    assert limit.never == (asked > most)
    assert not limit.never or free_s is None


def test_a_job_without_a_limit_of_time_gives_back_at_no_known_time() -> None:
    its = (running("1", gpus=8), running("2", gpus=8, start_s=None, walltime_s=60.0))
    assert LimitInTheWay("QOS gold", GPUS, 8, 4, of_user=False, jobs=its).free_s(NOW_S) is None


@pytest.mark.parametrize(("account", "qos"), [("", ""), ("ops", ""), ("", "silver"), ("ops", "silver")])
def test_a_script_gets_its_users_account_and_qos_where_it_names_none(account: str, qos: str) -> None:
    site = SiteLimits((), (AssociationLimits("lab", "mira", default_qos="gold"), AssociationLimits("ops", "mira")))
    job = with_defaults(replace(ASKING, account=account, qos=qos), site)
    expected_qos = qos or ("gold" if not account else "normal")
    assert (job.account, job.qos) == (account or "lab", expected_qos)
    assert with_defaults(ASKING, SiteLimits()) is ASKING


def test_what_a_job_counts_is_what_it_asks_for() -> None:
    assert [amount(ASKING, tres) for tres in (GPUS, CPUS, "")] == [4, 8, 1]
