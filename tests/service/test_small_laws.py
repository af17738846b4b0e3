"""Small parts of the service that others are made of, each at its boundaries: at the limit, and one step beside it."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import errors
from perdure.coordination.record import Component
from perdure.errors import ClusterError, InputError, PerdureError, StateError, TooMany, Unauthenticated
from perdure.model.actions import Action, Exclude, Hold, Release, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, RetryPreference
from perdure.model.observation import MANAGER
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.core import orders
from perdure.service.core.call_budget import CallMeter
from perdure.service.core.case import Case, Failure
from perdure.service.core.recovery import recovery_of
from perdure.service.store.queries import totals
from perdure.service.web import problems
from perdure.service.web.metrics import FRESH_S
from perdure.service.workers import log_queue
from perdure.service.workers import threads as hands
from perdure.service.workers.commands import LATE_LOOKS, LATE_S, ServiceCommands
from perdure.service.workers.log_queue import FairQueue
from tests.copying import replace
from tests.service.web_world import site

ATTEMPT = Attempt(AttemptId("c", "7", 3), AttemptState.FAILED, ("n2",), 0.0, 10.0, user="ada")
JOB = Job("c", "7", "train", "ada", JobState.FAILED, 0.0, node_count=2)
RETRY = Decision(DecisionKind.RETRY, "away from n2", ("n2", "n3"), 30.0, 0)
STOP = replace(RETRY, kind=DecisionKind.STOP, exclude=(), reason="it would fail again")

# -- what a person may ask of a job

MAY = {
    "hold": {JobState.PENDING, JobState.HELD},
    "release": {JobState.PENDING, JobState.HELD},
    "cancel": {JobState.PENDING, JobState.HELD, JobState.RUNNING, JobState.SUSPENDED},
    "retry": {JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED},
}


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("kind", orders.JOB_KINDS)
def test_a_wish_about_a_job_makes_sense_in_some_states_alone(kind: str, state: JobState) -> None:
    job = replace(JOB, state=state)
    if state in MAY[kind]:
        action = orders.job_order(kind, job, ATTEMPT, ("n9",))
        assert action.kind == {"retry": "requeue"}.get(kind, kind)
        assert action.attempt == ATTEMPT.id
        assert getattr(action, "exclude", ()) == (("n9",) if kind == "retry" else ())
    else:
        with pytest.raises(ClusterError, match=f"cannot {kind} a job that is {state}"):
            orders.job_order(kind, job, ATTEMPT)


def test_what_never_ran_or_still_runs_is_not_retried_and_what_never_ran_is_meant_by_zero() -> None:
    for latest in (None, replace(ATTEMPT, state=AttemptState.RUNNING, end_s=None)):
        with pytest.raises(ClusterError):
            orders.job_order("retry", JOB, latest)
    waiting = replace(JOB, state=JobState.PENDING)
    assert orders.job_order("hold", waiting, None) == Hold(AttemptId("c", "7", 0))
    with pytest.raises(InputError, match="hold, release, cancel, retry"):
        orders.job_order("explode", JOB, ATTEMPT)


def test_a_wish_about_a_node() -> None:
    drain = orders.node_order("drain", "n1", " bad\nfan ", "e")
    assert (drain.kind, drain.node, drain.reason, drain.episode) == ("drain", "n1", "bad fan", "e")
    assert orders.node_order("drain", "n1", "\n", "e").reason == "drained by hand"
    undrain = orders.node_order("undrain", "n1", "", "e")
    assert (undrain.kind, undrain.node, undrain.episode) == ("undrain", "n1", "e")
    assert len(orders.one_line("x" * 600)) == orders.MAX_REASON
    with pytest.raises(InputError, match="drain, undrain"):
        orders.node_order("hold", "n1", "", "e")


# -- who recovers, by which actions


def recovered(
    decision: Decision = RETRY, attempt: Attempt = ATTEMPT, latest: int = 3, **job: Any
) -> tuple[Component, tuple[Action, ...], str, bool]:
    owner, ruling = recovery_of(Case(replace(JOB, **job), latest, failure=failure(attempt)), attempt, decision)
    return owner, ruling.actions, ruling.note, ruling.ends_job


def failure(attempt: Attempt) -> Failure:
    record: Any = SimpleNamespace(id="x")
    return Failure(attempt, record)


def test_a_failed_job_is_put_back_as_it_was_decided() -> None:
    requeue = Requeue(ATTEMPT.id, ("n2", "n3"), 30.0, 0)
    assert recovered() == (Component.SCHEDULER, (requeue,), "away from n2", False)
    smaller = recovered(replace(RETRY, node_count=1))
    assert smaller[1] == (replace(requeue, node_count=1),)
    assert recovered(STOP) == (Component.SCHEDULER, (), "it would fail again", True)


def test_of_a_job_with_a_newer_attempt_nothing_is_left_to_do() -> None:
    owner, actions, note, _ = recovered(latest=4)
    assert (owner, actions) == (Component.RESOURCE_MANAGER, ())
    assert "newer attempt" in note


def test_what_its_manager_put_back_is_kept_off_what_it_is_not_kept_off_yet() -> None:
    waiting: dict[str, Any] = {"state": JobState.PENDING}
    assert recovered(**waiting)[:2] == (Component.RESOURCE_MANAGER, (Exclude(ATTEMPT.id, ("n2", "n3"), 0),))
    assert recovered(**waiting, excluded=("n2",))[1] == (Exclude(ATTEMPT.id, ("n3",), 0),)
    assert recovered(**waiting, excluded=("n2", "n3"))[1] == ()
    fewer = replace(RETRY, node_count=1)
    assert recovered(fewer, **waiting, excluded=("n2", "n3"))[1] == (Exclude(ATTEMPT.id, (), 1),)
    assert recovered(replace(fewer, node_count=2), **waiting, excluded=("n2", "n3"))[1] == ()  # its size already


@pytest.mark.parametrize("more", [{"may_requeue": False}, {"wish": RetryPreference.NEVER}])
def test_what_its_manager_put_back_and_can_only_fail_is_held_unless_its_owner_wants_no_help(
    more: Mapping[str, Any],
) -> None:
    owner, actions, _, ends = recovered(STOP, state=JobState.PENDING)
    assert (owner, actions, ends) == (Component.SCHEDULER, (Hold(ATTEMPT.id),), True)
    assert recovered(STOP, state=JobState.PENDING, **more)[:2] == (Component.RESOURCE_MANAGER, ())


@pytest.mark.parametrize("reason", ["launch failed requeued held", "LAUNCH_FAILED_requeued_held", "JobHoldMaxRequeue"])
def test_what_its_manager_gave_up_is_released_where_a_retry_is_worth_it(reason: str) -> None:
    held: dict[str, Any] = {"state": JobState.HELD, "reason": reason}
    owner, actions, note, _ = recovered(**held)
    assert (owner, actions) == (Component.SCHEDULER, (Exclude(ATTEMPT.id, ("n2", "n3"), 0), Release(ATTEMPT.id)))
    assert note.startswith(f"to be released after {reason}: ")  # what comes of it is not known yet
    assert recovered(STOP, **held)[:2] == (Component.RESOURCE_MANAGER, ())


def test_what_a_person_holds_stays_so() -> None:
    assert recovered(state=JobState.HELD, reason="JobHeldUser")[:2] == (Component.JOB, ())
    admin: dict[str, Any] = {"state": JobState.HELD, "reason": "JobHeldAdmin"}
    assert recovered(**admin)[0] is Component.JOB
    owner, actions, note, _ = recovered(attempt=replace(ATTEMPT, state=AttemptState.NODE_FAIL), **admin)
    assert (owner, actions) == (Component.RESOURCE_MANAGER, ())
    assert note.endswith("scontrol release 7")


# -- each error has a status of its own


@pytest.mark.parametrize("kind", [k for k in vars(errors).values() if isinstance(k, type) and k is not PerdureError])
def test_no_error_of_its_own_is_told_as_a_fault_of_the_service(kind: type[Any]) -> None:
    of_commands = (errors.ConfigError, errors.NotDelivered)  # these reach no route
    if kind.__module__ == errors.__name__ and not issubclass(kind, of_commands):
        problem = problems.problem_of(kind("here", "it is wrong", "Do so"))
        assert problem.status != 500
        assert (problem.where, problem.detail, problem.fix) == ("here", "it is wrong", "Do so.")


@pytest.mark.parametrize(("status", "header"), [(401, "www-authenticate"), (429, "retry-after"), (503, "retry-after")])
def test_whoever_may_ask_again_is_told_how(status: int, header: str) -> None:
    told = {
        each: problems.answer(problems.Problem(title="x", status=each, detail="")).headers for each in (status, 404)
    }
    assert header in told[status]
    assert header not in told[404]
    assert problems.status_of(Unauthenticated("", "", "")) == 401
    assert problems.status_of(TooMany("", "", "")) == 429


# -- ready, or why not


def service(
    now: float = 1000.0,
    looked_s: float = 1000.0,
    wrote_s: float = 1000.0,
    unseen: tuple[()] = (),
    trouble: str = "",
    look_every_s: float = 30.0,
) -> tuple[Any, ...]:
    engine: Any = SimpleNamespace(
        looked_s=looked_s,
        journal=SimpleNamespace(store=SimpleNamespace(trouble=trouble, wrote_s=wrote_s)),
        state=SimpleNamespace(known=SimpleNamespace(unseen=dict.fromkeys(unseen, "no answer"))),
    )
    found = ServiceCommands.__new__(ServiceCommands)
    found._engine, found._look_every_s = engine, look_every_s
    return tuple(found._unready())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ()),
        ({"looked_s": None}, ("the cluster has not been looked at yet",)),
        ({"looked_s": 1000.0 - LATE_S - LATE_LOOKS * 30.0}, ()),
        ({"looked_s": 999.0 - LATE_S - LATE_LOOKS * 30.0}, ("the cluster was not looked at for long",)),
        ({"looked_s": 999.0 - LATE_S, "look_every_s": 0.0}, ("the cluster was not looked at for long",)),
        ({"unseen": [MANAGER]}, ("the resource manager does not answer",)),
        ({"unseen": ["accounting"]}, ()),
        ({"trouble": "full"}, ("the journal cannot be written",)),
        ({"wrote_s": 1000.0 - LATE_S}, ()),
        ({"wrote_s": 999.0 - LATE_S}, ("the journal cannot be written",)),
    ],
)
def test_what_makes_a_service_unready(
    monkeypatch: pytest.MonkeyPatch, more: Mapping[str, Any], why: tuple[str, ...]
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    assert service(**more) == why


# -- the pause between looks


class Stop(threading.Event):
    """Remembers for how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return False


