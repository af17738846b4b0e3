"""The mind of the embedded cluster, in virtual time and without processes."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.backends.local import requests
from perdure.backends.local.core import Core, CoreStep, Launch, SignalNode, SignalTasks, fresh_nodes
from perdure.backends.local.records import Timing
from perdure.backends.local.spec import JobSpec
from perdure.errors import ClusterError, InputError, NotFound
from perdure.model.actions import (
    Action,
    Cancel,
    Drain,
    Exclude,
    Hold,
    OutcomeStatus,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import Node, NodeState

TIMING = Timing(detect_s=1.0, kill_wait_s=2.0, thaw_s=3.0, requeue_delay_s=0.0)


def make_core(nodes: int = 3, gpus: int = 4, slots: int = 4) -> Core:
    return Core(fresh_nodes(nodes, gpus, slots, {}, 0.0), [], [], 1, TIMING, "/logs/{job}-{incarnation}.log")


class World:
    """A core, a clock, and everything it ever wanted done."""

    def __init__(self, **shape: Any) -> None:
        self.core, self.now, self.effects, self.ended = make_core(**shape), 0.0, [], {}

    def settle(self) -> CoreStep:
        self.core.tick(self.now)
        step = self.core.take()
        self.effects += step.effects
        self.ended |= {(a.job_id, a.incarnation): a for a in step.attempts if a.state.is_over}
        return step

    def submit(self, **spec: Any) -> str:
        job_id = self.core.submit(JobSpec(("true",), **spec), self.now)
        self.settle()
        return job_id

    def after(self, seconds: float) -> CoreStep:
        self.now += seconds
        return self.settle()

    def exit(self, job_id: str, *statuses: int) -> None:
        attempt = self.core.running[job_id]
        for rank, status in enumerate(statuses):
            self.core.task_ended(job_id, attempt.incarnation, rank, status, self.now)
        self.settle()

    def fault(self, node: str, what: str) -> None:
        self.core.inject(node, what, self.now)
        self.settle()

    def act(self, action: Action) -> OutcomeStatus:
        outcome = requests.perform(self.core, "local", action, self.now)
        self.settle()
        return outcome.status

    def signals(self, job_id: str) -> list[Any]:
        return [e.signum for e in self.effects if isinstance(e, SignalTasks) and e.job_id == job_id]

    def node(self, name: str) -> Node:
        return next(node for node in self.core.told_nodes() if node.name == name)


def name(job_id: str, incarnation: int = 1) -> AttemptId:
    return AttemptId("local", job_id, incarnation)


@pytest.fixture
def world() -> World:
    return World()


def test_jobs_start_in_order_and_what_does_not_fit_is_passed_over(world: World) -> None:
    first = world.submit(node_count=2, gpus_per_node=4)
    wide = world.submit(node_count=2, gpus_per_node=4)
    narrow = world.submit(gpus_per_node=1)
    jobs = world.core.jobs
    assert [jobs[j].state for j in (first, wide, narrow)] == [JobState.RUNNING, JobState.PENDING, JobState.RUNNING]
    assert jobs[wide].reason == "Resources"
    world.exit(first, 0, 0)
    world.exit(narrow, 0)
    assert jobs[wide].state is JobState.RUNNING


def test_higher_priority_goes_first(world: World) -> None:
    world.submit(node_count=3, gpus_per_node=4)
    low, high = world.submit(gpus_per_node=4), world.submit(gpus_per_node=4, priority=1)
    world.exit("1", 0, 0, 0)
    starts = [e.attempt.job_id for e in world.effects if isinstance(e, Launch)]
    assert starts == ["1", high, low]


def test_gpu_numbers_are_never_given_twice(world: World) -> None:
    for _ in range(4):
        world.submit(gpus_per_node=3)
    held = [(a.nodes[0], gpu) for a in world.core.running.values() for gpu in a.devices[0]]
    assert len(held) == len(set(held)) == 9


def test_slots_bound_the_tasks_of_a_node() -> None:
    world = World(nodes=1, slots=2)
    for _ in range(3):
        world.submit()
    assert len(world.core.running) == 2


def test_a_delayed_job_wakes_by_itself(world: World) -> None:
    job_id = world.submit(delay_s=60.0)
    assert world.core.jobs[job_id].reason == "BeginTime"
    assert world.core.next_wake_s() == 60.0
    world.after(60.0)
    assert world.core.jobs[job_id].state is JobState.RUNNING


def test_the_first_task_that_fails_says_how_and_ends_the_gang(world: World) -> None:
    job_id = world.submit(node_count=3)
    world.core.task_ended(job_id, 1, 1, 7, world.now)
    world.settle()
    assert world.signals(job_id) == [signal.SIGTERM]
    world.after(TIMING.kill_wait_s)
    assert world.signals(job_id) == [signal.SIGTERM, signal.SIGKILL]
    world.core.task_ended(job_id, 1, 0, -9, world.now)
    world.core.task_ended(job_id, 1, 2, -15, world.now)
    world.settle()
    ended = world.ended[job_id, 1]
    assert (ended.state, ended.exit_code, ended.signal) == (AttemptState.FAILED, 7, 0)
    assert ended.reason == "task 1 on n2 failed first"


def test_a_signal_is_told_as_such(world: World) -> None:
    job_id = world.submit()
    world.exit(job_id, -11)
    assert (world.ended[job_id, 1].exit_code, world.ended[job_id, 1].signal) == (0, 11)


def test_the_walltime_warns_terminates_and_kills(world: World) -> None:
    job_id = world.submit(walltime_s=100.0, signal="USR1", signal_before_s=30.0)
    assert world.core.next_wake_s() == 70.0
    for seconds in (70.0, 29.0, 1.0, TIMING.kill_wait_s):
        world.after(seconds)
    assert world.signals(job_id) == [signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL]
    world.exit(job_id, -9)
    assert world.ended[job_id, 1].state is AttemptState.TIMEOUT
    assert world.core.jobs[job_id].state is JobState.FAILED


def test_a_program_that_ends_by_itself_after_the_warning_has_completed(world: World) -> None:
    job_id = world.submit(walltime_s=100.0, signal="USR1", signal_before_s=200.0)
    world.after(1.0)
    world.exit(job_id, 0)
    assert world.ended[job_id, 1].state is AttemptState.COMPLETED


def test_preemption_requeues_the_victim_behind(world: World) -> None:
    victim = world.submit(node_count=3, gpus_per_node=4, preemptible=True)
    urgent = world.submit(gpus_per_node=4, priority=1)
    assert world.signals(victim) == [signal.SIGTERM]
    world.exit(victim, -15, -15, -15)
    jobs = world.core.jobs
    assert world.ended[victim, 1].state is AttemptState.PREEMPTED
    assert (jobs[victim].state, jobs[victim].restarts, jobs[urgent].state) == (JobState.PENDING, 1, JobState.RUNNING)
    world.exit(urgent, 0)
    assert world.core.running[victim].incarnation == 2


def test_the_death_of_a_node_is_noticed_late_and_requeues(world: World) -> None:
    job_id = world.submit(node_count=2)
    world.fault("n1", "fail")
    assert SignalNode("n1", signal.SIGKILL) in world.effects
    world.core.task_ended(job_id, 1, 0, -9, world.now)  # nobody is there to report it
    assert (world.node("n1").state, len(world.ended)) == (NodeState.UP, 0)
    world.core.task_ended(job_id, 1, 1, 1, world.now)  # its peer complains
    world.after(TIMING.detect_s)
    ended = world.ended[job_id, 1]
    assert (ended.state, ended.failed_nodes, ended.exit_code) == (AttemptState.NODE_FAIL, ("n1",), 0)
    assert world.node("n1").state is NodeState.DOWN
    assert world.core.running[job_id].nodes == ("n2", "n3")
    assert world.core.jobs[job_id].restarts == 1


@pytest.mark.parametrize("spec", [{"requeue_on_node_fail": False}, {"may_requeue": False}, {"max_requeues": 0}])
def test_a_job_that_must_not_be_requeued_fails_with_its_node(world: World, spec: dict[str, Any]) -> None:
    job_id = world.submit(**spec)
    world.fault("n1", "fail")
    world.after(TIMING.detect_s)
    assert world.core.jobs[job_id].state is JobState.FAILED


def test_a_node_that_thaws_early_was_never_away(world: World) -> None:
    job_id = world.submit()
    world.fault("n1", "freeze")
    world.fault("n1", "thaw")
    world.after(60.0)
    world.exit(job_id, 0)
    assert world.ended[job_id, 1].state is AttemptState.COMPLETED


def test_a_node_that_thaws_late_runs_on_a_little_then_is_cleaned_and_returns(world: World) -> None:
    job_id = world.submit()
    world.fault("n1", "freeze")
    world.after(TIMING.detect_s)
    assert (world.ended[job_id, 1].state, world.core.running[job_id].nodes) == (AttemptState.NODE_FAIL, ("n2",))
    world.fault("n1", "thaw")
    world.after(TIMING.thaw_s)
    world.after(TIMING.kill_wait_s)
    expected = [signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGKILL]
    assert [e.signum for e in world.effects if isinstance(e, SignalNode)] == expected
    assert world.node("n1").state is NodeState.UP


def test_a_node_that_returns_before_it_was_missed_has_lost_its_work_all_the_same(world: World) -> None:
    job_id = world.submit()
    world.fault("n1", "fail")
    world.fault("n1", "return")
    assert world.ended[job_id, 1].state is AttemptState.NODE_FAIL
    assert world.node("n1").state is NodeState.UP


@pytest.mark.parametrize(("before", "what"), [("", "thaw"), ("fail", "fail"), ("fail", "freeze"), ("", "explode")])
def test_what_a_node_cannot_do_is_refused(world: World, before: str, what: str) -> None:
    if before:
        world.fault("n1", before)
    with pytest.raises(ClusterError):
        world.fault("n1", what)


def test_faults_of_unknown_nodes_are_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.fault("n77", "fail")


def test_a_cancel_outlives_the_nodes_death(world: World) -> None:
    job_id = world.submit()
    assert world.act(Cancel(name(job_id))) is OutcomeStatus.DONE
    world.fault("n1", "fail")
    world.after(TIMING.detect_s)
    assert world.ended[job_id, 1].state is AttemptState.CANCELLED
    assert world.core.jobs[job_id].state is JobState.CANCELLED


def test_who_asks_again_and_again_puts_the_kill_off_no_further(world: World) -> None:
    job_id = world.submit()
    for _ in range(4):
        world.act(Cancel(name(job_id)))
        world.after(TIMING.kill_wait_s / 4)
    assert world.signals(job_id) == [signal.SIGTERM, signal.SIGKILL]


def test_a_restart_of_the_daemon_requeues_what_ran_and_keeps_cancels(world: World) -> None:
    ran, cancelled, waits = world.submit(), world.submit(), world.submit(hold=True)
    world.act(Cancel(name(cancelled)))
    world.core.all_lost("cluster daemon restarted", world.now)
    world.settle()
    assert (world.ended[ran, 1].state, world.ended[ran, 1].failed_nodes) == (AttemptState.NODE_FAIL, ())
    states = [world.core.jobs[j].state for j in (ran, cancelled, waits)]
    assert states == [JobState.RUNNING, JobState.CANCELLED, JobState.HELD]
    assert world.core.running[ran].incarnation == 2


def test_requeue_excludes_and_releases_the_requirement(world: World) -> None:
    job_id = world.submit(require=("n1",))
    world.exit(job_id, 1)
    assert world.act(Requeue(name(job_id), ("n1",), 5.0)) is OutcomeStatus.DONE
    job = world.core.jobs[job_id]
    assert (job.excluded, job.required, job.eligible_s, job.reason) == (("n1",), (), 5.0, "BeginTime")
    world.after(5.0)
    assert world.core.running[job_id].nodes == ("n2",)


def test_a_job_that_was_put_back_on_fewer_nodes_keeps_that_size_when_it_is_kept_off_more(world: World) -> None:
    job_id = world.submit(node_count=2)
    world.exit(job_id, 1, 1)
    assert world.act(Requeue(name(job_id), ("n1",), 5.0, node_count=1)) is OutcomeStatus.DONE
    assert world.act(Exclude(name(job_id), ("n2",))) is OutcomeStatus.DONE
    world.after(5.0)
    assert world.core.running[job_id].nodes == ("n3",)


@pytest.mark.parametrize("status", [0, 1, 9, 137 << 8])
def test_what_an_earlier_incarnation_tells_changes_nothing(world: World, status: int) -> None:
    job_id = world.submit(node_count=2)
    world.exit(job_id, 1, 1)
    assert world.act(Requeue(name(job_id))) is OutcomeStatus.DONE
    world.after(1.0)
    runs = world.core.running[job_id]
    assert runs.incarnation == 2
    for rank in range(2):
        world.core.task_ended(job_id, 1, rank, status, world.now)
    world.core.launch_failed(job_id, 1, "no such program", world.now)
    step = world.after(1.0)
    assert (world.core.running[job_id], step.attempts, step.effects) == (runs, (), ())
    world.exit(job_id, 0, 0)
    assert world.core.jobs[job_id].state is JobState.COMPLETED


def test_requeue_that_leaves_too_few_nodes_is_refused(world: World) -> None:
    job_id = world.submit(node_count=3)
    world.exit(job_id, 1, 1, 1)
    assert world.act(Requeue(name(job_id), ("n1",))) is OutcomeStatus.REFUSED
    assert world.core.jobs[job_id].state is JobState.FAILED


def test_requeues_are_counted(world: World) -> None:
    job_id = world.submit(max_requeues=1)
    world.exit(job_id, 1)
    assert world.act(Requeue(name(job_id, 1))) is OutcomeStatus.DONE
    world.exit(job_id, 1)
    assert world.act(Requeue(name(job_id, 2))) is OutcomeStatus.REFUSED


@pytest.mark.parametrize(
    "action",
    [
        Requeue(name("1")),
        Exclude(name("1"), ("n1",)),
        Hold(name("1")),
        Release(name("1")),
        Cancel(name("1")),
    ],
    ids=lambda action: action.kind,
)
def test_nothing_may_be_done_to_a_job_that_is_well(world: World, action: Action) -> None:
    world.submit()
    world.exit("1", 0)
    assert world.act(action) is OutcomeStatus.SUPERSEDED
    assert world.core.jobs["1"].state is JobState.COMPLETED


def test_an_attempt_that_has_not_been_is_refused(world: World) -> None:
    world.submit()
    assert world.act(Cancel(name("1", 2))) is OutcomeStatus.REFUSED
    assert world.act(Cancel(AttemptId("elsewhere", "1", 1))) is OutcomeStatus.SUPERSEDED


def test_draining_ends_when_the_work_does(world: World) -> None:
    job_id = world.submit()
    assert world.act(Drain("n1", "bad GPU", "e")) is OutcomeStatus.DONE
    assert (world.node("n1").state, world.node("n1").reason) == (NodeState.DRAINING, "bad GPU")
    world.exit(job_id, 0)
    assert world.node("n1").state is NodeState.DRAINED
    assert world.act(Undrain("n1", "e")) is OutcomeStatus.DONE
    assert world.act(Undrain("n1", "e2")) is OutcomeStatus.SUPERSEDED


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"gpus_per_node": 5}, "can never offer 1 node with 5 GPUs[.]"),
        ({"node_count": 4}, "can never offer 4 nodes with"),
        ({"node_count": 3, "exclude": ("n1",)}, "can never offer"),
        ({"require": ("n9",)}, "no node is called 'n9'"),
    ],
)
def test_what_this_cluster_cannot_run_is_refused_at_once(world: World, spec: dict[str, Any], what: str) -> None:
    with pytest.raises(ClusterError, match=what):
        world.submit(**spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"env": {"A=B": "x"}},
        {"node_count": 0},
        {"gpus_per_node": -1},
        {"walltime_s": 0.0},
        {"delay_s": -1.0},
        {"max_requeues": -1},
        {"require": ("n1", "n2")},
        {"require": ("n1",), "exclude": ("n1",)},
        {"signal": "NOPE"},
    ],
    ids=str,
)
def test_a_job_that_makes_no_sense_is_named(
    spec: dict[str, Any],
) -> None:
    with pytest.raises(InputError):
        JobSpec(**{"argv": ("true",)} | spec)


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order, the books stay right."""

    @initialize()
    def begin(self) -> None:
        self.world, self.seen = World(nodes=3, gpus=2, slots=2), {}

    @rule(
        gpus=st.integers(0, 2),
        nodes=st.integers(1, 3),
        priority=st.integers(0, 2),
        preemptible=st.booleans(),
        walltime=st.sampled_from([None, 3.0]),
    )
    def submit(self, gpus: int, nodes: int, priority: int, preemptible: bool, walltime: float | None) -> None:
        self.world.submit(
            gpus_per_node=gpus, node_count=nodes, priority=priority, preemptible=preemptible, walltime_s=walltime
        )

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.world.after(seconds)

    @rule(pick=st.integers(0, 99), rank=st.integers(0, 2), status=st.sampled_from([0, 0, 1, -9]))
    def task_ends(self, pick: int, rank: int, status: int) -> None:
        running = list(self.world.core.running.values())
        if running:
            attempt = running[pick % len(running)]
            rank %= len(attempt.nodes)
            if rank not in [e.rank for e in attempt.exits]:
                self.world.core.task_ended(attempt.job_id, attempt.incarnation, rank, status, self.world.now)
                self.world.settle()

    @rule(node=st.sampled_from(["n1", "n2", "n3"]), what=st.sampled_from(["fail", "freeze", "thaw", "return"]))
    def fault(self, node: str, what: str) -> None:
        try:
            self.world.fault(node, what)
        except ClusterError:
            return

    @rule(
        pick=st.integers(0, 99),
        incarnation=st.integers(0, 3),
        make=st.sampled_from(
            [Requeue, Hold, Release, Cancel, lambda a: Requeue(a, ("n1",)), lambda a: Exclude(a, ("n2",))]
        ),
    )
    def act(self, pick: int, incarnation: int, make: Callable[[AttemptId], Action]) -> None:
        jobs = list(self.world.core.jobs)
        if jobs:
            self.world.act(make(name(jobs[pick % len(jobs)], incarnation)))

    @rule(node=st.sampled_from(["n1", "n2"]), undo=st.booleans())
    def drain(self, node: str, undo: bool) -> None:
        self.world.act(Undrain(node, "e") if undo else Drain(node, "why", "e"))

    @rule()
    def restart(self) -> None:
        self.world.core.all_lost("restarted", self.world.now)
        self.world.settle()

    @invariant()
    def books_are_right(self) -> None:
        core = self.world.core
        running = [job for job in core.jobs.values() if job.state is JobState.RUNNING]
        assert {job.job_id for job in running} == set(core.running)
        for job in running:
            assert core.running[job.job_id].incarnation == job.incarnation
        held = [(n, g) for a in core.running.values() for n, gpus in zip(a.nodes, a.devices, strict=True) for g in gpus]
        assert len(held) == len(set(held))
        for node in core.nodes.values():
            tasks = [a for a in core.running.values() if node.name in a.nodes]
            assert len(tasks) <= node.slots
            assert not (node.down and tasks)

    @invariant()
    def incarnations_only_grow(self) -> None:
        for job_id, job in self.world.core.jobs.items():
            assert job.incarnation >= self.seen.get(job_id, 0)
            assert job.restarts <= job.incarnation
            self.seen[job_id] = job.incarnation
        launched = [(e.attempt.job_id, e.attempt.incarnation) for e in self.world.effects if isinstance(e, Launch)]
        assert len(launched) == len(set(launched))

    @invariant()
    def what_ended_stays_ended(self) -> None:
        running = {(a.job_id, a.incarnation) for a in self.world.core.running.values()}
        assert not running & set(self.world.ended)


AnyHistory.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_any_history = AnyHistory.TestCase
