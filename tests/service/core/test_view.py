"""What the site knows when it decides: which start is the latest, who forbids a retry, what a job waits for."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.coordination.chain_state import Chain
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.playbook import own_playbook, site_playbook
from perdure.coordination.record import (
    START,
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
    about,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Known
from perdure.retry.decide import Decision, DecisionKind
from perdure.retry.history import HOUR_S, Fleet, Spent
from perdure.retry.rules import RetryRules
from perdure.service.core.case import Case, ControllerState, Failure
from perdure.service.core.view import PARKED_S, SiteView
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

NOW = 10_000.0
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, "gpu")
FAILED = Attempt(AttemptId("c", "1", 3), AttemptState.FAILED, ("n1",), 9_000.0, 9_900.0, exit_code=1, user="ada")
NET = Verdict(Label.TRANSIENT, 0.9, "net", "a connection was lost", infrastructure=True, fingerprint="f")
RECORD = ExceptionRecord("c/1#3:job.failed", "job.failed", 0, Scope.LOCAL, about(FAILED.id), 9_910.0, incarnation=3)
FAILURE = Failure(FAILED, RECORD, NET)
FLEET = Fleet(usable={"": frozenset({"n1", "n2", "n3"})}, live_jobs=10)
RESOURCES = '[resources."pfs:/scratch"]\npartitions = ["gpu"]\n'


def view(
    job: Job = JOB,
    failure: Failure | None = FAILURE,
    latest: int = 3,
    ended: list[Any] | tuple[()] = (),
    open_: Sequence[ExceptionRecord] = (),
    known: Known | None = None,
    **more: Any,
) -> SiteView:
    chain = Chain(open={r.id: r for r in open_}, ended={r.id: r for r in ended})
    cases = {job.job_id: Case(job, latest, failure=failure, **more)}
    state = ControllerState("c", known or Known(jobs={job.job_id: job}), cases, FLEET, chain)
    return SiteView(state, site_playbook(RESOURCES, "p"), RetryRules(), NOW)


def decided(**given: Any) -> Decision:
    return view(**given).decision(given.get("failure", FAILURE).record)


# -- which start is the latest


def attempt_id(number: int, job_id: str = "1") -> AttemptId:
    return AttemptId("c", job_id, number)


def attempts(*ids: AttemptId) -> dict[Any, Any]:
    return {each: Attempt(each, AttemptState.RUNNING, ("n1",), 0.0) for each in ids}


def test_the_latest_start_is_the_highest_that_anybody_tells_of() -> None:
    running = attempts(*map(attempt_id, (2, 5, 4)), attempt_id(9, "2"))
    assert view(known=Known(running=running)).latest("1") == 5
    assert view(latest=7, known=Known(running=running)).latest("1") == 7
    assert view(known=Known(running=running)).latest("2") == 9
    assert view().latest("77") == 0


def test_what_ended_counts_where_a_job_was_put_back_and_nobody_remembers_it() -> None:
    ended = {attempt_id(4, "2"): 0.0, attempt_id(6, "2"): 0.0, attempt_id(8, "3"): 0.0}
    for restarts, latest in ((1, 6), (0, 0)):
        other = replace(JOB, job_id="2", restarts=restarts)
        assert view(known=Known(jobs={"2": other}, ended=ended)).latest("2") == latest


def test_a_job_is_known_by_the_last_look_and_else_by_its_case() -> None:
    newer = replace(JOB, name="newer")
    assert view(known=Known(jobs={"1": newer})).job("1") is newer
    assert view(known=Known()).job("1") is JOB
    assert view().job("2") is None


# -- starts that the manager alone has counted


@pytest.mark.parametrize(
    ("restarts", "state", "ended", "before_us", "uncounted"),
    [
        (0, JobState.FAILED, (), 0, 0),
        (2, JobState.FAILED, (), 0, 2),
        (2, JobState.FAILED, (1,), 0, 1),
        (2, JobState.FAILED, (1, 2), 0, 0),
        (2, JobState.FAILED, (1, 2, 4, 5), 0, 0),  # later ones are not before it
        (2, JobState.PENDING, (), 0, 1),  # the failure at hand is one of those that were counted
        (1, JobState.PENDING, (), 0, 0),
        (0, JobState.FAILED, (), 2, 2),
        (3, JobState.FAILED, (1,), 2, 4),
    ],
)
def test_starts_that_nobody_here_judged_are_tries(
    restarts: int, state: JobState, ended: tuple[int, ...], before_us: int, uncounted: int
) -> None:
    known = Known(ended={attempt_id(number): 0.0 for number in ended} | {attempt_id(1, other): 0.0 for other in "02"})
    job = replace(JOB, restarts=restarts, state=state)
    seen = view(job=job, known=known, before_us=before_us)
    assert seen._uncounted(seen.state.cases["1"], FAILED.id) == uncounted


# -- who forbids a retry


def taken(kind: str = "app.nan", at_s: float = 9_500.0, **more: Any) -> ExceptionRecord:
    answer = Answer(Component.JOB, AnswerKind.HANDLED, at_s, "rolled back", handler="ada+trainer", forbids=("requeue",))
    answer = replace(answer, **more.pop("answer", {}))
    record = ExceptionRecord("x", kind, 1, Scope.LOCAL, about(FAILED.id), 9_400.0, incarnation=3, verdicts=(answer,))
    return replace(record, **{"state": ExceptionState.HANDLED, **more})


def test_who_took_what_led_to_a_failure_may_forbid_a_requeue() -> None:
    for where in ("ended", "open_"):
        found = decided(**{where: [taken()]})
        assert found.kind is DecisionKind.STOP
        assert found.reason == "ada+trainer took app.nan and forbids a requeue: rolled back"
    assert "job took" in decided(ended=[taken(answer={"handler": ""})]).reason


@pytest.mark.parametrize(
    "record",
    [
        taken(incarnation=2),
        taken(subject=Subject("c", "2")),
        taken(answer={"forbids": ("move",)}),
        taken(answer={"kind": AnswerKind.ANNOTATED}),
        taken(at_s=8_999.0),  # before its start
        taken(at_s=9_900.0 - 700.0),  # longer ago than the playbook's window of such faults
    ],
)
def test_nobody_else_does(record: ExceptionRecord) -> None:
    assert decided(ended=[record]).kind is DecisionKind.RETRY


def test_it_holds_from_the_start_on_for_the_window_and_for_good_where_the_job_was_to_end() -> None:
    window_s = own_playbook().plan_for("app.nan").window_s
    failed_s = RECORD.time_s
    for at_s, stops in ((failed_s - window_s, True), (failed_s - window_s - 1, False)):
        assert (decided(ended=[taken(at_s=at_s)]).kind is DecisionKind.STOP) is stops
    assert decided(ended=[taken(at_s=9_000.0, outcome=ExceptionOutcome.STOPPED)]).kind is DecisionKind.STOP
    assert decided(ended=[taken(incarnation=0)]).kind is DecisionKind.STOP  # raised before its start was seen


@pytest.mark.parametrize("state", [AttemptState.NODE_FAIL, AttemptState.BOOT_FAIL, AttemptState.PREEMPTED])
def test_what_the_site_did_is_not_the_jobs_to_forbid(state: AttemptState) -> None:
    failure = replace(FAILURE, attempt=replace(FAILED, state=state))
    assert decided(ended=[taken()], failure=failure).kind is DecisionKind.RETRY


# -- what is down


def down(**more: Any) -> ExceptionRecord:
    answer = Answer(Component.SCHEDULER, AnswerKind.HANDLED, 9_000.0, "held", ("hold:c/9#1@d",), forbids=(START,))
    subject = Subject("c", resource="pfs:/scratch")
    record = ExceptionRecord("d", "storage.down", 0, Scope.GLOBAL, subject, 9_000.0, verdicts=(answer,))
    return replace(record, **{"state": ExceptionState.HANDLED, **more})


def test_a_job_that_needs_what_is_down_is_put_back_to_start_later() -> None:
    found = decided(ended=[down()])
    assert (found.kind, found.delay_s) == (DecisionKind.RETRY, PARKED_S)
    assert found.reason.endswith("it waits until pfs:/scratch works again (d)")
    for outcome in (ExceptionOutcome.CLEARING, ExceptionOutcome.RECOVERED):
        assert decided(ended=[down(outcome=outcome)]).delay_s == RetryRules().back_off_s
    assert decided(job=replace(JOB, partition="cpu,gpu"), ended=[down()]).delay_s == PARKED_S
    elsewhere = replace(JOB, partition="cpu")
    assert decided(job=elsewhere, ended=[down()]).delay_s == RetryRules().back_off_s


@pytest.mark.parametrize("for_s", [None, 10.0, 900.0, 3000.0])
@pytest.mark.parametrize("back_off_s", [5.0, PARKED_S, 600.0])
def test_whatever_else_it_waits_for_it_waits_for_no_less_while_what_it_needs_is_down(
    for_s: float | None, back_off_s: float
) -> None:
    def delay_s(ended: list[Any]) -> float:
        seen = replace(view(ended=ended), rules=RetryRules(back_off_s=back_off_s, back_off_cap_s=back_off_s))
        if for_s is not None:  # until its budget has room
            started_s = NOW + for_s - HOUR_S
            seen.promised.extend(Spent(started_s, f"j{n}", "ada", ("n1",)) for n in range(1000))
        return seen.decision(RECORD).delay_s

    alone = delay_s([])
    assert alone == max(back_off_s, for_s or 0.0)
    assert delay_s([down()]) == max(alone, PARKED_S)


def test_what_waits_for_what_is_down_is_charged_for_when_it_starts() -> None:
    """Its budget has room now, and none at the instant to which it is put off."""
    ahead_s = HOUR_S + 10.0
    delays = []
    for ended in ([], [down()]):
        rules = RetryRules(back_off_s=5.0, back_off_cap_s=5.0, per_node_per_hour=1)
        seen = replace(view(ended=ended), rules=rules)
        seen.promised.append(Spent(NOW + 5.0 + ahead_s, "j", "ada", FAILED.nodes))
        delays.append(seen.decision(RECORD).delay_s)
    assert delays == [5.0, 5.0 + ahead_s + HOUR_S]


def test_what_is_in_force_is_about_what_jobs_share() -> None:
    assert [r.id for r in view(ended=[down(), taken()]).in_force()] == ["d"]
    open_ = [replace(down(), id="e", state=ExceptionState.IN_CHAIN), taken()]
    assert view(open_=open_).open_about("pfs:/scratch") == ["e"]
    assert view(open_=open_).open_about("pfs:/home") == []


# -- decisions


def test_a_decision_that_stands_is_made_once_a_look_and_charged_with_what_it_promises() -> None:
    seen = view()
    for _ in range(2):
        seen.settle_on(RECORD)
    assert seen.decision(RECORD) is seen.decision(RECORD)
    (promised,) = seen.promised
    assert (promised.job_id, promised.user, promised.nodes) == ("1", "ada", ("n1",))
    assert promised.time_s == NOW + seen.decision(RECORD).delay_s
    stopped = view(ended=[taken()])
    stopped.settle_on(RECORD)
    assert stopped.promised == []


@pytest.mark.parametrize(
    "seen",
    [
        view(latest=4),  # its manager has started it again
        view(replace(JOB, state=JobState.HELD, reason="JobHeldUser")),  # a person holds it
        view(replace(JOB, state=JobState.PENDING)),  # its manager has put it back
    ],
    ids=["runs already", "held", "waits"],
)
def test_a_retry_that_is_not_ours_takes_no_room_in_a_budget(seen: SiteView) -> None:
    seen.settle_on(RECORD)
    assert seen.decision(RECORD).retries
    assert seen.promised == []


def test_what_would_be_decided_is_found_once_until_another_is_promised_something() -> None:
    seen = view()
    wish = seen.decision(RECORD)
    assert seen.decision(RECORD) is wish
    assert seen.seeing(Chain()).decision(RECORD) is not wish
    most = RetryRules().cluster_floor_per_hour
    seen.promised.extend(Spent(NOW, f"j{number}", "ada", ("n1",)) for number in range(most))
    assert seen.decision(RECORD).delay_s > wish.delay_s


def test_a_failure_that_waits_for_somebody_s_answer_is_charged_with_nothing() -> None:
    seen = view()
    handlers = PlaybookHandlers(own_playbook(), seen, NOW)
    assert not handlers.is_stale(RECORD)
    assert handlers.levels(RECORD)
    assert handlers.rule(RECORD, Component.JOB, Chain()).kind is AnswerKind.DECLINED
    assert seen.promised == []
    assert handlers.rule(RECORD, Component.SCHEDULER, Chain()).kind is AnswerKind.HANDLED
    assert [spent.job_id for spent in seen.promised] == ["1"]


def test_what_is_not_judged_or_not_its_latest_failure_is_not_decided() -> None:
    with pytest.raises(ValueError, match="not judged"):
        view(failure=replace(FAILURE, verdict=None)).decision(RECORD)
    assert view().recovery(replace(RECORD, id="other")) is None
    assert view(failure=None).recovery(RECORD) is None
    assert view().recovery(RECORD) is not None
    judged = [view(), view(failure=replace(FAILURE, verdict=None)), view(failure=None)]
    assert [seen.is_of_attempt(RECORD) for seen in judged] == [True, False, False]


@pytest.mark.parametrize(("number", "found"), [(3, RECORD.id), (0, RECORD.id), (2, ""), (4, "")])
def test_the_failure_of_a_start_is_that_of_this_start(number: int, found: str) -> None:
    assert view().failure_of(attempt_id(number)) == found
    assert view().failure_of(attempt_id(3, "2")) == ""


@pytest.mark.parametrize("running", [False, True])
def test_a_failure_is_of_whose_start_failed_though_the_job_seen_last_is_another_users(running: bool) -> None:
    """Accounting tells of the start while the controller is silent; the id was the other user's before."""
    others = replace(JOB, user="bob")
    known = Known(jobs={"1": others}, running={FAILED.id: FAILED} if running else {})
    cases = {} if running else {"1": Case(others, 3, failure=FAILURE)}
    site = SiteView(ControllerState("c", known, cases), own_playbook(), RetryRules(), NOW)
    assert site.owner_of(RECORD) == "ada"
    assert site.owner_of(replace(RECORD, id="x", incarnation=0)) == "bob"
    assert site.owner_of(replace(RECORD, id="c/1#2:job.failed", incarnation=2)) == "bob"
