"""The controller's steps, on the smallest clusters that show each fact."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from perdure.coordination.messages import Answered, ExceptionRaised, HandlerEnlisted
from perdure.coordination.record import (
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
    about,
)
from perdure.coordination.ruling import Registration, handled
from perdure.model.actions import (
    AnyAction,
    Cancel,
    Comment,
    Drain,
    Exclude,
    Hold,
    OutcomeStatus,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.events import ActionEnded, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, RetryPreference
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import REMEMBERED_S, Observation
from perdure.retry.decide import DecisionKind
from perdure.retry.rules import RetryRules
from perdure.service.core.case import ControllerState, Failure
from perdure.service.core.controller import step, unfinished
from perdure.service.core.messages import (
    Act,
    ChainInput,
    Effect,
    Ended,
    Event,
    Journalled,
    Judge,
    Judged,
    Looked,
    Noted,
    Ordered,
    Study,
)
from perdure.service.core.requeue_loop import PutBack, counted
from perdure.service.core.settings import ControllerSettings
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

SETTINGS = ControllerSettings()
NODES = tuple(Node(f"n{i}", NodeState.UP, gpus=8) for i in range(1, 5))
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=8)
ONE, TWO = AttemptId("c", "1", 1), AttemptId("c", "1", 2)
FAILED = Attempt(ONE, AttemptState.FAILED, ("n2",), 10.0, 3610.0, exit_code=1, gpus=8, user="ada")
TRANSIENT = Verdict(Label.TRANSIENT, 0.9, "net", "connection lost", infrastructure=True, fingerprint="f")
DETERMINISTIC = Verdict(Label.DETERMINISTIC, 0.03, "shape", "shapes do not match", fingerprint="d")


class Run:
    """A controller being fed, with all effects so far."""

    def __init__(self, settings: ControllerSettings = SETTINGS) -> None:
        self.state, self.effects, self.settings = ControllerState("c"), [], settings

    def feed(self, event: Event) -> list[Effect]:
        self.state, effects = step(self.state, event, self.settings)
        self.effects += effects
        return effects

    def look(
        self,
        now: float,
        jobs: list[Any] | tuple[()] = (),
        attempts: Sequence[Attempt] = (),
        nodes: tuple[Node, ...] = NODES,
    ) -> list[Effect]:
        return self.feed(Looked(Observation("c", now, tuple(jobs), tuple(attempts), tuple(nodes))))

    def judge(self, verdict: Verdict, attempt: AttemptId = ONE, now: float = 4000.0) -> list[Effect]:
        return self.feed(Judged(now, attempt, verdict))

    def acts(self) -> list[Any]:
        return [effect.action for effect in self.effects if isinstance(effect, Act)]

    @property
    def noted(self) -> Failure:
        return [effect.failure for effect in self.effects if isinstance(effect, Noted)][-1]


def after_failure(job: Job = JOB, attempt: Attempt = FAILED, settings: ControllerSettings = SETTINGS) -> Run:
    run = Run(settings)
    run.look(3611.0, [job], [attempt])
    return run


def test_a_failure_is_judged_before_anything_is_done() -> None:
    run = after_failure()
    assert [type(e) for e in run.effects[-2:]] == [Noted, Judge]
    assert run.acts() == []
    assert unfinished(run.state) == [Judge(FAILED)]


@pytest.mark.parametrize(("job_id", "goes_on"), [("1", True), ("2", False)])
def test_a_start_that_was_forgotten_is_passed_by_where_its_own_job_has_started_since(
    job_id: str, goes_on: bool
) -> None:
    run, waits = Run(), replace(JOB, state=JobState.PENDING)
    runs = Attempt(AttemptId("c", job_id, 9), AttemptState.RUNNING, ("n1",), 3000.0, user="ada")
    jobs = [waits, *([replace(JOB, job_id="2", state=JobState.RUNNING)] if job_id == "2" else [])]
    run.look(3600.0, jobs, [runs])
    run.look(3611.0, jobs, [replace(FAILED, state=AttemptState.LOST), runs])
    assert any(isinstance(effect, Judge) for effect in run.effects) is not goes_on


def test_a_transient_failure_is_requeued_once_off_its_node() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    run.judge(TRANSIENT)  # told twice
    assert run.acts() == [Requeue(ONE, ("n2",), 10.0, user="ada")]
    assert run.noted.record.owner is Component.SCHEDULER
    assert unfinished(run.state) == []


def test_a_deterministic_failure_ends_in_a_stop_and_no_action() -> None:
    run = after_failure()
    (noted,) = [e for e in run.judge(DETERMINISTIC) if isinstance(e, Noted)]
    assert run.acts() == []
    assert noted.failure.record.outcome is ExceptionOutcome.STOPPED
    assert noted.failure.record.type == "job.shape"


@pytest.mark.parametrize(("restarts", "retried"), [(1, True), (2, False), (3, False)])
def test_each_start_that_the_manager_alone_has_counted_is_a_try(restarts: int, retried: bool) -> None:
    """The failure at hand is not one of those before it: two retries for causes of its own, and no third."""
    run = after_failure(replace(JOB, restarts=restarts))
    run.judge(replace(TRANSIENT, infrastructure=False))
    assert [type(action) for action in run.acts()] == ([Requeue] if retried else [])


@pytest.mark.parametrize(
    ("state", "probed"),
    [(AttemptState.FAILED, False), (AttemptState.PREEMPTED, True), (AttemptState.COMPLETED, True)],
)
def test_a_failure_from_before_we_came_was_a_try_though_nobody_judged_it(state: AttemptState, probed: bool) -> None:
    run = Run(replace(SETTINGS, ignore_before_s=4000.0))
    run.look(4100.0, [replace(JOB, state=JobState.PENDING)], [replace(FAILED, state=state)])
    assert not any(isinstance(effect, Judge) for effect in run.effects)
    run.look(6000.0, [JOB], [replace(FAILED, id=TWO, start_s=4200.0, end_s=5900.0)])
    run.judge(Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows"), TWO, 6001.0)
    assert [type(action) for action in run.acts()] == ([Requeue] if probed else [])


REQUEUED = replace(JOB, state=JobState.PENDING, restarts=1)
NODE_FAIL = replace(FAILED, state=AttemptState.NODE_FAIL, exit_code=0, failed_nodes=("n2",))


def test_the_resource_managers_own_requeue_is_never_doubled() -> None:
    run = after_failure(REQUEUED, NODE_FAIL)
    run.judge(TRANSIENT)
    assert run.acts() == [Exclude(ONE, ("n2",), user="ada")]
    assert run.noted.record.owner is Component.RESOURCE_MANAGER
    assert run.noted.record.type == "node.failure"


def test_a_requeue_seen_only_after_the_failure_counts_too() -> None:
    run = after_failure()
    run.look(3650.0, [REQUEUED], [FAILED])
    run.judge(TRANSIENT)
    assert not any(isinstance(action, Requeue) for action in run.acts())


def test_a_newer_attempt_leaves_nothing_to_do() -> None:
    run = after_failure()
    newer = replace(FAILED, id=replace(ONE, incarnation=2), state=AttemptState.RUNNING, end_s=None)
    run.look(3700.0, [replace(JOB, state=JobState.RUNNING)], [FAILED, newer])
    run.judge(TRANSIENT)
    assert run.acts() == []
    assert run.noted.record.owner is Component.RESOURCE_MANAGER
    assert run.noted.record.owning.note == "connection lost: a newer attempt runs already"


def test_a_job_that_started_before_it_was_kept_off_a_node_is_told_so() -> None:
    run = after_failure(REQUEUED, NODE_FAIL)
    run.judge(TRANSIENT)
    (kept_off,) = run.acts()
    run.feed(ends("done", kept_off))
    assert run.state.cases["1"].failure.decision.exclude == ("n2",)
    run.feed(ends("superseded", kept_off))
    decision = run.noted.decision
    assert decision.exclude == ()
    assert decision.told.endswith("; it had started again before that, so it was not kept off n2")


def test_a_blind_requeue_of_what_can_only_fail_is_held() -> None:
    run = after_failure(REQUEUED)
    run.judge(DETERMINISTIC)
    assert run.acts() == [Hold(ONE, user="ada")]


@pytest.mark.parametrize("wish", [{"wish": RetryPreference.NEVER}, {"may_requeue": False}])
def test_a_job_whose_owner_wants_no_help_is_left_alone(wish: Mapping[str, Any]) -> None:
    for job in (replace(JOB, **wish), replace(REQUEUED, **wish)):
        run = after_failure(job)
        run.judge(TRANSIENT)
        assert run.acts() == []


@pytest.mark.parametrize("reason", ["launch_failed_requeued_held", "launch failed requeued held", "JobHoldMaxRequeue"])
def test_a_job_that_its_manager_gave_up_is_released_elsewhere(reason: str) -> None:
    held = replace(JOB, state=JobState.HELD, reason=reason)
    run = after_failure(held)
    run.judge(TRANSIENT)
    assert run.acts() == [Exclude(ONE, ("n2",), user="ada"), Release(ONE, user="ada")]


def test_a_job_that_a_person_holds_stays_held() -> None:
    run = after_failure(replace(JOB, state=JobState.HELD, reason="JobHeldUser"))
    run.judge(TRANSIENT)
    assert run.acts() == []
    assert run.noted.record.owner is Component.JOB


def test_success_after_a_retry_closes_the_case() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    good = replace(FAILED, id=replace(ONE, incarnation=2), state=AttemptState.COMPLETED, exit_code=0)
    run.look(5000.0, [replace(JOB, state=JobState.COMPLETED)], [good])
    assert run.noted.record.outcome is ExceptionOutcome.RECOVERED
    assert run.state.cases == {}


def test_so_does_that_of_a_retry_that_was_seen_to_run() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    again = replace(FAILED, id=TWO, state=AttemptState.RUNNING, start_s=4100.0, end_s=None, exit_code=0)
    run.look(4200.0, [replace(JOB, state=JobState.RUNNING)], [again])
    good = replace(again, state=AttemptState.COMPLETED, end_s=4990.0)
    run.look(5000.0, [replace(JOB, state=JobState.COMPLETED)], [good])
    assert run.noted.record.outcome is ExceptionOutcome.RECOVERED
    assert run.state.cases == {}


@pytest.mark.parametrize(
    ("number", "state", "later_s", "requeued"),
    [
        (1, AttemptState.FAILED, 5.0, False),
        (0, AttemptState.FAILED, 5.0, False),  # raised before the start was seen
        (1, AttemptState.FAILED, 40_000.0, True),  # that was another failure
        (1, AttemptState.NODE_FAIL, 5.0, True),  # the owner spoke of the program
    ],
)
def test_who_takes_what_led_to_a_failure_may_forbid_its_requeue(
    number: int, state: AttemptState, later_s: float, requeued: bool
) -> None:
    run = Run()
    run.look(20.0, [replace(JOB, state=JobState.RUNNING)], [replace(FAILED, state=AttemptState.RUNNING, end_s=None)])
    lease = Registration("trainer", Component.JOB, ("app",), "ada", 1e9)
    nan = ExceptionRecord("nan", "app.nan", 0, Scope.LOCAL, about(ONE), 30.0, incarnation=number)
    mine = handled("rolled back", forbids=("requeue",))
    run.feed(ChainInput(30.0, (HandlerEnlisted(lease), ExceptionRaised(nan), Answered("nan", "trainer", mine))))
    run.look(30.0 + later_s, [JOB], [replace(FAILED, state=state, end_s=30.0 + later_s)])
    run.judge(TRANSIENT, now=31.0 + later_s)
    assert [type(action) for action in run.acts()] == ([Requeue] if requeued else [])
    assert ("trainer took app.nan and forbids a requeue: rolled back" in run.noted.decision.reason) is not requeued


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.PENDING])
def test_a_node_that_an_earlier_retry_was_kept_off_may_be_had_again_where_no_other_is_left(state: JobState) -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    two = replace(FAILED, id=TWO, nodes=("n1",))
    kept_off = replace(JOB, state=state, excluded=("n2", "n3", "n4"))  # the last two by its owner
    run.look(5000.0, [kept_off], [two])
    run.judge(TRANSIENT, TWO, 5001.0)
    put_back, waits = Requeue(TWO, (), 20.0, lift=("n2",), user="ada"), Exclude(TWO, (), lift=("n2",), user="ada")
    assert run.acts()[-1] == (put_back if state is JobState.FAILED else waits)


def put_back(
    run: Run, times: int, waits: Job | None = None, state: AttemptState = AttemptState.REQUEUED, **fields: Any
) -> list[Any]:
    """The job ends so many times, after a minute each, and is put back by others."""
    waits = waits or replace(JOB, state=JobState.PENDING)
    for start in range(times):
        began_s = 100.0 * start
        ended = replace(
            FAILED,
            id=AttemptId("c", "1", 100 * start + 1),
            state=state,
            start_s=began_s,
            end_s=began_s + 60.0,
            **fields,
        )
        run.look(began_s + 61.0, [waits], [ended])
    return [record for record in run.state.chain.ended.values() if record.type == "job.requeue-loop"]


def test_a_person_is_told_of_a_job_that_others_put_back_more_often_than_perdure_would() -> None:
    run = Run()
    limit = SETTINGS.retry.max_infrastructure_retries
    assert put_back(run, limit, exit_code=75) == []
    (loop,) = put_back(Run(), limit + 3, exit_code=75)
    assert (loop.state, loop.needs_a_person) == (ExceptionState.ESCALATED, True)
    assert "put back 9 times" in loop.note
    assert "after it ended with exit code 75" in loop.note


@pytest.mark.parametrize("state", [AttemptState.COMPLETED, AttemptState.CANCELLED])
def test_a_job_that_somebody_runs_anew_after_its_end_is_no_loop(state: AttemptState) -> None:
    assert put_back(Run(), 20, state=state) == []


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(JobState.COMPLETED, ExceptionOutcome.RECOVERED), (JobState.CANCELLED, ExceptionOutcome.WITHDRAWN)],
)
def test_a_loop_is_over_with_its_job(state: JobState, outcome: ExceptionOutcome) -> None:
    run = Run()
    put_back(run, 9, exit_code=75)
    run.look(5000.0, [replace(JOB, state=state)])
    (loop,) = [record for record in run.state.chain.ended.values() if record.type == "job.requeue-loop"]
    assert (loop.outcome, loop.needs_a_person) == (outcome, False)


def test_what_puts_itself_back_near_its_walltime_is_no_loop() -> None:
    assert put_back(Run(), 20, replace(JOB, state=JobState.PENDING, walltime_s=100.0), exit_code=85) == []


def test_a_second_failure_remembers_the_first() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    two = replace(FAILED, id=replace(ONE, incarnation=2), nodes=("n3",))
    run.look(5000.0, [JOB], [two])
    run.judge(TRANSIENT, two.id, 5001.0)
    assert run.acts()[-1] == Requeue(two.id, ("n3",), 20.0, user="ada")  # the manager keeps n2 excluded
    (past,) = run.state.cases["1"].past
    assert (past.attempt, past.retried, past.p_transient) == (ONE, True, 0.9)
    assert run.noted.decision.p_transient < 0.9  # whatever the second verdict says


def test_the_story_of_a_failure_ends_where_its_job_fails_again() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    again = replace(FAILED, id=TWO, start_s=5000.0, end_s=5600.0)
    run.look(5700.0, [replace(JOB, restarts=1)], [FAILED, again])
    ended = {e.record.incarnation: e.record.standing for e in run.effects if isinstance(e, Noted)}
    assert ended == {1: "failed_again", 2: "raised"}
    run.judge(DETERMINISTIC, TWO, 5800.0)
    assert run.noted.record.outcome is ExceptionOutcome.STOPPED
    run.look(9999.0, [replace(JOB, restarts=2)], [replace(again, id=replace(TWO, incarnation=3), end_s=9990.0)])
    ended = {e.record.incarnation: e.record.standing for e in run.effects if isinstance(e, Noted)}
    assert ended == {1: "failed_again", 2: "stopped", 3: "raised"}  # what was chosen stays told


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("state", [state for state in AttemptState if state is not AttemptState.RUNNING])
def test_an_older_start_whose_end_is_told_late_changes_nothing_of_a_newer_one(state: object, judged: bool) -> None:
    """Accounting tells late, and in any order: whatever became of the first start, the second has failed."""
    run = after_failure(replace(JOB, restarts=1), replace(FAILED, id=TWO, start_s=3000.0))
    if judged:
        run.judge(TRANSIENT, TWO)
    case = run.state.cases["1"]
    run.look(4100.0, [case.job], [replace(FAILED, state=state, end_s=2900.0)])
    assert run.state.cases["1"].failure == case.failure
    assert run.state.chain.find(case.failure.record.id) == (case.failure.record if judged else None)


def test_an_id_that_was_given_to_another_users_job_begins_a_new_story() -> None:
    """A slurmctld that lost its state counts its ids from where it last saved it."""
    run = after_failure()
    run.judge(TRANSIENT)
    theirs = replace(FAILED, id=TWO, user="bob", start_s=8000.0, end_s=8900.0)
    run.look(9000.0, [replace(JOB, user="bob", name="eval")], [theirs])
    case = run.state.cases["1"]
    assert (case.job.user, case.past) == ("bob", ())


def test_a_failure_that_is_told_of_again_is_not_decided_again() -> None:
    """Looks forget whom they told of long ago, and a clock that was wrong for a while ages all of them at once."""
    run = after_failure()
    run.judge(TRANSIENT)
    two = replace(FAILED, id=replace(ONE, incarnation=2), start_s=4100.0, end_s=4200.0)
    late_s, later_s = REMEMBERED_S + 4000.0, 2 * REMEMBERED_S + 8000.0
    run.look(late_s, [JOB])
    run.look(late_s + 1.0, [JOB], [FAILED])  # the latest failure
    run.look(late_s + 2.0, [JOB], [FAILED, two])
    run.judge(TRANSIENT, two.id, late_s + 3.0)
    known = run.noted
    run.look(later_s, [JOB])
    run.look(later_s + 1.0, [JOB], [FAILED, two])  # one of the past, and the latest
    assert [effect.attempt.id for effect in run.effects if isinstance(effect, Judge)] == [ONE, two.id]
    assert run.noted == known


def test_a_verdict_that_comes_too_late_changes_nothing() -> None:
    run = after_failure()
    two = replace(FAILED, id=replace(ONE, incarnation=2))
    run.look(5000.0, [JOB], [two])
    run.judge(TRANSIENT, ONE)
    assert run.acts() == []


@pytest.mark.parametrize("status", ["refused", "expired"])
def test_an_action_that_came_to_nothing_is_handed_to_a_person(status: str) -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    (requeue,) = run.acts()
    run.feed(Ended((ActionEnded(4100.0, requeue.key, ONE, status, "Invalid job id specified"),)))
    assert run.noted.record.state is ExceptionState.ESCALATED
    assert run.noted.record.owner is Component.SCHEDULER  # still one owner


def test_a_release_that_came_to_nothing_is_handed_to_a_person() -> None:
    run = after_failure(replace(JOB, state=JobState.HELD, reason="launch_failed_requeued_held"))
    run.judge(TRANSIENT)
    (release,) = (action for action in run.acts() if isinstance(action, Release))
    run.feed(Ended((ActionEnded(4100.0, release.key, ONE, "refused", "it is held: scontrol release 1"),)))
    assert run.noted.record.state is ExceptionState.ESCALATED
    assert "scontrol release 1" in run.noted.record.verdicts[-1].note


# -- what jobs share

PENDING = replace(JOB, state=JobState.PENDING)
ZERO = AttemptId("c", "1", 0)


def shared(kind: str, name: str, now: float = 5.0, resource: str = "pfs") -> ChainInput:
    subject = Subject("c", resource=resource)
    record = ExceptionRecord(name, kind, 0, Scope.GLOBAL, subject, now, detected_by="operator:root")
    return ChainInput(now, (ExceptionRaised(record),))


def while_down() -> Run:
    run = Run()
    run.look(4.0)
    run.feed(shared("storage.down", "down"))
    return run


def ends(status: str, *actions: Any) -> Ended:
    return Ended(tuple(ActionEnded(9.0, a.key, a.attempt, status, "") for a in actions))


def test_a_job_that_comes_while_what_it_needs_is_down_is_held_once() -> None:
    run = while_down()
    run.look(6.0, [PENDING])
    (hold,) = run.acts()
    assert hold.attempt == ZERO
    (owner,) = [r for r in run.state.chain.ended.values() if r.cause]
    assert (owner.owner, owner.verdicts[0].action_keys) == (Component.SCHEDULER, (hold.key,))
    run.look(7.0, [PENDING])
    run.look(8.0, [replace(PENDING, state=JobState.HELD)])
    assert run.acts() == [hold]


@pytest.mark.parametrize(
    ("status", "is_over"), [("done", True), ("superseded", True), ("refused", False), ("expired", False)]
)
def test_a_hold_is_over_once_its_release_was_carried_out(status: str, is_over: bool) -> None:
    run = while_down()
    run.look(6.0, [PENDING])
    (hold,) = run.acts()
    run.feed(ends("done", hold))
    run.feed(shared("storage.restored", "up"))
    (_, release) = run.acts()
    run.feed(ends(status, release))
    outcomes = [r.outcome for r in run.state.chain.ended.values() if r.type != "storage.restored"]
    assert outcomes == [
        ExceptionOutcome.RECOVERED,
        ExceptionOutcome.RECOVERED if is_over else ExceptionOutcome.CLEARING,
    ]
    run.feed(shared("storage.restored", "again", 100.0))
    assert len(run.acts()) == (2 if is_over else 3)


@pytest.mark.parametrize("status", ["superseded", "refused", "expired", "shadow"])
def test_a_hold_that_came_to_nothing_lets_go_of_no_other(status: str) -> None:
    run = Run()
    run.look(4.0, [PENDING])
    run.feed(shared("storage.down", "down"))
    run.feed(shared("storage.down", "too", resource="net"))
    first, second = run.acts()
    run.feed(ends("done", first))
    run.feed(ends(status, second))
    assert run.state.chain.find("down").holds == (ZERO,)
    assert run.state.chain.find("too").holds == ()


def test_what_fails_while_what_it_needs_is_down_is_put_back_late_enough_to_be_held() -> None:
    run = while_down()
    run.look(3611.0, [JOB], [FAILED])
    run.judge(TRANSIENT)
    assert run.acts() == [Requeue(ONE, ("n2",), 120.0, user="ada")]
    assert "waits until pfs works again" in run.noted.decision.reason
    run.look(4010.0, [REQUEUED], [FAILED])
    assert [type(action) for action in run.acts()] == [Requeue, Hold]
    assert run.acts()[-1].attempt == ONE


def test_a_job_that_its_manager_or_a_person_put_back_is_held_as_the_start_that_it_had() -> None:
    run = while_down()
    put_back = replace(FAILED, state=AttemptState.REQUEUED)
    run.look(3611.0, [REQUEUED], [put_back])
    assert [action.attempt for action in run.acts()] == [ONE]


def test_the_budget_holds_over_steps() -> None:
    settings = ControllerSettings(retry=RetryRules(max_infrastructure_retries=2, repeat_odds=1.0))
    run = Run(settings)
    for n in range(1, 5):
        attempt = replace(FAILED, id=replace(ONE, incarnation=n))
        run.look(3611.0 * n, [JOB], [attempt])
        run.judge(TRANSIENT, attempt.id, 3612.0 * n)
    assert len(run.acts()) == 2
    assert run.noted.decision.kind is DecisionKind.STOP


def test_a_failure_older_than_the_service_is_not_acted_on() -> None:
    run = Run(replace(SETTINGS, ignore_before_s=3700.0))
    run.look(3800.0, [JOB], [FAILED])
    assert run.state.cases == {}
    assert not any(isinstance(effect, Judge) for effect in run.effects)


def test_memory_has_a_bound() -> None:
    run = Run(replace(SETTINGS, max_cases=10))
    for n in range(50):
        job = replace(JOB, job_id=str(n))
        attempt = replace(FAILED, id=AttemptId("c", str(n), 1))
        run.look(4000.0 + n, [job], [attempt])
        run.judge(DETERMINISTIC, attempt.id, 4000.5 + n)
    assert sorted(map(int, run.state.cases)) == list(range(40, 50))


def test_what_awaits_its_verdict_is_let_go_last() -> None:
    run = Run(replace(SETTINGS, max_cases=10))
    run.look(3611.0, [JOB], [FAILED])  # the oldest of all, and not judged yet
    for n in range(2, 30):
        attempt = replace(FAILED, id=AttemptId("c", str(n), 1))
        run.look(4000.0 + n, [replace(JOB, job_id=str(n))], [attempt])
        run.judge(DETERMINISTIC, attempt.id, 4000.5 + n)
    assert sorted(map(int, run.state.cases)) == [1, *range(21, 30)]


def test_a_job_s_record_bears_a_line_on_the_decision_where_the_service_has_a_mark() -> None:
    for verdict, kind in ((TRANSIENT, Requeue), (DETERMINISTIC, Comment)):
        run = after_failure(settings=replace(SETTINGS, mark="a1b2c3"))
        run.judge(verdict)
        (action,) = run.acts()
        assert isinstance(action, kind)
        assert action.comment.endswith("perdure why 1 #a1b2c3")
        without = after_failure()
        without.judge(verdict)
        assert [act.comment for act in without.acts()] == ([""] if kind is Requeue else [])


def test_a_persons_order_becomes_an_action_in_their_name() -> None:
    run = Run()
    run.feed(Ordered(1.0, Hold(ONE), "bob", "looking into it"))
    (act,) = [e for e in run.effects if isinstance(e, Act)]
    assert (act.by, act.action, act.expires_s) == ("bob", Hold(ONE), 1.0 + SETTINGS.action_ttl_s)


@pytest.mark.parametrize(
    ("action", "undo"),
    [
        (Requeue(ONE), Cancel(ONE)),
        (Hold(ONE), Release(ONE)),
        (Release(ONE), Hold(ONE)),
        (Drain("n1", "hot", "1"), Undrain("n1", "undo of 1")),
        (Exclude(ONE, ("n1",)), None),
        (Cancel(ONE), None),
    ],
)
def test_what_takes_an_action_back(action: AnyAction, undo: AnyAction | None) -> None:
    assert action.undo() == undo


@pytest.mark.parametrize(("detail", "charged"), [("outside the scope: user ada is left alone", 0), ("shadow mode", 1)])
def test_what_lies_outside_the_scope_takes_nobody_elses_retries(detail: str, charged: int) -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    (requeue,) = [action for action in run.acts() if isinstance(action, Requeue)]
    assert len(run.state.fleet.spent) == 1
    run.feed(Ended((ActionEnded(4001.0, requeue.key, ONE, "shadow", detail),)))
    assert len(run.state.fleet.spent) == charged


def test_the_end_of_a_job_whose_id_another_has_now_is_nobodys_failure() -> None:
    """It ran when the state was lost, and is seen to be gone once the id is another's."""
    run = Run()
    run.look(100.0, [JOB], [])
    run.look(9000.0, [replace(JOB, user="bob", submit_s=8900.0)], [replace(FAILED, user="alice", end_s=8990.0)])
    assert "1" not in run.state.cases
    assert not [effect for effect in run.effects if isinstance(effect, Judge)]