@pytest.mark.parametrize(
    ("most", "took_s", "waited_s"), [(None, 50.0, 0.0), (60, 50.0, 100.0), (60, 0.0, 1.0), (1, 0.0, 60.0)]
)
def test_after_a_look_comes_a_pause_of_twice_its_time_where_looks_have_a_budget(
    monkeypatch: pytest.MonkeyPatch, most: int | None, took_s: float, waited_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 5000.0)
    looked, waits, stop = [], [], Stop()
    engine: Any = SimpleNamespace(
        look=lambda: looked.append(True), look_took_s=took_s, look_now=SimpleNamespace(wait=waits.append)
    )
    look, wait = hands._looking(engine, stop, 30.0, CallMeter.per_minute(most, 1))
    look()
    wait()
    assert (looked, waits, stop.waited) == ([True], [30.0], [waited_s])


def test_a_thread_that_stumbles_goes_on_and_says_so_once_and_its_recovery(caplog: pytest.LogCaptureFixture) -> None:
    stop, turns_ = threading.Event(), []

    def turn() -> None:
        turns_.append(len(turns_))
        if len(turns_) <= 3:
            raise ClusterError("slurm", "no answer", "Wait") if len(turns_) < 3 else ZeroDivisionError("odd")
        if len(turns_) == 6:
            stop.set()

    thread = hands.forever("look", stop, turn, lambda: None)
    thread.start()
    thread.join(20)
    assert len(turns_) == 6
    said = [record.message for record in caplog.records]
    assert said == ["look: slurm: no answer. Wait.", "look: unexpected; going on", "look: works again"]


