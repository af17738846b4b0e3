"""The executor does what was decided once, or says why not."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.backends.simulated import EVERY, FaultPlan, Script, SimulatedBackend, SimulatedCluster
from perdure.errors import ClusterBusy, ClusterError, JobBusy
from perdure.model.actions import Action, Drain, Exclude, Hold, Outcome, OutcomeStatus, Release, Requeue
from perdure.model.events import AttemptEnded, JobChanged, NodeChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.retry.budget import at
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import PERDURE, Act, Journalled
from perdure.service.core.recovery import is_not_as_left
from perdure.service.core.scope import ScopeSettings
from perdure.service.core.settings import Caps
from perdure.service.store.journal import ActionRow, ActionState, Charge, Journal
from perdure.service.workers.executor import Executor, ExecutorSettings, GateRuling, Used, rule
from tests.copying import replace

DONE = Outcome(OutcomeStatus.DONE, "ok")
SUPERSEDED = Outcome(OutcomeStatus.SUPERSEDED, "a newer attempt exists")
BUSY = ClusterBusy("c", "no answer", "Ask again")


def requeue(job_id: int) -> Requeue:
    return Requeue(AttemptId("c", str(job_id), 1))


class Scripted:
    """A backend that gives prepared answers, DONE after the last; an answer may be an error or a callable."""

    cluster = "c"

    def __init__(self, performs: tuple[()] = (), lookups: tuple[()] = ()) -> None:
        self.performs, self.lookups = list(performs), list(lookups)
        self.performed, self.looked_up = [], []

    def perform(self, action: Action) -> Any:
        self.performed.append(action.key)
        return self._answer(self.performs)

    def lookup(self, action: Action) -> Any:
        self.looked_up.append(action.key)
        return self._answer(self.lookups)

    @staticmethod
    def _answer(prepared: list[Any]) -> Any:
        answer = prepared.pop(0) if prepared else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


class Bench:
    """An executor on a journal of its own, with a backend to be prepared."""

    def __init__(self, directory: Path, **given_settings: Any) -> None:
        self.journal = Journal.open(directory, "c")
        self.settings = ExecutorSettings(**{"armed": True, "stop_file": directory / "STOP", **given_settings})
        self.backend: Any = Scripted()
        self.restart()

    def restart(self) -> None:
        self.executor = Executor(self.journal, self.backend, self.settings)

    def plan(self, *wanted: Action, by: str = PERDURE, expires_s: float = 1000.0) -> None:
        empty = ControllerState("c")
        self.journal.record([Act(action, by, "why", expires_s) for action in wanted], empty, empty)

    def owns(self, user: str, job_id: int) -> None:
        """The journal knows whose job it is."""
        empty, job = ControllerState("c"), Job("c", str(job_id), "train", user, JobState.FAILED, 0.0)
        self.journal.record([Journalled(JobChanged(0.0, job))], empty, empty)

    def state(self, action: Action) -> Any:
        return self.journal.action(action.key).state

    def detail(self, action: Action) -> Any:
        return self.journal.action(action.key).detail


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.journal.close()


# -- the ruling


ROW = ActionRow("requeue:c/1#1", requeue(1), PERDURE, "why", ActionState.PLANNED, "", 0.0, 900.0)
DRAIN = replace(ROW, action=Drain("n1", "r", "e"))
HOLD = replace(ROW, action=Hold(AttemptId("c", "1", 1)))
CAPS = Caps(actions_per_hour=10, jobs_share_per_hour=0.5, floor_per_hour=2, drains_per_hour=3, nodes_share_per_hour=0.1)


def used(by_kind: dict[Any, Any], live_jobs: int = 0, nodes: int = 0, nodes_out: int = 0, user: str = "") -> Used:
    """So many actions of each kind at the first instant."""
    return Used(
        tuple(Charge(0.0, kind, user) for kind, n in by_kind.items() for _ in range(n)), live_jobs, nodes, nodes_out
    )


@pytest.mark.parametrize(
    ("row", "now", "armed", "stopped", "used", "ruling"),
    [
        (ROW, 1.0, True, False, used({}, 100), GateRuling.GO),
        (ROW, 900.0, True, False, used({}, 100), GateRuling.EXPIRE),
        (ROW, 900.0, True, True, used({}, 100), GateRuling.EXPIRE),
        (ROW, 900.0, True, False, used({"hold": 10}, 100), GateRuling.WAIT),  # what a cap holds back does not expire
        (
            HOLD,
            900.0,
            True,
            False,
            used({"hold": 10}, 100),
            GateRuling.EXPIRE,
        ),  # but for a hold: the job has run by then
        (ROW, 1.0, False, False, used({}, 100), GateRuling.SHADOW),
        (ROW, 1.0, True, True, used({}, 100), GateRuling.WAIT),
        (ROW, 1.0, True, False, used({"requeue": 9}, 100), GateRuling.GO),
        (ROW, 1.0, True, False, used({"requeue": 5, "hold": 5}, 100), GateRuling.WAIT),  # the absolute cap
        (ROW, 1.0, True, False, used({"requeue": 3}, 6), GateRuling.WAIT),  # the share of the jobs
        (ROW, 1.0, True, False, used({"requeue": 1}, 0), GateRuling.GO),  # never fewer than the floor
        (ROW, 1.0, True, False, used({"requeue": 5}, 100, user="eve"), GateRuling.WAIT),  # half of it is this user's
        (ROW, 1.0, True, False, used({"requeue": 5}, 100, user="bob"), GateRuling.GO),
        (ROW, 1.0, True, False, used({"requeue": 2}, 10, user="eve"), GateRuling.GO),  # of five, three are half
        (ROW, 1.0, True, False, used({"requeue": 3}, 10, user="eve"), GateRuling.WAIT),
        (replace(ROW, by="ada"), 1.0, True, False, used({"requeue": 500}, 0), GateRuling.GO),
        (replace(ROW, by="ada"), 1.0, True, True, used({}), GateRuling.WAIT),
        (DRAIN, 1.0, True, False, used({"drain": 1}, 100, 19), GateRuling.GO),  # two may always go
        (DRAIN, 1.0, True, False, used({"drain": 2}, 100, 19), GateRuling.WAIT),
        (DRAIN, 1.0, True, False, used({"drain": 3}, 100, 1000), GateRuling.WAIT),
        (DRAIN, 1.0, True, False, used({}, 100, 4, 1), GateRuling.GO),
        (DRAIN, 1.0, True, False, used({}, 100, 4, 2), GateRuling.WAIT),  # never more than half at once
        (DRAIN, 1.0, True, False, used({}, 100, 1, 0), GateRuling.WAIT),
    ],
)
def test_rulings(row: ActionRow, now: float, armed: bool, stopped: bool, used: Used, ruling: GateRuling) -> None:
    found = rule(row, now, armed, stopped, CAPS, used, "eve")
    assert found.ruling is ruling
    assert bool(found.why) is (ruling is not GateRuling.GO)


@given(now=st.floats(0, 2000), armed=st.booleans(), stopped=st.booleans(), count=st.integers(0, 50))
def test_nothing_goes_while_stopped_or_in_shadow_or_late(now: float, armed: bool, stopped: bool, count: int) -> None:
    ruling = rule(ROW, now, armed, stopped, CAPS, used({"requeue": count}, 10)).ruling
    if stopped or not armed or now >= ROW.expires_s or count >= 10:
        assert ruling is not GateRuling.GO


def test_what_waits_for_a_cap_says_until_when() -> None:
    caps = replace(CAPS, drains_per_hour=2)
    found = rule(DRAIN, 60.0, True, False, caps, used({"drain": 2}, 100, 1000))
    assert found.until_s == 3600.0
    assert found.why == f"the hour's cap on drains is reached (2 of 2); it waits until {at(3600.0, 60.0)}"


def test_what_lies_outside_the_scope_is_shown_and_not_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scope=ScopeSettings(users=("ada",), not_actions=("drain",)))
    bench.plan(requeue(1), Drain("n1", "r", "e"), expires_s=60.0)
    bench.plan(requeue(2), by="ada", expires_s=60.0)
    bench.executor.run_due(5.0)
    assert bench.state(requeue(1)) is ActionState.SHADOW
    assert bench.detail(requeue(1)) == "outside the scope: user unknown is not in scope.users"
    assert "action drain is left alone (scope.not_actions)" in bench.detail(Drain("n1", "r", "e"))
    assert bench.backend.performed == [requeue(2).key]  # what a person asks for is done everywhere
    bench.journal.close()


def test_a_clock_that_ran_ahead_for_a_while_empties_no_cap(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=1))
    first, second = Exclude(AttemptId("c", "1", 1), ("n1",)), Exclude(AttemptId("c", "2", 1), ("n1",))
    bench.plan(first)
    bench.executor.run_due(5.0)
    bench.plan(requeue(3))
    bench.executor.run_due(5000.0)  # it has expired by this clock
    bench.plan(second)
    bench.executor.run_due(6.0)
    assert (bench.state(first), bench.state(second)) == (ActionState.DONE, ActionState.PLANNED)
    bench.journal.close()


# -- carrying out


def test_what_is_due_is_carried_out_once_and_in_order(bench: Bench) -> None:
    bench.plan(requeue(1), requeue(2))
    ended = bench.executor.run_due(5.0)
    assert bench.backend.performed == ["requeue:c/1#1", "requeue:c/2#1"]
    assert [(e.action_key, e.status, e.detail) for e in ended] == [(k, "done", "ok") for k in bench.backend.performed]
    assert bench.executor.run_due(6.0) == []
    assert len(bench.backend.performed) == 2


def test_a_round_that_takes_too_long_leaves_the_rest_to_the_next_one(bench: Bench) -> None:
    bench.plan(*map(requeue, range(1, 6)))
    bench.executor.run_due(5.0, goes_on=lambda: len(bench.backend.performed) < 2)
    assert bench.backend.performed == [requeue(1).key, requeue(2).key]
    bench.executor.run_due(6.0)
    assert bench.backend.performed == [requeue(n).key for n in range(1, 6)]


def test_what_did_not_hold_is_carried_out_again(bench: Bench) -> None:
    bench.plan(requeue(1))
    bench.executor.run_due(1.0)
    assert not bench.journal.doubt(requeue(1).key, 1.0)  # the look may be older than the deed
    assert bench.journal.doubt(requeue(1).key, 5000.0)  # whenever that is
    bench.backend.lookups = [None]
    (ended,) = bench.executor.run_due(5001.0)
    assert (ended.status, bench.state(requeue(1))) == ("done", ActionState.DONE)
    assert bench.backend.performed == [requeue(1).key] * 2
    assert not bench.journal.doubt(requeue(2).key, 5000.0)


def test_the_intent_is_written_before_the_deed(bench: Bench) -> None:
    bench.plan(requeue(1))
    bench.backend.performs = [lambda: Outcome(OutcomeStatus.DONE, bench.state(requeue(1)))]
    assert bench.executor.run_due(5.0)[0].detail == "started"
    assert bench.journal.action(requeue(1).key).started_s == 5.0


@pytest.mark.parametrize(
    ("answer", "state", "detail"),
    [
        (SUPERSEDED, ActionState.SUPERSEDED, "a newer attempt exists"),
        (Outcome(OutcomeStatus.REFUSED, "no rights"), ActionState.REFUSED, "no rights"),
        (ClusterError("c", "access denied", "Ask the operator"), ActionState.REFUSED, "access denied"),
    ],
)
def test_the_managers_word_is_written_down(
    bench: Bench, answer: Outcome | ClusterError, state: ActionState, detail: str
) -> None:
    bench.plan(requeue(1))
    bench.backend.performs = [answer]
    assert [e.status for e in bench.executor.run_due(5.0)] == [state]
    assert detail in bench.detail(requeue(1))


def test_the_kill_switch_holds_between_two_actions(bench: Bench) -> None:
    bench.plan(requeue(1), requeue(2))

    def stop() -> Outcome:
        bench.settings.stop_file.touch()
        return DONE

    bench.backend.performs = [stop]
    bench.executor.run_due(5.0)
    assert bench.backend.performed == ["requeue:c/1#1"]
    assert bench.detail(requeue(2)) == "the kill switch is on"
    bench.settings.stop_file.unlink()
    bench.executor.run_due(6.0)
    assert bench.backend.performed == ["requeue:c/1#1", "requeue:c/2#1"]


@pytest.mark.parametrize("orders", range(4))
def test_no_order_is_begun_once_the_switch_was_seen(bench: Bench, orders: int) -> None:
    """Whoever asked for it, and however many more are decided meanwhile; afterwards all are done, in their order."""

    def stop() -> Outcome:
        bench.settings.stop_file.touch()
        bench.plan(requeue(7), by="ada")
        return DONE

    wanted = [requeue(i) for i in range(4)]
    bench.plan(*wanted)
    bench.backend.performs = [DONE] * orders + [stop]
    for now in range(1, 5):
        bench.executor.run_due(float(now))
    assert bench.backend.performed == [action.key for action in wanted[: orders + 1]]
    bench.settings.stop_file.unlink()
    bench.executor.run_due(9.0)
    assert bench.backend.performed == [action.key for action in (*wanted, requeue(7))]


def test_any_doubt_about_the_kill_switch_stops(bench: Bench, tmp_path: Path) -> None:
    before = bench.executor.stopped
    bench.settings.stop_file.symlink_to(tmp_path / "nowhere")
    assert (before, bench.executor.stopped) == (False, True)
    not_a_directory = tmp_path / "file"
    not_a_directory.touch()
    settings_ = replace(bench.settings, stop_file=not_a_directory / "STOP")
    assert Executor(bench.journal, bench.backend, settings_).stopped


def test_in_shadow_mode_nothing_is_carried_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, armed=False)
    bench.plan(requeue(1))
    assert [e.status for e in bench.executor.run_due(5.0)] == ["shadow"]
    assert bench.backend.performed == []
    bench.journal.close()


def test_what_comes_too_late_is_not_begun_and_says_what_it_waited_for(bench: Bench) -> None:
    bench.plan(requeue(1), expires_s=50.0)
    bench.settings.stop_file.touch()
    bench.executor.run_due(5.0)
    bench.settings.stop_file.unlink()
    assert [e.status for e in bench.executor.run_due(50.0)] == ["expired"]
    assert "the kill switch is on" in bench.detail(requeue(1))
    assert bench.backend.performed == []


def test_a_retry_that_has_put_its_job_back_is_finished_however_late_the_switch_is_turned_off(bench: Bench) -> None:
    """slurmctld died between the two halves of a retry; the job is held, and nobody but Perdure releases it."""
    bench.plan(requeue(1), expires_s=50.0)
    bench.backend.performs, bench.backend.lookups = [BUSY], [None]
    bench.executor.run_due(5.0)
    bench.settings.stop_file.touch()
    see_held(bench)
    for now in (10.0, 60.0):
        assert bench.executor.run_due(now) == []
    assert bench.detail(requeue(1)) == (
        "the kill switch is on; the job is already put back, and stays held until the switch is off"
    )
    bench.settings.stop_file.unlink()
    assert [e.status for e in bench.executor.run_due(70.0)] == ["done"]
    assert bench.backend.performed == [requeue(1).key, requeue(1).key]


def see_held(bench: Bench) -> None:
    """A look has found the job put back and held."""
    empty = ControllerState("c")
    held = Job("c", "1", "train", "ada", JobState.HELD, 0.0, reason="job_requeued_in_held_state")
    bench.journal.record([Journalled(JobChanged(6.0, held))], empty, empty)


@pytest.mark.parametrize("arms", [{"armed": False}, {"scope": ScopeSettings(not_users=("ada",))}])
def test_a_retry_that_has_put_its_job_back_is_left_to_a_person_where_perdure_may_not_act_any_more(
    tmp_path: Path, arms: Mapping[str, Any]
) -> None:
    bench = Bench(tmp_path, **arms)
    bench.plan(requeue(1))
    bench.journal.begin(requeue(1).key, 1.0)
    bench.backend.lookups = [None]
    bench.executor.recover(5.0)
    see_held(bench)
    assert [e.status for e in bench.executor.run_due(7.0)] == ["refused"]
    assert bench.detail(requeue(1)).endswith(
        "; the job is put back and held, and nothing starts it until somebody runs scontrol release 1"
    )
    assert bench.backend.performed == []
    bench.journal.close()


def exclude(number: int | str) -> Exclude:
    return Exclude(AttemptId("c", str(number), 1), ("n1",))


def test_caps_outlive_the_service_and_do_not_bind_people(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=2))
    bench.plan(*(exclude(i) for i in range(4)), expires_s=60.0)
    bench.executor.run_due(5.0)
    assert bench.state(exclude(2)) is ActionState.PLANNED
    assert f"cap on actions is reached (2 of 2); it waits until {at(3605.0, 5.0)}" in bench.detail(exclude(2))
    bench.restart()
    bench.plan(exclude("theirs"), by="ada")
    bench.executor.run_due(6.0)
    assert bench.backend.performed == ["exclude:c/0#1", "exclude:c/1#1", "exclude:c/theirs#1"]
    bench.executor.run_due(2000.0)
    assert bench.state(exclude(3)) is ActionState.PLANNED  # its time is over, but it is the cap that holds it back
    bench.restart()
    bench.executor.run_due(5.0 + 3601.0)
    assert bench.state(exclude(3)) is ActionState.DONE
    bench.journal.close()


def test_a_retry_that_a_cap_holds_back_is_put_back_at_once_to_start_later(tmp_path: Path) -> None:
    """Slurm would have forgotten the job by then. It counts when it may start."""
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=2))
    bench.plan(*(requeue(i) for i in range(5)), expires_s=60.0)
    assert len(bench.executor.run_due(5.0)) == 5
    starts = [5.0 + bench.journal.action(requeue(i).key).action.delay_s for i in range(5)]
    assert starts == [5.0, 5.0, 3605.0, 3605.0, 7205.0]
    bench.restart()  # and so it does after a restart
    bench.plan(requeue(5), expires_s=60.0)
    bench.executor.run_due(10.0)
    assert bench.journal.action(requeue(5).key).action.delay_s == 7195.0
    bench.journal.close()


def test_a_retry_that_is_held_back_starts_when_every_cap_has_room(tmp_path: Path) -> None:
    """The cap of all has room again at 3600, the user's half of it at 6600."""
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=4))
    for job_id, (now, user) in enumerate([(0.0, "bob")] * 2 + [(3000.0, "ada")] * 2 + [(3100.0, "ada")], 1):
        bench.owns(user, job_id)
        bench.plan(requeue(job_id), expires_s=9000.0)
        bench.executor.run_due(now)
    assert 3100.0 + bench.journal.action(requeue(5).key).action.delay_s == 6600.0
    bench.journal.close()