def test_a_retry_that_the_resource_manager_forgot_is_handed_to_a_person() -> None:
    """slurmctld lost its state while the job waited for its retry."""
    run = after_failure()
    run.judge(TRANSIENT)
    waits = replace(JOB, state=JobState.PENDING, restarts=1, reason="BeginTime")
    run.look(3700.0, [waits], [FAILED])
    run.look(3800.0, [], [FAILED])
    told = [e.event for e in run.effects if isinstance(e, Journalled) and isinstance(e.event, JobChanged)][-1]
    assert "does not know it any more: if it is still wanted, submit it again" in told.job.reason
    assert run.noted.record.state is ExceptionState.ESCALATED
    assert "submit it again" in run.noted.record.verdicts[-1].note


def test_a_retry_that_its_owner_cancelled_is_handed_to_nobody() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    run.look(3700.0, [replace(JOB, state=JobState.PENDING, restarts=1)], [FAILED])
    run.look(3800.0, [replace(JOB, state=JobState.CANCELLED, restarts=1)], [FAILED])
    assert run.noted.record.outcome is ExceptionOutcome.WITHDRAWN
    run.look(4800.0, [], [FAILED])
    assert run.noted.record.state is ExceptionState.HANDLED
    assert run.noted.record.outcome is ExceptionOutcome.WITHDRAWN


