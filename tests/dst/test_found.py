"""What the simulation has found, each on the smallest story that shows it (docs/testing.md)."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.backends.simulated import EVERY, FaultPlan, Script
from perdure.backends.simulated.cluster import REMEMBERED_S
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord
from perdure.errors import PerdureError, StateError
from perdure.model.actions import Cancel, Hold, Release, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import AttemptState, JobState
from perdure.service.core.messages import Looked, Ordered
from perdure.service.exceptions.coordinator import Enlisting
from perdure.service.exceptions.permissions import may_see
from tests.copying import replace
from tests.dst.cluster import Line, Manager
from tests.dst.disk import Disk, journal_on
from tests.dst.laws import Auditor
from tests.dst.programs import DOWN, ROOT, UP, USERS
from tests.dst.service import HOME, LIMITS, ODD, PASSING, SCRATCH, Life, Switch

FAILS = Script(run_s=5.0, failures=EVERY, error=PASSING.decode(), exit_code=75)


class Scene:
    """A cluster of one node that requeues by itself on exit code 75, and the service beside it."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.manager = Manager(1, 1, requeue_exit=frozenset({75}))
        self.skew_s = 0.0
        self.count = 0  # of what was raised
        self.switch = Switch()
        self.line = Line(self.manager, 1, self.disk.fuse.passed, lambda: self.manager.now + self.skew_s)
        self.journal = journal_on(self.disk, "sim")
        self.start()

    def start(self) -> None:
        clock = lambda: self.manager.now + self.skew_s  # noqa: E731
        self.life = Life(self.journal, self.line, self.switch, LIMITS[0], clock)
        self.engine = self.life.engine

    def look_after(self, seconds: float) -> None:
        self.manager.advance(seconds)
        self.engine.look()

    def judge_all(self) -> None:
        while self.engine.judge_next(0.0):
            pass

    def rows(self, columns: str) -> list[Any]:
        return self.disk.raw.execute(f"SELECT {columns} FROM exceptions ORDER BY seq").fetchall()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_failure_that_the_next_one_overtakes_before_it_is_judged_is_ended_too(scene: Scene) -> None:
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.look_after(5.0)  # the first has failed, and the manager has started the second
    scene.look_after(5.0)  # the second has failed, too; nobody has judged the first
    scene.judge_all()
    assert scene.rows("incarnation, state, owner")[0] == (1, "handled", "resource_manager")


def test_what_was_known_of_a_failure_outlives_what_is_said_of_it_after_the_next_one(scene: Scene) -> None:
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.look_after(5.0)
    scene.judge_all()
    scene.look_after(5.0)
    first = scene.rows("id, of_attempt, decision, reason, wasted_gpu_h")[0]
    scene.life.coordinator.annotate(first[0], "checkpoint", "step 12", ROOT)
    assert scene.rows("id, of_attempt, decision, reason, wasted_gpu_h")[0] == first


ONCE = Script(run_s=5.0, failures=1, error=PASSING.decode())


def test_a_clock_that_was_ahead_for_a_while_hides_no_failure(scene: Scene) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.skew_s = 4000.0
    scene.manager.submit(Script(run_s=900.0))
    scene.look_after(1.0)
    scene.start()  # at a time when the journal's newest fact and the clock are both ahead
    scene.skew_s = 0.0
    scene.look_after(5.0)
    assert scene.rows("incarnation, state") == [(1, "raised")]


def test_a_look_while_the_clock_was_ahead_is_not_believed_by_a_start_when_its_time_has_come(scene: Scene) -> None:
    scene.manager.submit(Script(run_s=9.0))
    scene.look_after(1.0)
    scene.skew_s = 4000.0
    scene.look_after(9.0)  # writes down that the job went well, at an instant to come
    scene.skew_s = 0.0
    scene.manager.submit(ONCE)
    scene.line.silent = True
    for _ in range(5):
        scene.look_after(900.0)
    scene.start()
    scene.line.silent = False
    scene.look_after(5.0)
    assert scene.rows("job_id, state") == [("2", "raised")]


