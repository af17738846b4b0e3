"""Keys of events: the same fact has the same key whoever tells it and when, and two facts never share one."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.model.events import (
    AttemptEnded,
    AttemptStarted,
    ClusterEvent,
    JobChanged,
    JobGone,
    NodeChanged,
    NodeGone,
    SightChanged,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState

job_ids = st.integers(1, 10**7).map(str)
attempt_ids = st.builds(AttemptId, st.just("c"), job_ids, st.integers(0, 2**40))
attempts = st.builds(Attempt, attempt_ids, st.sampled_from(list(AttemptState)), st.just(("n1",)), st.floats(0, 1e9))
instants = st.integers(0, 10**9).map(float)
jobs = st.builds(
    Job, st.just("c"), job_ids, st.just("train"), st.just("ada"), st.sampled_from(list(JobState)), instants
)


@given(attempts, instants, instants)
def test_a_start_and_an_end_are_told_once_whenever_they_are_seen(attempt: Attempt, one: float, other: float) -> None:
    assert AttemptStarted(one, attempt).key == AttemptStarted(other, attempt).key
    assert AttemptEnded(one, attempt).key == AttemptEnded(other, attempt).key
    assert AttemptStarted(one, attempt).key != AttemptEnded(one, attempt).key


@given(attempts, attempts, instants)
def test_two_attempts_have_two_starts(one: Attempt, other: Attempt, now: float) -> None:
    assert (AttemptStarted(now, one).key == AttemptStarted(now, other).key) == (one.id == other.id)


@given(jobs, instants, instants)
def test_a_job_that_comes_back_into_a_state_is_news_at_another_instant(job: Job, one: float, other: float) -> None:
    assert (JobChanged(one, job).key == JobChanged(other, job).key) == (one == other)


@given(jobs, attempts, st.sampled_from(list(NodeState)), instants)
def test_facts_of_different_kinds_never_share_a_key(job: Job, attempt: Attempt, state: NodeState, now: float) -> None:
    told: list[ClusterEvent] = [
        JobChanged(now, job),
        JobGone(now, job),
        AttemptStarted(now, attempt),
        AttemptEnded(now, attempt, job),
        NodeChanged(now, "c", Node("n1", state)),
        NodeGone(now, "c", "n1"),
        SightChanged(now, "c", "n1", ""),
    ]
    assert len({event.key for event in told}) == len(told)


@given(jobs, st.integers(1, 9), instants)
def test_a_job_that_was_restarted_between_two_looks_of_one_instant_is_news(job: Job, more: int, now: float) -> None:
    """As where the clock stands still, or was set back."""
    assert JobChanged(now, job).key != JobChanged(now, replace(job, restarts=job.restarts + more)).key
