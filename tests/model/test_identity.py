"""An attempt's name: one text for each, read back as it was, in an order that follows the starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId

clusters = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text)
attempts = st.builds(AttemptId, clusters, st.text(min_size=1, max_size=20), st.integers(0, 2**63 - 1))


@given(attempts)
def test_what_is_written_is_read_back(attempt: AttemptId) -> None:
    assert AttemptId.parse(str(attempt)) == attempt


@given(attempts, attempts)
def test_two_attempts_have_two_texts(one: AttemptId, other: AttemptId) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(attempts, st.integers(1, 1000))
def test_a_later_start_of_a_job_comes_after_an_earlier_one(attempt: AttemptId, more: int) -> None:
    later = AttemptId(attempt.cluster, attempt.job_id, attempt.incarnation + more)
    assert sorted([later, attempt]) == [attempt, later]


@pytest.mark.parametrize("text", ["", "c/7", "c/7#", "c/7#x", "c/7#-1", "/7#1", "c/#1", "7#1", "c/7#1.0"])
def test_what_is_no_name_of_an_attempt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not CLUSTER/JOB#INCARNATION"):
        AttemptId.parse(text)