def test_a_clock_that_is_set_back_brings_no_failure_twice(scene: Scene) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.look_after(5.0)
    scene.judge_all()
    scene.engine.act()
    scene.look_after(1.0)
    scene.look_after(700.0)  # the second attempt went well, and the first is out of sight
    scene.look_after(60.0)
    scene.skew_s = -300.0
    scene.look_after(0.0)
    assert not scene.engine.judge_next(0.0)
    assert scene.rows("incarnation, state") == [(1, "recovered")]


def test_the_late_news_of_an_older_attempt_does_not_take_the_place_of_the_latest(scene: Scene) -> None:
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    first = scene.manager.attempts("1")[0]
    scene.manager.advance(30.0)
    scene.engine.look()
    latest = scene.engine.state.cases["1"].failure.attempt.id
    ended = replace(first, id=replace(first.id, incarnation=0), state=AttemptState.FAILED, end_s=first.start_s)
    seen = scene.manager.observation(0.0)
    scene.engine.absorb([Looked(replace(seen, attempts=(*seen.attempts, ended)))])
    assert scene.engine.state.cases["1"].failure.attempt.id == latest
    assert (0, "handled", "resource_manager") in scene.rows("incarnation, state, owner")


def test_after_a_start_it_is_known_which_nodes_there_are_before_the_first_look(scene: Scene) -> None:
    scene.look_after(1.0)
    before = scene.engine.state.fleet.usable
    scene.start()
    assert scene.engine.state.fleet.usable == before == {"": frozenset({"n1"})}


def test_where_every_node_is_down_a_job_is_not_kept_off_all_of_them(scene: Scene) -> None:
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.look_after(1.0)
    scene.manager.advance(5.0)
    scene.manager.fail_node("n1")
    scene.engine.look()
    scene.judge_all()
    assert [row.action.exclude for row in scene.journal.planned()] == [()]


def test_the_end_of_an_attempt_that_is_told_late_is_known_to_be_older_than_the_one_that_runs(scene: Scene) -> None:
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.manager.advance(4.5)
    seen = scene.manager.observation(0.0)
    runs = tuple(a for a in seen.attempts if not a.state.is_over)
    scene.engine.absorb([Looked(replace(seen, attempts=runs))])  # accounting lags
    scene.engine.look()
    scene.judge_all()
    assert scene.rows("incarnation, state, owner") == [(1, "handled", "resource_manager")]
    assert scene.journal.planned() == []


def test_what_failed_while_the_manager_could_not_be_asked_is_found_by_the_next_service(scene: Scene) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.line.silent = True
    scene.look_after(1.0)
    scene.manager.advance(2000.0)
    value = {"id": "x", "type": "site.news", "subject": {"node": ["n1"]}}
    scene.life.coordinator.raise_exceptions([value], ROOT)
    scene.start()
    scene.line.silent = False
    scene.look_after(1.0)
    assert scene.rows("id, incarnation") == [("x", 0), ("sim/1#1:job.failed", 1)]


def test_a_manager_that_was_lost_under_a_wrong_clock_is_asked_for_what_failed_meanwhile(scene: Scene) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.line.silent = True
    scene.skew_s = 4000.0
    scene.look_after(1.0)  # written down: not seen any more, at an instant that is yet to come
    scene.skew_s = 0.0
    scene.manager.advance(2000.0)
    scene.start()
    scene.line.silent = False
    scene.look_after(1.0)
    assert scene.rows("incarnation, state") == [(1, "raised")]


def test_what_a_full_disk_kept_from_being_written_is_not_hidden_by_a_later_look_at_one_job(scene: Scene) -> None:
    scene.look_after(1.0)
    scene.manager.submit(ONCE)
    scene.manager.submit(Script(run_s=1500.0, failures=EVERY))
    scene.disk.full = 1
    with pytest.raises(StateError):
        scene.look_after(2000.0)
    scene.engine.look_at(lambda: scene.line.look_at("2"))  # a hook tells of its end
    scene.start()
    scene.look_after(1.0)
    assert sorted(scene.rows("id")) == [("sim/1#1:job.failed",), ("sim/2#1:job.failed",)]