def test_a_thread_that_could_not_write_the_journal_leaves_it_to_the_journal_to_say_that_it_can_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, errors = threading.Event(), [StateError("journal.db", "cannot be written", "Free some space")]

    def turn() -> None:
        if errors:
            raise errors.pop()
        stop.set()  # it had nothing to write

    hands.forever("look", stop, turn, lambda: None).run()
    assert [record.message for record in caplog.records] == ["look: journal.db: cannot be written. Free some space."]


# -- turns of users


def waiting(user: str, number: int = 1) -> Attempt:
    return replace(ATTEMPT, id=AttemptId("c", str(number), 1), user=user)


def test_one_users_attempts_are_taken_in_the_order_in_which_they_came() -> None:
    queue = FairQueue()
    for number in range(4):
        queue.put(waiting("ada", number))
    assert [queue.take(lambda _: True).id.job_id for _ in range(4)] == ["0", "1", "2", "3"]
    assert queue.take(lambda _: True) is None


def test_who_may_not_is_passed_over() -> None:
    queue = FairQueue()
    queue.put(waiting("ada"))
    queue.put(waiting("bob", 2))
    assert queue.take(lambda user: user == "bob").user == "bob"
    assert queue.take(lambda user: user == "bob") is None
    assert queue.take(lambda user: user == "ada").user == "ada"