def test_a_job_that_nobody_saw_alive_is_charged_to_the_user_of_its_attempt(tmp_path: Path) -> None:
    """Two of the four are a user's, whether the journal knows the job or what ran of it alone."""
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=4))
    for job_id in (1, 2, 3):
        ran = Attempt(AttemptId("c", str(job_id), 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, user="ada")
        empty = ControllerState("c")
        bench.journal.record([Journalled(AttemptEnded(60.0, ran, None))], empty, empty)
        bench.plan(exclude(job_id))
    bench.executor.run_due(100.0)
    assert [bench.state(exclude(job_id)) for job_id in (1, 2, 3)] == [
        ActionState.DONE,
        ActionState.DONE,
        ActionState.PLANNED,
    ]
    assert "user ada's share" in bench.detail(exclude(3))
    bench.journal.close()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 900), st.floats(0, 4000)), min_size=4, max_size=20))
def test_no_hour_holds_more_retries_than_the_cap(arrivals: list[tuple[float, float]]) -> None:
    now, starts = 0.0, list[float]()
    with TemporaryDirectory() as directory:
        bench = Bench(Path(directory), caps=Caps(actions_per_hour=3))
        for number, (wait_s, delay_s) in enumerate(arrivals):
            now += wait_s
            one = replace(requeue(number), delay_s=delay_s)
            bench.plan(one, expires_s=now + 1e6)
            bench.executor.run_due(now)
            found = bench.journal.action(one.key)
            if found.state is ActionState.DONE:
                starts.append(now + found.action.delay_s)
        bench.journal.close()
    starts.sort()
    assert all(last - first > 3599.9 for first, last in zip(starts, starts[3:], strict=False))