def test_a_job_that_slurm_holds_after_a_node_failure_is_told_to_the_operator() -> None:
    """It holds what was suspended when its node went down, in the words of an operator's hold."""
    held = replace(JOB, state=JobState.HELD, restarts=1, reason="JobHeldAdmin")
    run = after_failure(held, NODE_FAIL)
    run.judge(TRANSIENT)
    assert run.acts() == []
    assert run.noted.record.state is ExceptionState.ESCALATED
    assert "scontrol release 1" in run.noted.record.verdicts[-1].note
    assert "a person holds the job" not in str(run.noted.record.verdicts)


def test_a_job_that_the_sites_rule_holds_is_not_said_to_be_held_by_a_person() -> None:
    run = after_failure(replace(JOB, state=JobState.HELD, restarts=1, reason="SpecialExit"), FAILED)
    run.judge(TRANSIENT)
    assert run.acts() == []
    assert "the site's rule for its exit code" in run.noted.record.verdicts[-1].note


@pytest.mark.parametrize("ends", [((0, 9), (0, 11)), ((75, 0), (1, 0))])
def test_ends_by_other_codes_and_signals_are_no_loop(ends: tuple[tuple[int, int], ...]) -> None:
    known = {}
    for start in range(4):
        exit_code, signal = ends[start % 2]
        known = counted(known, None, replace(FAILED, exit_code=exit_code, signal=signal), 10)
    assert known[FAILED.id.job_id].times == 1


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (AttemptState.NODE_FAIL, "node.failure"),
        (AttemptState.BOOT_FAIL, "node.failure"),
        (AttemptState.TIMEOUT, "job.net"),
    ],
)
def test_a_node_that_did_not_come_up_is_a_fault_of_the_node(state: AttemptState, kind: str) -> None:
    run = after_failure(attempt=replace(FAILED, state=state))
    run.judge(TRANSIENT)
    assert run.noted.record.type == kind