@pytest.mark.parametrize("is_started_again", [False, True])
def test_what_was_seen_under_a_wrong_clock_does_not_hide_what_failed_after_it(
    scene: Scene, is_started_again: bool
) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.skew_s = 4000.0
    scene.manager.submit(Script(run_s=9000.0))
    scene.look_after(1.0)  # written down: seen, at an instant that is yet to come
    scene.line.silent = True
    scene.manager.advance(2000.0)
    scene.skew_s = 40.0
    if is_started_again:
        scene.start()
    scene.line.silent = False
    scene.look_after(1.0)
    assert scene.rows("incarnation, state") == [(1, "raised")]


def test_what_a_person_asked_for_too_early_does_not_keep_a_job_from_its_recovery(scene: Scene) -> None:
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.engine.absorb([Ordered(0.0, Requeue(AttemptId("sim", "1", 1)), "ada", "again, please")])
    scene.engine.act()  # it runs still: superseded
    scene.look_after(5.0)
    scene.judge_all()
    scene.engine.act()
    scene.look_after(60.0)
    assert [attempt.state for attempt in scene.manager.attempts("1")] == [AttemptState.FAILED, AttemptState.COMPLETED]


def test_a_job_that_the_manager_has_forgotten_does_not_wait(scene: Scene) -> None:
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.manager.advance(4.5)
    scene.engine.look()
    scene.judge_all()
    known = scene.engine.state.cases["1"].job
    ended = replace(scene.manager.attempts("1")[-1], state=AttemptState.FAILED, end_s=scene.manager.now)
    seen = scene.manager.observation(0.0)
    scene.engine.absorb([Looked(replace(seen, jobs=(), attempts=(ended,)))])
    assert known.state is not JobState.FAILED
    assert scene.engine.state.cases["1"].job.state is JobState.FAILED


def test_nothing_is_asked_for_a_start_that_is_known_to_be_replaced(scene: Scene) -> None:
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.look_after(1.0)
    scene.look_after(5.0)
    scene.judge_all()
    assert [row.key for row in scene.journal.planned()] == ["requeue:sim/1#1"]
    scene.manager.requeue_by_itself("1")
    scene.look_after(1.0)
    asked = []
    scene.line.watch = asked.append
    scene.engine.act()
    assert asked == []
    ended = scene.journal.action("requeue:sim/1#1")
    assert (ended.state, ended.detail) == ("superseded", "attempt 2 exists")


def test_a_fault_is_not_seen_to_by_what_a_silent_manager_said_before_it(scene: Scene) -> None:
    scene.look_after(1.0)
    scene.manager.fail_node("n1")
    scene.look_after(1.0)
    scene.manager.return_node("n1")  # which nobody has seen
    fault = {"id": "x", "type": "gpu.xid79", "severity": 0, "subject": {"node": ["n1"]}}
    scene.life.coordinator.raise_exceptions([fault], ROOT)
    scene.engine.act()  # a cap holds back the drain of the only node: a person is asked
    assert scene.engine.state.chain.ended["x"].needs_a_person
    scene.line.silent = True
    scene.look_after(1.0)
    assert scene.engine.state.chain.ended["x"].needs_a_person
    scene.line.silent = False
    scene.look_after(1.0)
    assert scene.engine.state.chain.ended["x"].needs_a_person
    scene.manager.fail_node("n1")
    scene.look_after(1.0)
    assert scene.engine.state.chain.ended["x"].outcome == "recovered"


