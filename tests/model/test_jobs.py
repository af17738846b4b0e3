"""States of jobs, attempts and nodes: which exclude each other; when an id is another job's; what an attempt cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.exits import ExitRequest, exit_request_of
from perdure.model.identity import AttemptId
from perdure.model.jobs import SAME_SUBMIT_S, Attempt, AttemptState, Job, JobState, begins_anew
from perdure.model.nodes import Node, NodeState
from tests.copying import replace

JOB = Job("c", "7", "train", "ada", JobState.PENDING, submit_s=100.0, partition="a,b")
instants = st.floats(0, 1e9)


@pytest.mark.parametrize("state", JobState)
def test_a_job_waits_is_over_or_is_at_work(state: JobState) -> None:
    assert state.is_waiting + state.is_over + (state in (JobState.RUNNING, JobState.SUSPENDED)) == 1


@pytest.mark.parametrize("state", AttemptState)
def test_only_what_is_over_can_have_failed(state: AttemptState) -> None:
    assert state.is_over or not state.is_failure
    assert state.is_over == (state not in (AttemptState.RUNNING, AttemptState.SUSPENDED))


def test_a_wish_a_success_and_a_new_try_are_no_failures() -> None:
    fine = {state for state in AttemptState if state.is_over and not state.is_failure}
    assert fine == {AttemptState.COMPLETED, AttemptState.CANCELLED, AttemptState.REQUEUED}


@pytest.mark.parametrize("state", NodeState)
def test_a_node_is_given_up_only_on_somebodys_word(state: NodeState) -> None:
    assert Node("n1", state).is_usable == (state in (NodeState.UP, NodeState.UNKNOWN))


@pytest.mark.parametrize(
    ("partitions", "may"), [((), False), (("b",), True), (("c", "a"), True), (("a,b",), False), (("",), False)]
)
def test_a_job_may_run_in_each_partition_that_it_names(partitions: tuple[str, ...], may: bool) -> None:
    assert JOB.may_run_in(partitions) is may


@given(instants, st.booleans(), st.integers(0, 3))
def test_a_job_never_begins_anew_at_the_submit_that_is_known(submit_s: float, is_anothers: bool, restarts: int) -> None:
    before = replace(JOB, submit_s=submit_s)
    now = replace(before, user="bob" if is_anothers else before.user, restarts=restarts)
    assert not begins_anew(before, now)
    assert not begins_anew(before, replace(now, submit_s=submit_s + SAME_SUBMIT_S / 2))


@given(st.floats(2 * SAME_SUBMIT_S, 1e6), st.integers(0, 3))
def test_a_later_submit_is_a_requeue_of_the_same_users_job_or_another_job(later_s: float, restarts: int) -> None:
    again = replace(JOB, submit_s=JOB.submit_s + later_s, restarts=restarts)
    assert begins_anew(JOB, again) == (restarts == 0)
    assert begins_anew(JOB, replace(again, user="bob"))


@given(instants, st.floats(0, 1e7), st.integers(0, 4096))
def test_gpu_hours_are_gpus_times_hours(start_s: float, ran_s: float, gpus: int) -> None:
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1",), start_s, start_s + ran_s, gpus=gpus)
    assert attempt.elapsed_s == pytest.approx(ran_s, abs=1e-6)
    assert attempt.gpu_hours == pytest.approx(gpus * ran_s / 3600, abs=1e-6)


@given(instants, instants)
def test_an_attempt_costs_nothing_while_its_end_is_unknown_or_before_its_start(one: float, other: float) -> None:
    start_s, end_s = max(one, other), min(one, other)
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.RUNNING, ("n1",), start_s, gpus=8)
    assert (attempt.elapsed_s, attempt.gpu_hours) == (0.0, 0.0)
    assert replace(attempt, end_s=end_s).elapsed_s == 0.0


@given(st.integers(-64, 255))
def test_three_exit_codes_ask_for_something(code: int) -> None:
    asked = {75: ExitRequest.RETRY, 78: ExitRequest.NEVER, 93: ExitRequest.STOP}
    assert exit_request_of(code) is asked.get(code, ExitRequest.NONE)
