"""The table of reasons: by hand, and what holds of any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.survey.tally import FailedAttempt, tally
from perdure.triage.verdict import Label

SHAPE = FailedAttempt("1", "ada", 4, 3600.0, "shape", Label.DETERMINISTIC, retried=True, retry_s=1800.0)


def test_a_hand_case() -> None:
    found = tally(
        [
            SHAPE,
            FailedAttempt("1", "ada", 4, 1800.0, "shape", Label.DETERMINISTIC),
            FailedAttempt("2", "bob", 8, 7200.0, "net", Label.TRANSIENT, retried=True, passed_later=True, retry_s=99.0),
        ]
    )
    net, shape = found.rows
    assert (net.reason, net.trials, net.jobs, net.users, net.lost_gpu_h) == ("net", 1, 1, 1, 16.0)
    assert (net.retries, net.saved, net.wasted_gpu_h) == (1, 1, 0.0)
    assert (shape.trials, shape.jobs, shape.users, shape.lost_gpu_h) == (2, 1, 1, 6.0)
    assert (shape.retries, shape.saved, shape.wasted_gpu_h) == (1, 0, 2.0)
    assert shape.rtf_s == pytest.approx((2700.0, 3420.0, 3510.0))
    assert shape.labels == {"deterministic": 2, "transient": 0, "unsure": 0}
    assert (found.total.trials, found.total.jobs, found.total.users) == (3, 2, 2)


def test_no_run_time_no_quantiles() -> None:
    (row,) = tally([FailedAttempt("1", "", 0, None, "net", Label.UNSURE)]).rows
    assert (row.rtf_s, row.users, row.lost_gpu_h) == (None, 0, None)


failed = st.builds(
    FailedAttempt,
    st.sampled_from("123"),
    st.sampled_from(["ada", "bob", ""]),
    st.integers(0, 64),
    st.none() | st.floats(0, 1e6),
    st.sampled_from(["net", "shape", "unknown"]),
    st.sampled_from(list(Label)),
    st.booleans(),
    st.booleans(),
    st.floats(0, 1e6),
)


@given(st.lists(failed, min_size=1, max_size=30))
def test_the_rows_add_up_and_come_costliest_first(attempts: list[FailedAttempt]) -> None:
    found = tally(attempts)
    for name in ("trials", "retries", "saved"):
        assert sum(getattr(row, name) for row in found.rows) == getattr(found.total, name)
    for name in ("lost_gpu_h", "wasted_gpu_h"):
        assert sum(getattr(row, name) or 0.0 for row in found.rows) == pytest.approx(getattr(found.total, name) or 0.0)
    cost = [(row.lost_gpu_h or 0.0, row.trials) for row in found.rows]
    assert cost == sorted(cost, reverse=True)
    assert all(row.jobs <= row.trials and row.users <= row.trials for row in found.rows)
