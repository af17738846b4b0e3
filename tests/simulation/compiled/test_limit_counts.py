"""Limits on what runs, against the plain form that counts in dictionaries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.scheduling.slurm.limits import LimitCounts, LimitHolder
from perdure.scheduling.slurm.settings import RunningLimits
from perdure.simulation.compiled.limit_counts import limit_table
from tests.simulation.compiled.in_python import in_python

kernels = in_python("limit_counts")
GPUS = [1, 2, 3, 1, 4, 2]
FEW = st.none() | st.integers(0, 4)
LIMITS = st.builds(RunningLimits, grp_gpus=FEW, grp_jobs=FEW, max_gpus_per_user=FEW, max_jobs_per_user=FEW)
Holders = list[tuple[LimitHolder, ...]]


@st.composite
def holders(draw: st.DrawFn) -> Holders:
    """Each job is in a QOS, an account of two and the one above both, as one of two users; a holder may come twice."""
    limits = {key: draw(LIMITS) for key in ("high", "low", "a", "b", "root")}
    found: Holders = []
    for _ in GPUS:
        user, qos, account = draw(st.tuples(st.integers(0, 1), st.sampled_from(["high", "low"]), st.sampled_from("ab")))
        keys = draw(st.sampled_from([(qos, account, "root"), (qos,), (account, "root"), ()]))
        found.append(tuple(LimitHolder("QOS", key, user, limits[key]) for key in keys))
    return found


@settings(max_examples=30)
@given(holders(), st.lists(st.integers(0, len(GPUS) - 1), max_size=20))
def test_a_job_is_barred_by_the_same_limits_as_in_the_plain_form(of: Holders, steps: list[int]) -> None:
    table, counts, there = limit_table(of), LimitCounts(), set[int]()
    for row in steps:
        sign = -1 if row in there else 1
        kernels.count_running(table, row, sign, sign * GPUS[row])
        counts.hold(of[row], sign * GPUS[row])
        there ^= {row}
        for each, gpus in enumerate(GPUS):
            assert kernels.limited(table, each, gpus) == (counts.reason(of[each], gpus) is not None)


@pytest.mark.parametrize(
    ("limits", "barred"),
    [
        (RunningLimits(grp_jobs=2), [False, False, True]),
        (RunningLimits(grp_gpus=6), [False, False, True]),
        (RunningLimits(grp_gpus=9), [False, False, False]),  # a limit may be reached
        (RunningLimits(max_jobs_per_user=1), [False, False, True]),
        (RunningLimits(max_gpus_per_user=5), [False, False, True]),
        (RunningLimits(), [False, False, False]),
    ],
)
def test_each_limit_by_hand(limits: RunningLimits, barred: list[bool]) -> None:
    """Three jobs of 3 GPUs start one after another: of user 0, of user 1, of user 0."""
    table, seen = limit_table([(LimitHolder("QOS", "q", user, limits),) for user in (0, 1, 0)]), []
    for row in range(3):
        seen.append(kernels.limited(table, row, 3))
        kernels.count_running(table, row, 1, 3)
    assert seen == barred


def test_jobs_of_the_same_holders_share_their_rows_and_none_needs_none() -> None:
    one, other = (LimitHolder("QOS", "q", user, RunningLimits(grp_jobs=1)) for user in (0, 1))
    table = limit_table([(one,), (other,), (one,), ()])
    assert table.stretch.tolist() == [0, 1, 0, 2]
    assert (len(table.entry), len(table.counts)) == (2, 3)  # the whole, and two users of it
    none = limit_table([(), ()])
    assert len(none.stretch) == 0
    kernels.count_running(none, 1, 1, 4)
    assert not kernels.limited(none, 1, 99)