def test_what_a_look_could_not_write_down_the_next_one_finds(scene: Scene) -> None:
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.look_after(1.0)
    scene.line.silent = True
    scene.look_after(1.0)
    scene.manager.advance(900.0)  # longer than a look goes back
    scene.line.silent, scene.disk.full = False, 1
    with pytest.raises(StateError):
        scene.engine.look()
    scene.engine.look()
    scene.look_after(60.0)
    failure = scene.engine.state.cases["1"].failure
    assert (failure.attempt.state, failure.attempt.exit_code) == (AttemptState.FAILED, 1)


def test_what_happened_while_the_service_was_down_is_not_hidden_by_a_look_at_one_job(scene: Scene) -> None:
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.look_after(1.0)
    scene.manager.advance(900.0)  # longer than a look goes back; the service is down
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.manager.advance(6.0)
    scene.start()
    scene.engine.look_at(lambda: scene.line.look_at("2"))  # before the first look at all
    scene.start()
    scene.look_after(1.0)
    assert scene.rows("job_id, incarnation")[:1] == [("1", 1)]


def test_a_look_by_a_clock_that_was_ahead_hides_nothing_once_the_service_starts_anew(scene: Scene) -> None:
    scene.look_after(1.0)
    scene.skew_s = 4000.0
    scene.manager.submit(replace(ONCE, exit_code=1))
    scene.look_after(0.0)
    scene.skew_s, scene.line.silent = 0.0, True
    scene.look_after(10.0)
    scene.manager.advance(4500.0)  # so long that the wrong instant lies in the past
    scene.start()
    scene.line.silent = False
    scene.look_after(1.0)
    (failure,) = (case.failure for case in scene.engine.state.cases.values())
    assert (failure.attempt.state, failure.attempt.exit_code) == (AttemptState.FAILED, 1)


def test_a_preemption_costs_nobody_a_retry(scene: Scene) -> None:
    job_id = scene.manager.submit(ONCE)
    scene.look_after(1.0)
    scene.manager.preempt(job_id, back=False)
    scene.look_after(1.0)
    scene.judge_all()
    assert [row.key for row in scene.journal.planned()] == ["requeue:sim/1#1"]
    assert scene.engine.state.fleet.spent == ()


def test_a_job_that_ended_well_and_that_a_person_put_back_has_its_tries_anew(scene: Scene) -> None:
    limits, clock = LIMITS[-1], lambda: scene.manager.now
    scene.engine = Life(scene.journal, scene.line, scene.switch, limits, clock).engine
    laws = Auditor(scene.disk, scene.line, scene.manager, scene.switch, limits, clock)
    laws.view, scene.line.watch = scene.engine.view, laws.watch
    scene.manager.submit(Script(run_s=5.0, failures=1, error=ODD.decode()))

    def fail() -> None:
        scene.look_after(1.0)
        scene.look_after(5.0)
        scene.judge_all()
        scene.engine.act()

    fail()  # it is probed
    scene.look_after(2.0)
    scene.look_after(5.0)
    good = scene.manager.attempts("1")[-1]
    assert good.state is AttemptState.COMPLETED
    scene.manager._jobs["1"].script = replace(scene.manager.script("1"), failures=EVERY)
    scene.engine.absorb([Ordered(clock(), Requeue(good.id), "root", "by hand")])
    scene.engine.act()
    fail()  # and probed, as if it had never failed
    scene.look_after(2.0)
    fail()  # but not twice
    assert scene.rows("incarnation, decision") == [(1, "probe"), (3, "probe"), (4, "stop")]


def raised(scene: Scene, kind: str, **more: Any) -> ExceptionRecord | PerdureError:
    scene.count += 1
    value = {"id": f"x{scene.count}", "type": kind, **more}
    return scene.life.coordinator.raise_exceptions([value], ROOT)[0]


def waits(scene: Scene) -> AttemptId:
    """A job that waits, as its node is down."""
    scene.manager.fail_node("n1")
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    return AttemptId("sim", "1", 0)


OF_SCRATCH = {"subject": {"resource": SCRATCH}}