RUNS = replace(FAILED, state=AttemptState.RUNNING, end_s=None, exit_code=0)


def after_state_was_lost(jobs: list[Any], attempts: Sequence[Attempt] = ()) -> Run:
    """slurmctld was killed right after a start, and came back with an older state: it shows `jobs` and `attempts`."""
    run = Run()
    run.look(100.0, [replace(JOB, state=JobState.RUNNING)], [RUNS])
    for now in (110.0, 150.0):
        run.look(now, jobs, attempts)
    for effect in [each for each in run.effects if isinstance(each, Judge)]:
        run.judge(judge(b"step 1\n", effect.attempt), now=151.0)
    return run


def test_a_job_that_was_forgotten_while_it_ran_is_its_owners_to_submit_again() -> None:
    run = after_state_was_lost([])
    assert run.acts() == []
    assert run.state.fleet.troubles == {}  # no node did anything
    assert run.noted.record.outcome is ExceptionOutcome.STOPPED
    note = run.noted.record.verdicts[-1].note
    assert "has forgotten that it ran" in note
    assert "Make sure that no process of it is left on n2, then submit it again" in note


def test_a_start_that_was_forgotten_is_left_to_the_manager_that_starts_the_job_anew() -> None:
    run = after_state_was_lost([replace(JOB, state=JobState.PENDING)])
    assert run.acts() == []
    assert run.state.fleet.troubles == {}
    assert run.noted.record.owner is Component.RESOURCE_MANAGER
    assert "the node did nothing wrong" in run.noted.record.verdicts[-1].note