def test_what_has_got_a_successor_since_is_not_put_back(bench: Bench) -> None:
    bench.plan(requeue(1), requeue(2))
    bench.executor.run_due(5.0, lambda action: "job 18 is there" if action.attempt.job_id == "1" else "")
    assert bench.state(requeue(1)) is ActionState.SUPERSEDED
    assert bench.detail(requeue(1)) == "job 18 is there"
    assert bench.backend.performed == [requeue(2).key]


HELD = [Hold(AttemptId("c", str(number), 0), "down") for number in range(6)]
LET_GO = [Release(hold.attempt, "up") for hold in HELD]


def test_what_perdure_held_is_let_go_whatever_the_caps_say_and_however_late(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=6))
    bench.plan(*HELD, expires_s=60.0)
    assert len(bench.executor.run_due(5.0)) == 6
    bench.plan(*LET_GO, expires_s=60.0)
    bench.settings.stop_file.touch()
    assert bench.executor.run_due(70.0) == []  # the kill switch is not for passing by
    bench.settings.stop_file.unlink()
    assert [e.status for e in bench.executor.run_due(80.0)] == ["done"] * 6
    bench.journal.close()


def test_what_perdure_held_is_let_go_outside_the_scope_too(tmp_path: Path) -> None:
    """The site may have narrowed it since."""
    bench = Bench(tmp_path)
    bench.plan(*HELD)
    bench.executor.run_due(4.0)
    bench.settings = replace(bench.settings, scope=ScopeSettings(users=("ada",)))
    bench.restart()
    bench.plan(*LET_GO)
    assert [e.status for e in bench.executor.run_due(5.0)] == ["done"] * len(LET_GO)
    bench.journal.close()