def test_what_a_log_cost_counts_from_what_others_have_had_by_then() -> None:
    """Its user's own count stood still while it was read."""
    queue = FairQueue()
    queue.put(waiting("ada"))
    assert queue.take(lambda _: True).user == "ada"
    for number in range(2):  # bob's are read and judged before it
        queue.put(waiting("bob", number))
        assert queue.take(lambda _: True).user == "bob"
        queue.charge("bob", 100.0)
    queue.charge("ada", 5.0)
    queue.put(waiting("ada", 2))
    queue.put(waiting("cleo"))
    assert [queue.served(user) for user in ("ada", "bob", "cleo")] == [105.0, 200.0, 100.0]
    assert queue.take(lambda _: True).user == "cleo"


def test_what_is_no_more_than_whoever_comes_now_has_had_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "MAX_REMEMBERED", 10)
    queue = FairQueue()

    def serve(user: str, seconds: float = 1.0) -> None:
        queue.put(waiting(user))
        assert queue.take(lambda name: name == user).user == user
        queue.charge(user, seconds)

    for number in range(10):
        serve(f"light{number}")
    serve("heavy", 100.0)
    for _ in range(3):
        serve("middle", 2.0)
    assert set(queue._served) == {"heavy", "middle"}
    assert (queue.served("heavy"), queue.served("middle"), queue.served("light1")) == (100.0, 6.0, 0.0)
    for user in ("heavy", "light1"):
        queue.put(waiting(user))
    assert queue.served("light1") == 4.0  # what the one who was chosen last had had before
    queue.put(waiting("late"))
    monkeypatch.setattr(log_queue, "MAX_REMEMBERED", 1)
    serve("middle", 2.0)  # much is forgotten again, but not of those who wait
    assert [queue.served(user) for user in ("light1", "late", "heavy")] == [4.0, 4.0, 100.0]
    assert [queue.take(lambda _: True).user for _ in range(3)] == ["light1", "late", "heavy"]


# -- metrics


def test_totals_are_counted_anew_after_some_seconds_and_where_a_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, counted = site(tmp_path, now=1000.0), []
    known = totals.totals

    def noted(*given: Any) -> totals.Totals:
        counted.append(place.world.now)
        return known(*given)

    monkeypatch.setattr(totals, "totals", noted)
    for at_s in (1100.0, 1100.0 + FRESH_S - 0.1, 1100.0 + FRESH_S, 50.0):
        place.world.now = at_s
        place.client().get("/metrics")
    assert counted == [1100.0, 1100.0 + FRESH_S, 50.0]