@pytest.mark.parametrize(
    ("state", "attempts"),
    [
        (JobState.RUNNING, [replace(RUNS, id=TWO, start_s=105.0)]),
        (JobState.COMPLETED, [replace(RUNS, id=TWO, start_s=105.0, state=AttemptState.COMPLETED, end_s=109.0)]),
        (JobState.CANCELLED, []),
    ],
)
def test_a_start_that_was_forgotten_is_not_judged_once_its_job_has_gone_on(
    state: JobState, attempts: list[Attempt]
) -> None:
    run = after_state_was_lost([replace(JOB, state=state)], attempts)
    assert not [effect for effect in run.effects if isinstance(effect, Judge)]
    assert run.acts() == []
    (noted,) = [effect for effect in run.effects if isinstance(effect, Noted)]
    assert "the job has gone on since" in noted.record.verdicts[-1].note


def test_a_node_that_lost_what_the_others_have_is_avoided_and_no_user_is_at_fault() -> None:
    missing = judge(b"FileNotFoundError: [Errno 2] No such file or directory: '/datasets/a'\n", FAILED)
    run = Run()
    passed = replace(FAILED, id=AttemptId("c", "9", 1), state=AttemptState.COMPLETED, nodes=("n3",), exit_code=0)
    run.look(3000.0, [replace(JOB, job_id="9", state=JobState.COMPLETED)], [passed])
    run.look(3611.0, [JOB], [FAILED])
    effects = run.judge(missing)
    assert run.noted.decision.kind is DecisionKind.PROBE
    assert run.noted.decision.exclude == ("n2",)
    (journalled,) = [each.event for each in effects if isinstance(each, Journalled) and isinstance(each.event, Judged)]
    assert journalled.verdict.label is Label.UNSURE  # blame counts what is not deterministic against the node