def test_a_retry_that_was_put_back_long_ago_counts_in_the_hour_in_which_it_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=2))
    bench.plan(*(requeue(i) for i in range(5)), expires_s=60.0)
    bench.executor.run_due(5.0)  # the last is to start at 7205
    bench.restart()
    bench.plan(requeue(5), requeue(6), expires_s=8000.0)
    bench.executor.run_due(7300.0)
    starts = [7300.0 + bench.journal.action(requeue(i).key).action.delay_s for i in (5, 6)]
    assert starts == [7300.0, 10805.0]
    bench.journal.close()


def test_a_job_that_is_busy_holds_up_no_other(bench: Bench) -> None:
    bench.plan(requeue(1), Exclude(requeue(1).attempt, ("n1",)), requeue(2))
    bench.backend.performs = [JobBusy("job 1", "still completing", "Ask again")]
    bench.executor.run_due(5.0)
    assert bench.backend.performed == [requeue(1).key, requeue(2).key]


def test_a_persons_hold_is_not_taken_back_by_a_release_of_perdures(bench: Bench) -> None:
    theirs, ours = Hold(AttemptId("c", "1", 1)), Release(AttemptId("c", "1", 1), "up")
    bench.plan(theirs, by="ada")
    bench.plan(ours)
    for now in (5.0, 6.0):
        bench.executor.run_due(now)
    assert bench.backend.performed == [theirs.key]
    assert bench.detail(ours) == "nothing of ours holds it"


