"""A job that has a successor already is not put back beside it."""

from typing import Any

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.service.core.successor import successor_of
from tests.copying import replace

FROM = "login1:4711"
JOB = Job(
    "c", "17", "train", "ada", JobState.FAILED, 0.0, command="train.sh", work_dir="/home/ada", submitted_from=FROM
)
ATTEMPT = Attempt(AttemptId("c", "17", 100), AttemptState.FAILED, ("n2",), 100.0, 200.0, exit_code=1, user="ada")
NEXT = replace(JOB, job_id="18", state=JobState.PENDING, submit_s=190.0, submitted_from="n2:99")


def found(other: Job, job: Job = JOB, attempt: Attempt = ATTEMPT) -> str:
    return successor_of(job, attempt, {job.job_id: job, other.job_id: other})


@pytest.mark.parametrize("host", ["n2:99", "n2.cluster:99", "localhost:99"])
def test_what_a_job_submitted_itself_goes_on_in_its_place(host: str) -> None:
    assert found(replace(NEXT, submitted_from=host)) == "it has submitted its own successor, job 18"


def test_a_chain_that_submits_its_next_link_first_does_so_in_the_second_in_which_it_starts() -> None:
    assert "its own successor" in found(replace(NEXT, submit_s=ATTEMPT.start_s))


@pytest.mark.parametrize("host", ["n2:99", "n2.cluster:99"])
def test_what_was_submitted_on_its_node_does_so_under_any_command(host: str) -> None:
    assert "its own successor" in found(replace(NEXT, submitted_from=host, command="resume.sh"))
    assert found(replace(NEXT, submitted_from=host.replace("2", "3"), command="resume.sh")) == ""


def test_so_does_what_somebody_submitted_since() -> None:
    assert "job 18, submitted since" in found(replace(NEXT, submit_s=230.0, submitted_from="login2:5"))


@pytest.mark.parametrize(
    "other",
    [
        replace(NEXT, user="bob"),
        replace(NEXT, name="evaluate"),
        replace(NEXT, work_dir="/home/ada/other"),
        replace(NEXT, submit_s=90.0),  # before it started: a job of its own
        replace(NEXT, submitted_from=FROM),  # one of many alike that one shell submitted
        replace(NEXT, submitted_from="login2:5", command="train.sh 2"),
        replace(NEXT, state=JobState.CANCELLED),
        replace(NEXT, state=JobState.COMPLETED, submitted_from="login2:5"),
        replace(NEXT, job_id="16"),
        replace(NEXT, restarts=1),  # its instant is that of being put back
        replace(NEXT, job_id="17_4"),
    ],
)
def test_other_jobs_of_the_user_are_no_successors(other: Job) -> None:
    job = replace(JOB, job_id="17_3") if "_" in other.job_id else JOB
    assert found(other, job) == ""


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
def test_a_successor_that_has_ended_already_is_decided_on_by_itself(state: JobState) -> None:
    """Of a chain whose jobs fail at once several have ended when the first is decided on."""
    assert found(replace(NEXT, state=state)) == "it has submitted its own successor, job 18"
    unseen = replace(NEXT, state=state, submitted_from="elsewhere:99")
    chained = replace(unseen, job_id="19", submit_s=205.0, submitted_from="elsewhere:100")
    resubmits = replace(ATTEMPT, resubmits=True)
    assert "its own successor, job 18" in successor_of(JOB, resubmits, known_as(unseen, chained))
    assert successor_of(JOB, ATTEMPT, known_as(unseen, chained)) == ""  # its script submits nothing
    twins = [replace(unseen, job_id=str(n), submitted_from=f"elsewhere:{n}") for n in (18, 19)]
    assert successor_of(JOB, resubmits, known_as(*twins)) == ""


def test_who_has_submitted_other_jobs_would_submit_them_again() -> None:
    child = replace(NEXT, name="child", work_dir="/other", command="child.sh")
    resubmits = replace(ATTEMPT, resubmits=True)
    assert found(child, attempt=resubmits) == "it has submitted job 18, and would submit it again"
    assert found(replace(child, submit_s=200.5), attempt=resubmits)  # in its last second
    for other in (replace(child, submit_s=300.0), replace(child, submit_s=90.0), replace(child, submitted_from=FROM)):
        assert found(other, attempt=resubmits) == ""
    assert found(child) == ""  # another job's on the same node: this one's script submits nothing