def test_an_all_clear_lets_go_of_no_job_that_only_a_person_holds(scene: Scene) -> None:
    attempt = waits(scene)
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.absorb([Ordered(scene.manager.now, Hold(attempt), "ada", "not now")])
    raised(scene, UP, **OF_SCRATCH)  # before anything was held
    scene.engine.act()
    scene.look_after(1.0)
    assert scene.manager.job("1").state is JobState.HELD


def test_two_all_clears_let_go_of_a_job_once(scene: Scene) -> None:
    attempt = waits(scene)
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.act()
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.absorb([Ordered(scene.manager.now, Hold(attempt), "ada", "not now")])
    raised(scene, UP, subject={"resource": HOME})  # the first has let go of nothing yet
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.HELD


def test_who_is_released_by_hand_before_he_is_held_is_let_go_again(scene: Scene) -> None:
    attempt = waits(scene)
    scene.engine.absorb([Ordered(scene.manager.now, Release(attempt), "ada", "go on")])
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.act()  # the release, then the hold
    assert scene.manager.job("1").state is JobState.HELD
    scene.look_after(1.0)
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.PENDING


def test_who_is_released_by_hand_before_it_is_known_that_he_is_to_be_held_is_held_until_the_all_clear(
    scene: Scene,
) -> None:
    attempt = waits(scene)
    scene.engine.absorb([Ordered(scene.manager.now, Release(attempt), "ada", "go on")])
    scene.line.watch = lambda action: raised(scene, DOWN, **OF_SCRATCH)  # while the release is carried out
    scene.engine.act()
    scene.line.watch = lambda action: None
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.HELD
    scene.look_after(1.0)
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.PENDING


def test_a_late_release_lets_go_of_no_job_that_needs_what_went_down_since(scene: Scene) -> None:
    waits(scene)
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.act()
    scene.look_after(1.0)
    scene.switch.on = True
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    raised(scene, DOWN, **OF_SCRATCH)
    scene.switch.on = False
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.HELD
    told = scene.journal.action("release:sim/1#0@x2").detail
    assert told == f"held still: the job needs {SCRATCH}, which is down (x3)"
    scene.look_after(1.0)
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.PENDING
    ended = scene.engine.state.chain.ended
    assert [ended[name].outcome for name in ("x1", "x3")] == [ExceptionOutcome.RECOVERED, ExceptionOutcome.RECOVERED]


def test_a_job_that_nobody_saw_before_it_was_forgotten_takes_its_users_share(scene: Scene) -> None:
    scene.line.silent = True
    scene.manager.submit(replace(ONCE, exit_code=1, user="ada"))
    scene.manager.advance(1.0 + REMEMBERED_S)
    scene.line.silent = False
    scene.look_after(5.0)
    scene.judge_all()
    scene.engine.act()
    (charge,) = scene.journal.charges(0.0).values()
    assert (charge.kind, charge.user) == ("requeue", "ada")


def test_a_release_that_may_be_lost_does_not_make_the_next_one_needless(scene: Scene) -> None:
    waits(scene)
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.act()
    scene.look_after(1.0)
    raised(scene, UP, **OF_SCRATCH)
    scene.line.faults = FaultPlan(p_lose_request=1.0, p_lose_reply=1.0)
    scene.engine.act()
    raised(scene, DOWN, **OF_SCRATCH)
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()  # nobody can tell what became of the first
    scene.line.faults = FaultPlan()
    assert scene.journal.action("release:sim/1#0@x4").state == "planned"
    raised(scene, DOWN, **OF_SCRATCH)
    scene.look_after(60.0)
    scene.engine.act()  # the first was lost, and is not given again: the job needs what is down
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.PENDING