def test_what_is_held_is_let_go_once(bench: Bench) -> None:
    bench.plan(HELD[0], Hold(HELD[0].attempt, "as well"))
    bench.executor.run_due(4.0)
    bench.plan(LET_GO[0])
    bench.executor.run_due(5.0)
    again = Release(HELD[0].attempt, "all is well")
    bench.plan(again)
    bench.executor.run_due(6.0)
    assert bench.state(LET_GO[0]) is ActionState.DONE
    assert bench.state(again) is ActionState.SUPERSEDED


def looks(bench: Bench, time_s: float, state: NodeState, *names: str) -> None:
    """A look shows nodes so."""
    empty, shown = ControllerState("c"), bench.executor.taken_out()
    bench.journal.record([Journalled(NodeChanged(time_s, "c", Node(name, state))) for name in names], empty, empty)
    bench.executor.saw(shown)


@pytest.mark.parametrize("restarts_s", [None, 5.0, 5000.0])  # the last after a clock that was behind
@pytest.mark.parametrize("at_once", [True, False])
def test_of_faults_on_several_nodes_at_once_half_of_the_nodes_stay_in_service(
    tmp_path: Path, at_once: bool, restarts_s: float | None
) -> None:
    """A look shows only later what was taken out."""
    bench = Bench(tmp_path, caps=Caps(drains_per_hour=10, drains_floor_per_hour=10))
    looks(bench, 0.0, NodeState.UP, "n1", "n2", "n3", "n4")
    drains = [Drain(name, "broken", name) for name in ("n1", "n2", "n3")]
    for drain in drains:
        bench.plan(drain)
        if not at_once:
            bench.executor.run_due(5.0)
    bench.executor.run_due(5.0)
    if restarts_s is not None:
        bench.restart()
        bench.executor.run_due(restarts_s)
    assert bench.backend.performed == [drain.key for drain in drains[:2]]
    assert bench.detail(drains[2]) == "2 of 4 nodes take no work already; it waits until one returns"
    looks(bench, 6.0, NodeState.DRAINED, "n1", "n2")
    bench.executor.run_due(7.0)
    assert drains[2].key not in bench.backend.performed
    looks(bench, 8.0, NodeState.UP, "n1")
    bench.executor.run_due(9.0)
    assert drains[2].key in bench.backend.performed
    bench.journal.close()