def test_jobs_of_three_users_that_lack_something_on_one_node_alone() -> None:
    missing = judge(b"FileNotFoundError: [Errno 2] No such file or directory: '/datasets/a'\n", FAILED)
    run = Run()
    kinds = []
    for number, user in enumerate(["ada", "ben", "cho"], 1):
        job = replace(JOB, job_id=str(number), user=user)
        attempt = replace(FAILED, id=AttemptId("c", str(number), 1), user=user)
        good = replace(
            attempt, id=AttemptId("c", f"9{number}", 1), state=AttemptState.COMPLETED, nodes=("n3",), user="eli"
        )
        run.look(3611.0 + number * 10, [job, replace(job, job_id=f"9{number}", user="eli", name="b")], [attempt, good])
        run.judge(missing, attempt.id, 3615.0 + number * 10)
        kinds.append(run.noted.decision.kind)
    assert kinds == [DecisionKind.STOP, DecisionKind.STOP, DecisionKind.RETRY]


@pytest.mark.parametrize("by_person", [True, False])
def test_a_job_that_ended_with_a_node_which_a_person_set_down_says_so(by_person: bool) -> None:
    down = Node("n2", NodeState.DOWN, reason="replacing DIMM in slot B2", is_set_down=by_person)
    lost = replace(FAILED, state=AttemptState.NODE_FAIL, exit_code=0, failed_nodes=("n2",))
    run = Run()
    run.look(3611.0, [JOB], [lost], nodes=(*NODES[:1], down, *NODES[2:]))
    run.judge(judge(b"step 1\n", lost))
    said = run.noted.verdict.summary
    assert (said == "a person set n2 down under the job: replacing DIMM in slot B2") is by_person
    assert run.noted.decision.retries