def test_a_job_that_was_let_go_is_held_again_when_what_it_needs_goes_down_again(scene: Scene) -> None:
    waits(scene)
    scene.manager.submit(ONCE)
    scene.look_after(1.0)
    raised(scene, DOWN, **OF_SCRATCH)
    scene.engine.act()
    raised(scene, UP, **OF_SCRATCH)
    scene.line.watch = once(lambda: raised(scene, DOWN, **OF_SCRATCH))  # while the first is let go
    scene.engine.act()
    scene.line.watch = lambda action: None
    assert {scene.manager.job(job_id).state for job_id in ("1", "2")} == {JobState.PENDING, JobState.HELD}
    scene.look_after(1.0)
    scene.engine.act()
    assert {scene.manager.job(job_id).state for job_id in ("1", "2")} == {JobState.HELD}
    scene.look_after(1.0)
    raised(scene, UP, **OF_SCRATCH)
    scene.engine.act()
    assert {scene.manager.job(job_id).state for job_id in ("1", "2")} == {JobState.PENDING}


def once(
    happens: Callable[[], ExceptionRecord | PerdureError],
) -> Callable[[Any], object]:
    """What watches orders, and lets it happen at the first."""
    left = [happens]
    return lambda action: left and left.pop()()


def test_what_is_folded_into_what_outlives_the_service(scene: Scene) -> None:
    scene.look_after(1.0)
    fault = {"subject": {"node": ["n1"]}}
    raised(scene, "gpu.xid79", severity=3, **fault)
    scene.engine.act()  # a cap holds back the drain of the only node: a person is asked
    worse = raised(scene, "gpu.xid79", severity=1, **fault)
    scene.start()
    assert raised(scene, "gpu.xid79", severity=2, **fault).id == worse.id


def test_a_worse_claim_of_a_guest_does_not_come_between_what_the_site_says_twice(scene: Scene) -> None:
    scene.manager.submit(Script(run_s=900.0))
    scene.look_after(1.0)
    scene.life.coordinator.enlist("slow", Enlisting("resource_manager", ("storage",)), ROOT)
    first = raised(scene, DOWN, severity=1, **OF_SCRATCH)  # is asked about
    claim = {"id": "c", "type": DOWN, "severity": 0, "subject": {"job": "1", "resource": SCRATCH}}
    scene.life.coordinator.raise_exceptions([claim], USERS[0])
    assert raised(scene, DOWN, severity=1, **OF_SCRATCH).id == first.id


def test_what_expired_is_left_to_a_person_though_a_clock_was_ahead_for_hours_and_the_service_died(scene: Scene) -> None:
    scene.manager.submit(Script(run_s=5.0, failures=1, error=PASSING.decode()))
    scene.look_after(10.0)
    scene.judge_all()
    scene.switch.on = True
    scene.skew_s = 14_400.0
    scene.manager.submit(Script(run_s=5.0))
    scene.look_after(1.0)
    scene.skew_s = 0.0
    scene.manager.advance(7200.0)
    scene.engine.executor.run_due(scene.manager.now)  # and it dies before anybody is told
    scene.start()
    assert scene.rows("state") == [("escalated",)]


@pytest.mark.parametrize("user", ["ada", "bob"])
@pytest.mark.parametrize("run_s", [1.0, 500.0])  # the later job has failed when it is seen first, or runs
def test_a_failure_that_nobody_had_judged_when_another_job_got_the_id_is_ended(
    scene: Scene, user: str, run_s: float
) -> None:
    scene.manager.submit(replace(FAILS, exit_code=1))
    scene.look_after(1.0)
    scene.look_after(10.0)
    scene.manager.give_again("1", Script(run_s=run_s, user=user, failures=EVERY))
    scene.look_after(10.0)
    scene.judge_all()
    first, *later = scene.rows("incarnation, state, owner")
    assert first == (1, "handled", "resource_manager")
    assert [incarnation for incarnation, *_ in later] == ([2] if run_s < 10.0 else [])


