"""What is remembered of a job that fails again and again: each failure once, in their order, the newest last."""

from typing import Any

from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.actions import Hold
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Known
from perdure.model.output import LogMark
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.core.case import Case, ControllerState, Failure
from perdure.service.core.chain_step import meant_for
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0)


def failure(number: int, job_id: str = "1", **more: Any) -> Failure:
    attempt = Attempt(AttemptId("c", job_id, number), AttemptState.FAILED, (f"n{number}",), 0.0, 10.0 * number)
    about = Subject("c", job_id)
    record = ExceptionRecord(f"{attempt.id}:f", "job.failed", 0, Scope.LOCAL, about, 10.0 * number, incarnation=number)
    logs = (LogMark(f"log.{number}", 0, number, "d", 1.0),)
    verdict = Verdict(Label.TRANSIENT, 0.9, "net", "it passes", fingerprint=f"f{number}", logs=logs)
    return Failure(attempt, record, **{"verdict": verdict, **more})


def test_each_failure_is_remembered_once_in_order_and_of_the_last_alone_how_far_its_logs_were_read() -> None:
    case = Case(JOB, 1)
    for number in (1, 2, 3, 4):
        case = replace(case, failure=failure(number)).closed()
    assert [past.attempt.incarnation for past in case.past] == [1, 2, 3, 4]
    assert [past.fingerprint for past in case.past] == ["f1", "f2", "f3", "f4"]
    assert [[mark.path for mark in past.logs] for past in case.past] == [[], [], [], ["log.4"]]


def test_of_too_many_jobs_the_one_that_failed_longest_ago_is_forgotten_and_none_that_awaits_its_verdict() -> None:
    state = ControllerState("c")
    for number, verdict in ((1, None), (3, failure(3).verdict), (2, failure(2).verdict), (4, failure(4).verdict)):
        case = Case(replace(JOB, job_id=str(number)), number, failure=failure(number, str(number), verdict=verdict))
        state = state.with_case(case, 3)
    assert set(state.cases) == {"1", "3", "4"}


def test_a_job_was_kept_off_nodes_only_where_it_was_retried() -> None:
    avoided = []
    for kind in (DecisionKind.RETRY, DecisionKind.STOP):
        decision = Decision(kind, "so", exclude=("n1",), p_transient=0.5)
        (past,) = Case(JOB, 1, failure=failure(1, decision=decision)).closed().past
        avoided.append(past.avoided)
    assert avoided == [("n1",), ()]


def test_of_a_gang_the_nodes_that_went_down_are_remembered_and_not_the_others() -> None:
    known = failure(1)
    gang = replace(known.attempt, nodes=("n1", "n2"), failed_nodes=("n2",))
    (past,) = Case(JOB, 1, failure=replace(known, attempt=gang)).closed().past
    assert (past.nodes, past.failed_nodes) == (("n1", "n2"), ("n2",))


def test_an_action_is_meant_for_whose_start_it_names_though_no_look_has_shown_the_job() -> None:
    """Accounting tells of starts while the controller is silent; a slurmctld without its state gives ids again."""
    first, second = (AttemptId("c", "1", number) for number in (1, 2))
    started = Attempt(second, AttemptState.RUNNING, ("n1",), 0.0, user="bob")
    failed = replace(failure(2), attempt=replace(started, state=AttemptState.FAILED, end_s=9.0))
    ada_s = Known(jobs={"1": JOB})
    runs = ControllerState("c", replace(ada_s, running={second: started}))
    has_failed = ControllerState("c", ada_s, {"1": Case(JOB, 2, failure=failed)})
    for state in (runs, has_failed):
        assert meant_for(Hold(second), state).user == "bob"
        assert meant_for(Hold(first), state).user == "ada"
        assert meant_for(Hold(second, user="eve"), state).user == "eve"
    nameless = replace(ada_s, running={second: replace(started, user="")})
    assert meant_for(Hold(second), ControllerState("c", nameless)).user == "ada"
    assert meant_for(Hold(first), ControllerState("c", cases={"1": Case(JOB, 1)})).user == "ada"
    assert not meant_for(Hold(first), ControllerState("c")).user