@pytest.mark.parametrize("armed", [True, False])
def test_of_a_node_that_is_out_already_nothing_is_asked_while_nothing_is_done(tmp_path: Path, armed: bool) -> None:
    bench, drain = Bench(tmp_path, armed=armed), Drain("n1", "broken", "e")
    empty, node = ControllerState("c"), Node("n1", NodeState.DRAINED)
    bench.journal.record([Journalled(NodeChanged(0.0, "c", node))], empty, empty)
    bench.plan(drain)
    if armed:
        bench.settings.stop_file.touch()
    bench.executor.run_due(5.0)
    assert bench.state(drain) is (ActionState.PLANNED if armed else ActionState.SHADOW)
    assert bench.backend.looked_up == []
    bench.settings.stop_file.unlink(missing_ok=True)
    bench.executor.run_due(6.0)
    assert bench.backend.looked_up == ([drain.key] if armed else [])
    bench.journal.close()


def test_letting_go_takes_nobody_elses_place(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=2))
    bench.plan(*LET_GO, exclude(1))
    bench.executor.run_due(5.0)
    bench.restart()
    bench.plan(exclude(2), exclude(3))
    bench.executor.run_due(6.0)
    assert bench.backend.performed[-2:] == ["exclude:c/1#1", "exclude:c/2#1"]
    bench.journal.close()


def test_nor_do_people_while_the_service_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=1))
    bench.plan(*(exclude(i) for i in range(3)), by="ada")
    bench.executor.run_due(5.0)
    bench.plan(exclude("ours"), exclude("waits"))
    bench.executor.run_due(6.0)
    assert bench.backend.performed[3:] == ["exclude:c/ours#1"]
    bench.journal.close()


def test_a_release_that_only_perdures_retry_asks_for_is_charged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=1))
    bench.plan(*(Release(AttemptId("c", str(number), 1)) for number in range(2)), expires_s=60.0)
    assert [len(bench.executor.run_due(now)) for now in (5.0, 60.0, 3606.0)] == [1, 0, 1]
    bench.journal.close()


