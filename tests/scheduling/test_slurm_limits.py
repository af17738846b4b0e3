"""Limits of QOS and associations: what a job waits for, and what keeps one from ever starting."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.scheduling.slurm.limits import LimitCounts, LimitHolder, refusal
from perdure.scheduling.slurm.requests import requests_of
from perdure.scheduling.slurm.settings import Partition, Qos, RunningLimits, SchedulerSettings
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of
from tests.simulation.tables import jobs


def qos(**limits: int) -> LimitHolder:
    return LimitHolder("QOS", "q", 1, RunningLimits(**limits))


def assoc(**limits: int) -> LimitHolder:
    return LimitHolder("Assoc", 3, 1, RunningLimits(**limits))


@pytest.mark.parametrize(
    ("holder", "reason"),
    [
        (qos(grp_jobs=1), "QOSGrpJobsLimit"),
        (qos(grp_gpus=7), "QOSGrpGRES"),
        (qos(max_jobs_per_user=1), "QOSMaxJobsPerUserLimit"),
        (qos(max_gpus_per_user=7), "QOSMaxGRESPerUser"),
        (assoc(grp_jobs=1), "AssocGrpJobsLimit"),
        (assoc(grp_gpus=7), "AssocGrpGRES"),
        (assoc(max_jobs_per_user=1), "AssocMaxJobsLimit"),
        (qos(grp_jobs=2, grp_gpus=8, max_jobs_per_user=2, max_gpus_per_user=8), None),
    ],
)
def test_the_first_limit_that_would_be_exceeded_is_named(holder: LimitHolder, reason: str | None) -> None:
    counts = LimitCounts()
    counts.hold((holder,), 4)
    assert counts.reason((holder,), 4) == reason
    counts.hold((holder,), -4)
    assert counts.reason((holder,), 4) is None


def test_what_is_of_a_user_counts_that_users_jobs_alone() -> None:
    limits = RunningLimits(max_jobs_per_user=1, grp_gpus=6)
    one, other = LimitHolder("QOS", "q", 1, limits), LimitHolder("QOS", "q", 2, limits)
    counts = LimitCounts()
    counts.hold((one,), 4)
    assert counts.reason((one,), 1) == "QOSMaxJobsPerUserLimit"
    assert counts.reason((other,), 2) is None
    assert counts.reason((other,), 3) == "QOSGrpGRES"


def test_what_no_job_of_that_shape_can_meet_refuses_it() -> None:
    assert refusal((qos(max_gpus_per_job=4),), 5, 0.0) == "QOSMaxGRESPerJob"
    assert (
        refusal((LimitHolder("Assoc", 1, 1, RunningLimits(max_wall_s=60.0)),), 1, 61.0)
        == "AssocMaxWallDurationPerJobLimit"
    )
    assert refusal((assoc(grp_gpus=4),), 5, 0.0) == "AssocGrpGRES"
    assert refusal((assoc(grp_jobs=0),), 1, 0.0) == "AssocMaxJobsLimit"
    assert refusal((qos(max_gpus_per_job=4, grp_gpus=4),), 4, 0.0) is None


@pytest.mark.parametrize(("over", "first"), [(False, "of-partition"), (True, "own")])
def test_which_qos_goes_first_where_both_set_a_limit(over: bool, first: str) -> None:
    limits = RunningLimits(grp_jobs=2), RunningLimits(grp_jobs=5)
    qos = Qos("of-partition", limits=limits[0]), Qos("own", limits=limits[1], over_partition=over)
    site = SchedulerSettings(partitions=(Partition("p", qos="of-partition"),), qos=qos)
    table = jobs((1, 0, 10), qos=np.array(["own"]))
    (holders,) = requests_of(view_of(Workload.of(table), 8), site).holders
    assert [each.limits.grp_jobs for each in holders] == [2 if first == "of-partition" else 5, None]
    assert holders[0].key == ("qos", first)