def test_what_a_user_said_of_a_job_is_not_for_the_next_user_whose_job_gets_the_id(scene: Scene) -> None:
    ada, bob = USERS
    scene.manager.submit(Script(run_s=5.0))
    scene.look_after(1.0)
    value = {"type": "app.nan", "severity": 1, "subject": {"job": "1"}}
    (told,) = scene.life.coordinator.raise_exceptions([value], ada)
    assert isinstance(told, ExceptionRecord)
    scene.look_after(10.0)
    scene.manager.give_again("1", Script(run_s=500.0, user="bob"))
    scene.look_after(10.0)
    assert scene.life.coordinator.count_open(bob, 9) == 0
    with pytest.raises(PerdureError):
        scene.life.coordinator.annotate(told.id, "checkpoint", "x", bob)


def test_a_job_that_failed_before_it_was_seen_keeps_its_failure(scene: Scene) -> None:
    scene.manager.submit(replace(FAILS, exit_code=1))
    scene.look_after(1.0)
    scene.look_after(10.0)
    scene.manager.give_again("1", replace(FAILS, exit_code=1))
    scene.look_after(REMEMBERED_S + 60.0)  # its end is told, and it has been forgotten
    scene.judge_all()
    scene.engine.look_at(lambda: scene.line.look_at("1"))  # by a hook that was late
    assert scene.engine.state.cases["1"].failure.record.outcome is ExceptionOutcome.OPEN


def test_no_handler_hears_what_was_said_of_a_job_that_had_the_id_of_its_user_before(scene: Scene) -> None:
    ada, bob = USERS
    scene.manager.submit(Script(run_s=5.0, user="ada"))
    scene.look_after(1.0)
    scene.life.coordinator.enlist("slow", Enlisting("job", ("gpu",)), ada)
    scene.life.coordinator.enlist("quick", Enlisting("workflow", ("gpu",)), bob)
    value = {"type": "gpu.xid79", "severity": 1, "subject": {"job": "1"}}
    scene.life.coordinator.raise_exceptions([value], ada)
    scene.manager.advance(10.0)
    scene.manager.give_again("1", Script(run_s=500.0, user="bob"))
    scene.look_after(1.0)
    asked = set[str]()
    for _ in range(60):
        scene.look_after(5.0)
        scene.engine.tick()
        asked |= {turn.handler for turn in scene.engine.state.chain.turns.values()}
    assert not any("quick" in handler for handler in asked), asked


def test_what_was_to_be_done_to_a_job_is_not_done_to_anothers_that_has_got_its_id(scene: Scene) -> None:
    """Its owner cancelled it since the last look, and the manager lost its state."""
    attempt = waits(scene)
    scene.engine.absorb([Ordered(scene.manager.now, Hold(attempt), "ada", "not now")])
    scene.manager.carry_out(Cancel(attempt, user=scene.manager.job("1").user))
    scene.manager.give_again("1", Script(run_s=500.0, user="bob"))
    scene.engine.act()
    assert scene.manager.job("1").state is JobState.PENDING
    assert scene.disk.raw.execute("SELECT state, detail FROM actions").fetchall() == [
        ("superseded", "the id is another user's job now")
    ]


@pytest.mark.parametrize("restarts", [False, True])  # the service, which reads back whose story began when
def test_what_was_said_of_a_job_stays_so_when_the_next_one_of_its_id_is_put_back(scene: Scene, restarts: bool) -> None:
    ada, bob = USERS
    scene.manager.submit(Script(run_s=5.0, user="ada"))
    scene.look_after(1.0)
    value = {"type": "gpu.xid79", "severity": 1, "subject": {"job": "1"}}
    (told,) = scene.life.coordinator.raise_exceptions([value], ada)
    assert isinstance(told, ExceptionRecord)
    scene.look_after(10.0)
    scene.manager.give_again("1", replace(FAILS, user="bob"))
    scene.look_after(1.0)
    scene.look_after(10.0)
    assert scene.manager.job("1").restarts
    if restarts:
        scene.start()
    scene.look_after(1.0)
    view = scene.engine.view()
    assert view.owner_of(told) == ""
    assert not may_see(told, bob, view)
    assert view.owner_of(replace(told, time_s=scene.manager.now)) == "bob"