def test_a_start_of_another_job_overtakes_no_failure() -> None:
    other = replace(JOB, job_id="2", state=JobState.RUNNING)
    runs = replace(FAILED, id=AttemptId("c", "2", 9), state=AttemptState.RUNNING, end_s=None)
    run = Run()
    run.look(3600.0, [other], [runs])
    run.look(3611.0, [JOB, other], [FAILED, runs])
    run.judge(TRANSIENT)
    assert run.acts() == [Requeue(ONE, ("n2",), 10.0, user="ada")]
    assert run.state.cases["1"].latest == 1


def test_where_an_id_is_given_to_another_job_the_cases_of_all_others_stay() -> None:
    other, failed = replace(JOB, job_id="2"), replace(FAILED, id=AttemptId("c", "2", 1))
    run = Run()
    run.look(3611.0, [JOB, other], [FAILED, failed])
    anew = replace(JOB, state=JobState.PENDING, submit_s=4000.0, name="evaluate", user="bob")
    run.look(4010.0, [anew, other], [FAILED, failed])
    assert set(run.state.cases) == {"2"}


def test_what_was_judged_is_not_judged_again() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    assert [type(effect) for effect in run.judge(DETERMINISTIC)] == [Journalled]
    assert run.noted.verdict == TRANSIENT