def test_what_is_let_go_before_it_was_held_is_never_held(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=4))
    bench.plan(*HELD)
    bench.executor.run_due(5.0)
    bench.plan(*LET_GO)
    ends = {e.action_key: e.status for e in bench.executor.run_due(6.0)}
    assert [ends.get(hold.key) for hold in HELD] == [None] * 4 + ["superseded"] * 2
    assert bench.detail(HELD[5]) == "released before it was held"
    assert [ends[release.key] for release in LET_GO] == ["done"] * 4 + ["superseded"] * 2
    assert not {hold.key for hold in HELD[4:]} & {*bench.backend.performed}
    bench.journal.close()


# -- silence


def test_after_silence_what_was_done_is_not_done_again(bench: Bench) -> None:
    bench.plan(requeue(1))
    bench.backend.performs, bench.backend.lookups = [BUSY], [DONE]
    assert bench.executor.run_due(5.0) == []
    assert bench.state(requeue(1)) is ActionState.STARTED
    assert [e.status for e in bench.executor.run_due(10.0)] == ["done"]
    assert (len(bench.backend.performed), len(bench.backend.looked_up)) == (1, 1)


def test_after_silence_what_was_not_done_is_done(bench: Bench) -> None:
    bench.plan(requeue(1))
    bench.backend.performs, bench.backend.lookups = [BUSY], [None]
    bench.executor.run_due(5.0)
    assert [e.status for e in bench.executor.run_due(10.0)] == ["done"]
    assert len(bench.backend.performed) == 2


def test_what_was_not_done_takes_no_room_in_a_cap(tmp_path: Path) -> None:
    """One action an hour is allowed: the first was surely not done, the second is overtaken when its turn comes."""
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=1, floor_per_hour=1))
    first, second, third = (Hold(AttemptId("c", str(job_id), 1)) for job_id in range(3))
    bench.plan(first)
    bench.backend.performs, bench.backend.lookups = [BUSY], [None]
    bench.executor.run_due(5.0)
    bench.executor.run_due(10.0, lambda action: "it runs again")
    assert bench.state(first) is ActionState.SUPERSEDED
    bench.plan(second)
    bench.executor.run_due(20.0)
    assert bench.state(second) is ActionState.DONE
    bench.plan(third)
    bench.executor.run_due(30.0)
    assert bench.state(third) is ActionState.PLANNED
    bench.journal.close()


def test_what_was_not_done_is_done_again_where_only_it_has_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=1, floor_per_hour=1))
    bench.plan(Hold(AttemptId("c", "1", 1)))
    bench.backend.performs, bench.backend.lookups = [BUSY], [None]
    bench.executor.run_due(5.0)
    assert [e.status for e in bench.executor.run_due(10.0)] == ["done"]
    bench.journal.close()


def test_what_was_not_done_before_it_expired_is_not_done(bench: Bench) -> None:
    bench.plan(requeue(1), expires_s=8.0)
    bench.backend.performs, bench.backend.lookups = [BUSY], [None]
    bench.executor.run_due(5.0)
    assert [e.status for e in bench.executor.run_due(10.0)] == ["expired"]
    assert len(bench.backend.performed) == 1


def test_a_silent_cluster_is_asked_less_and_less(bench: Bench) -> None:
    bench.plan(requeue(1), expires_s=1e6)
    bench.backend.performs, bench.backend.lookups = [BUSY], [BUSY] * 1000
    asked = []
    for now in range(300):
        before = len(bench.backend.looked_up)
        bench.executor.run_due(float(now))
        asked += [now] if len(bench.backend.looked_up) > before else []
    gaps = [later - sooner for sooner, later in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == bench.settings.back_off_cap_s
    assert "no answer" in bench.detail(requeue(1))


def test_a_jobs_actions_keep_their_order_and_other_jobs_go_on(bench: Bench) -> None:
    one = AttemptId("c", "1", 1)
    bench.plan(Exclude(one, ("n1",)), Release(one), requeue(2))
    bench.backend.performs, bench.backend.lookups = [BUSY], [BUSY, DONE]
    bench.executor.run_due(0.0)
    bench.executor.run_due(1.0)
    bench.executor.run_due(1.1)
    assert bench.backend.performed == ["exclude:c/1#1", "requeue:c/2#1"]
    bench.executor.run_due(30.0)
    assert bench.backend.performed[-1] == "release:c/1#1"


def test_what_waits_for_a_cap_is_not_overtaken_by_its_own_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, caps=Caps(actions_per_hour=0))
    bench.plan(Exclude(AttemptId("c", "1", 1), ("n1",)))
    bench.plan(Release(AttemptId("c", "1", 1)), by="ada")
    bench.executor.run_due(5.0)
    assert bench.backend.performed == []
    bench.journal.close()