def test_twenty_alike_are_twenty_jobs() -> None:
    """A workflow submits each in a session of its own."""
    known = {str(n): replace(NEXT, job_id=str(n), submitted_from=f"login1:{n}") for n in range(18, 38)}
    assert successor_of(JOB, ATTEMPT, known) == ""
    known["40"] = replace(NEXT, job_id="40")
    assert "job 40" in successor_of(JOB, ATTEMPT, known)


def known_as(*others: Job) -> dict[Any, Any]:
    return {other.job_id: other for other in (JOB, *others)}


AGAIN = replace(NEXT, submit_s=202.0, submitted_from=FROM, state=JobState.RUNNING)  # by hand, from the same terminal


def test_what_its_owner_submits_again_after_its_end_takes_its_place_whatever_the_session() -> None:
    assert found(AGAIN) == "job 18, submitted since under its name in its directory, takes its place"
    assert "takes its place" in found(replace(AGAIN, submitted_from="login2:5"))
    assert "takes its place" in found(AGAIN, attempt=replace(ATTEMPT, resubmits=True))


def test_it_does_so_though_others_of_a_sweep_go_on() -> None:
    sweep = [replace(AGAIN, job_id=str(n), submit_s=n / 10) for n in range(1, 15)]
    assert "job 18" in successor_of(JOB, ATTEMPT, known_as(AGAIN, *sweep))


def test_two_that_failed_may_be_submitted_again_together() -> None:
    failed = replace(JOB, job_id="16", submit_s=50.0)
    again = [AGAIN, replace(AGAIN, job_id="19", submit_s=203.0)]
    assert "takes its place" in successor_of(JOB, ATTEMPT, known_as(failed, *again))
    assert successor_of(JOB, ATTEMPT, known_as(*again)) == ""  # more than failed: a loop


@pytest.mark.parametrize(
    "other",
    [
        replace(AGAIN, submit_s=200.0),  # in the second of its end
        replace(AGAIN, submit_s=150.0),
        replace(AGAIN, command="train.sh --lr 2"),
        replace(AGAIN, name="evaluate"),
        replace(AGAIN, work_dir="/home/ada/other"),
        replace(AGAIN, user="bob"),
        replace(AGAIN, state=JobState.CANCELLED),
    ],
)
def test_from_the_same_session_it_is_one_of_many_unless_it_came_after_the_end(other: Job) -> None:
    assert found(other) == ""


def test_scripts_that_are_no_files_are_not_known_to_be_the_same() -> None:
    assert found(replace(AGAIN, command=""), job=replace(JOB, command="")) == ""


@pytest.mark.parametrize("first_s", [199.0, 199.5])
def test_a_loop_that_submits_still_when_its_first_job_has_failed_means_many(first_s: float) -> None:
    """Five a second; each fails at once."""
    job = replace(JOB, submit_s=first_s)
    loop = [replace(AGAIN, job_id=str(18 + n), submit_s=first_s + n / 5, state=JobState.FAILED) for n in range(1, 20)]
    last = replace(AGAIN, job_id="40", submit_s=first_s + 4)
    assert successor_of(job, ATTEMPT, known_as(*loop, last)) == ""


def test_a_loop_that_submits_once_a_second_is_one_loop() -> None:
    failed_at_once = replace(ATTEMPT, start_s=0.5, end_s=3.0)
    loop = [replace(AGAIN, job_id=str(17 + n), submit_s=float(n), state=JobState.PENDING) for n in range(1, 5)]
    assert successor_of(JOB, failed_at_once, known_as(*loop)) == ""
    assert "takes its place" in successor_of(JOB, failed_at_once, known_as(replace(AGAIN, submit_s=4.0)))


def test_a_task_of_an_array_takes_the_place_of_that_task_alone() -> None:
    job = replace(JOB, job_id="17_3")
    assert "job 18_3" in found(replace(AGAIN, job_id="18_3"), job)
    assert "job 18, " in found(replace(AGAIN, job_id="18"), job)  # tasks that wait still
    assert found(replace(AGAIN, job_id="18_4"), job) == ""


def test_a_script_that_submits_jobs_may_call_another() -> None:
    other = replace(NEXT, submitted_from="login2:5", command="next.sh")
    assert found(other, attempt=replace(ATTEMPT, resubmits=True)) == "it has submitted its own successor, job 18"
    assert found(other) == ""


def test_in_whatever_order_jobs_are_known_the_one_that_takes_its_place_is_found() -> None:
    unlike = replace(NEXT, submitted_from="login2:5", command="train.sh 2")
    since = replace(NEXT, job_id="19", submit_s=230.0, submitted_from="login2:6")
    for jobs in ((unlike, since), (since, unlike)):
        assert "job 19, submitted since" in successor_of(JOB, ATTEMPT, known_as(*jobs))
