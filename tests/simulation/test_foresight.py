"""What flatters a policy in a replay is said."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.scheduling.policies import PolicyOptions
from perdure.scheduling.slurm.settings import Partition, SchedulerSettings
from perdure.simulation.foresight import foresight
from tests.simulation.tables import jobs

UNLIMITED = "the true running times of the 1 of 2 jobs that have no time limit"
SAMPLED = "what the very jobs of this trace take: give past ones (--gittins-samples, --gittins-split)"
LIMITED = jobs((1, 0, 5), (1, 0, 5), walltime_s=np.array([10.0, np.nan]))
NONE, TOLD = PolicyOptions(), PolicyOptions(gittins_samples=(1.0,), quotas={"": 1.0})


def in_partitions(*max_time_s: float | None) -> PolicyOptions:
    """A Slurm whose partitions have these limits."""
    partitions = tuple(Partition(str(place), max_time_s=limit) for place, limit in enumerate(max_time_s))
    return PolicyOptions(slurm=SchedulerSettings(partitions=partitions))


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("fifo", NONE, []),
        ("las-2d:8", NONE, []),
        ("srtf", NONE, ["srtf: knows true running times"]),
        ("shortest", NONE, ["srtf: knows true running times"]),
        ("conservative:replan", NONE, [f"conservative: knows {UNLIMITED}"]),
        ("easy", NONE, [f"easy: knows {UNLIMITED}"]),
        ("gittins-2d", NONE, [f"gittins-2d: knows {SAMPLED}"]),
        ("gittins-2d", TOLD, []),
        ("philly", NONE, ["philly: knows quotas by what this trace will ask for: give the real ones by --vc-quota"]),
        ("capacity", TOLD, []),
        ("slurm", NONE, [f"slurm: knows {UNLIMITED}"]),
        ("slurm", in_partitions(None, 60.0), [f"slurm: knows {UNLIMITED}"]),
        ("slurm", in_partitions(60.0), []),
    ],
)  # fmt: skip
def test_what_a_policy_knows_beforehand_is_said(policy: str, options: PolicyOptions, said: list[str]) -> None:
    assert foresight([LIMITED], [policy], options) == said


def test_nothing_is_said_of_limits_where_every_job_has_one() -> None:
    assert foresight([LIMITED.take(np.array([0]))], ["easy"], NONE) == []


def test_policies_with_the_same_foresight_share_a_sentence() -> None:
    assert foresight([LIMITED], ["sjf", "sjf:skip", "srsf"], NONE) == ["sjf, srsf: know true running times"]