def test_at_the_start_open_intents_are_looked_up_before_anything_is_done(bench: Bench) -> None:
    bench.plan(requeue(1), requeue(2), requeue(3))
    for number in (1, 2):
        bench.journal.begin(requeue(number).key, 1.0)
    bench.backend.lookups = [DONE, None]
    bench.restart()
    assert [e.action_key for e in bench.executor.recover(5.0)] == ["requeue:c/1#1"]
    assert bench.backend.performed == []
    bench.executor.run_due(6.0)
    assert bench.backend.performed == ["requeue:c/2#1", "requeue:c/3#1"]


def test_an_open_intent_of_a_service_that_was_armed_is_not_carried_out_in_shadow_mode(tmp_path: Path) -> None:
    bench = Bench(tmp_path, armed=False)
    bench.plan(requeue(1))
    bench.journal.begin(requeue(1).key, 1.0)
    bench.backend.lookups = [None]
    bench.executor.recover(5.0)
    assert [e.status for e in bench.executor.run_due(6.0)] == ["shadow"]
    bench.journal.close()


def test_ends_that_nobody_heard_of_are_told_at_the_start(bench: Bench) -> None:
    bench.plan(requeue(1))
    ended = bench.executor.run_due(5.0)
    bench.restart()
    assert bench.executor.recover(6.0) == ended


def test_a_fault_of_our_own_leaves_the_intent_open(bench: Bench) -> None:
    bench.plan(requeue(1))
    bench.backend.performs = [ZeroDivisionError("a bug")]
    with pytest.raises(ZeroDivisionError):
        bench.executor.run_due(5.0)
    assert bench.state(requeue(1)) is ActionState.STARTED
    bench.backend.lookups = [None]
    bench.executor.run_due(10.0)
    assert bench.state(requeue(1)) is ActionState.DONE


def test_an_action_withheld_while_the_round_runs_is_not_begun(bench: Bench) -> None:
    bench.plan(requeue(1), requeue(2))

    def withhold() -> Outcome:
        bench.journal.withhold(requeue(2).key, "ada", 5.0)
        return DONE

    bench.backend.performs = [withhold]
    bench.executor.run_due(5.0)
    assert bench.backend.performed == ["requeue:c/1#1"]


def test_an_intent_that_cannot_be_looked_up_stays_open(bench: Bench) -> None:
    bench.plan(Hold(AttemptId("c", "1", 1)))
    bench.backend.performs, bench.backend.lookups = [BUSY], [ClusterError("c", "access denied", "Ask")]
    bench.executor.run_due(5.0)
    bench.executor.run_due(10.0)
    assert bench.state(Hold(AttemptId("c", "1", 1))) is ActionState.STARTED
    assert "access denied" in bench.detail(Hold(AttemptId("c", "1", 1)))


@given(seed=st.integers(0, 2**32 - 1), lose=st.floats(0, 0.5), silent=st.floats(0, 0.5), delay=st.floats(0, 0.3))
@settings(deadline=None, max_examples=10)
def test_over_any_bad_line_each_requeue_happens_exactly_once(
    seed: int, lose: float, silent: float, delay: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = SimulatedCluster(seed, name="c", guarded=False)
    ids = [cluster.submit(Script(run_s=1.0, failures=EVERY)) for _ in range(6)]
    cluster.advance(2.0)
    bench = Bench(tmp_path_factory.mktemp("bench"), back_off_cap_s=4.0)
    bench.backend = SimulatedBackend(cluster, FaultPlan(lose, silent, delay, delay_s=5.0), seed)
    bench.restart()
    bench.plan(*(Requeue(cluster.attempts(job_id)[0].id, delay_s=1e9) for job_id in ids), expires_s=1e12)
    for _ in range(400):
        bench.executor.run_due(cluster.now)
        cluster.advance(2.0)
    assert cluster.effects == Counter({f"requeue:c/{job_id}#1": 1 for job_id in ids})
    assert all(cluster.job(job_id).state is JobState.PENDING for job_id in ids)
    bench.journal.close()


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        (JobState.HELD, "job_requeued_in_held_state", True),
        (JobState.HELD, "BadConstraints", True),
        (JobState.HELD, "JobHeldUser", False),
        (JobState.FAILED, "NonZeroExitCode", True),
        (JobState.FAILED, "DeadLine", False),  # over while it waited for its retry
        (JobState.CANCELLED, "NonZeroExitCode", False),
    ],
)
def test_what_a_job_looks_like_whose_retry_does_not_hold(state: JobState, reason: str, told: bool) -> None:
    job = Job(cluster="c", job_id="1", name="train", user="ada", state=state, submit_s=1.0, reason=reason)
    assert is_not_as_left(job) is told