def test_only_what_ended_well_is_studied() -> None:
    done = replace(FAILED, state=AttemptState.COMPLETED, exit_code=0)
    for state, job_state, studied in (
        (AttemptState.COMPLETED, JobState.COMPLETED, [Study(done, replace(JOB, state=JobState.COMPLETED))]),
        (AttemptState.CANCELLED, JobState.CANCELLED, []),
    ):
        run = Run()
        run.look(3611.0, [replace(JOB, state=job_state)], [replace(done, state=state)])
        assert [effect for effect in run.effects if isinstance(effect, Study)] == studied


@pytest.mark.parametrize("listed", [True, False])
def test_of_a_retry_that_runs_the_attempts_end_tells(listed: bool) -> None:
    """Its start was not seen yet; then it is cancelled, or gone."""
    run = after_failure()
    run.judge(TRANSIENT)
    run.look(3700.0, [replace(JOB, state=JobState.RUNNING, restarts=1)], [FAILED])
    run.look(3800.0, [replace(JOB, state=JobState.CANCELLED, restarts=1)] if listed else [], [FAILED])
    assert run.noted.record.outcome is ExceptionOutcome.OPEN
    assert run.noted.record.state is not ExceptionState.ESCALATED


def test_a_person_keeps_a_job_off_nodes_before_anything_is_decided() -> None:
    run, order = after_failure(), Exclude(ONE, ("n1",))
    end = ActionEnded(3650.0, order.key, ONE, OutcomeStatus.SUPERSEDED.value, "attempt 2 exists", "bob")
    assert run.feed(Ended((end,))) == [Journalled(end)]


def test_a_refusal_of_what_the_chain_has_forgotten_is_still_told_to_a_person() -> None:
    run = after_failure()
    run.judge(TRANSIENT)
    (requeue,) = run.acts()
    run.state = replace(run.state, chain=replace(run.state.chain, ended={}))
    run.feed(Ended((ActionEnded(4001.0, requeue.key, ONE, OutcomeStatus.REFUSED.value, "not allowed"),)))
    assert run.noted.record.state is ExceptionState.ESCALATED


def test_the_latest_start_of_a_failure_from_before_us_is_kept() -> None:
    settings = replace(SETTINGS, ignore_before_s=5000.0)
    run, waits = Run(settings), replace(JOB, state=JobState.PENDING, restarts=2)
    run.look(5001.0, [waits], [replace(FAILED, id=TWO), FAILED])
    assert (run.state.cases["1"].latest, run.state.cases["1"].before_us) == (2, 2)


def test_what_ran_for_half_of_its_walltime_begins_the_count_of_put_backs_again() -> None:
    known = {"1": PutBack(1, 0, 8), "2": PutBack(1, 0, 3)}
    assert counted(known, replace(JOB, walltime_s=2 * FAILED.elapsed_s), FAILED, 10) == {"2": PutBack(1, 0, 3)}
    assert counted(known, replace(JOB, walltime_s=3 * FAILED.elapsed_s), FAILED, 10)["1"].times == 9


def test_only_ends_in_a_row_that_are_alike_are_counted() -> None:
    other, known, times = replace(FAILED, exit_code=FAILED.exit_code + 1), dict[str, PutBack](), []
    for end in (FAILED, FAILED, other, other, FAILED):
        known = counted(known, JOB, end, 10)
        times.append(known["1"].times)
    assert times == [1, 2, 1, 2, 1]
