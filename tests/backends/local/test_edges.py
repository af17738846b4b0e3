"""The embedded cluster's decisions at their limits, without a process: instants, places in the queue, requests."""

import signal
import subprocess
from typing import Any

import pytest

from perdure.backends.local import core as module
from perdure.backends.local.core import Core, Launch, SignalNode, SignalTasks, fresh_nodes
from perdure.backends.local.placement import choose_victims
from perdure.backends.local.processes import birth, kill_leftover
from perdure.backends.local.records import LocalEnding, LocalNode
from perdure.backends.local.spec import JobSpec
from perdure.backends.local.store import Leftover
from perdure.errors import ClusterError, InputError
from perdure.model.actions import Down, Drain, Exclude, Extend, Hold, OutcomeStatus, Release, Requeue, Undrain
from perdure.model.jobs import AttemptState, JobState, RetryPreference
from perdure.model.nodes import NodeState
from tests.backends.local.test_core import TIMING, World, name
from tests.backends.local.test_placement import attempt, job, node
from tests.copying import replace

DONE, REFUSED, SUPERSEDED = OutcomeStatus.DONE, OutcomeStatus.REFUSED, OutcomeStatus.SUPERSEDED


@pytest.fixture
def world() -> World:
    return World()


# -- instants


def test_the_walltime_ends_an_attempt_when_it_is_over_and_it_is_killed_so_much_later(world: World) -> None:
    job_id = world.submit(walltime_s=100.0)
    assert world.core.next_wake_s() == 100.0
    world.after(99.5)
    assert world.signals(job_id) == []
    world.after(0.5)
    assert world.signals(job_id) == [signal.SIGTERM]
    assert world.core.next_wake_s() == 100.0 + TIMING.kill_wait_s
    world.after(TIMING.kill_wait_s - 0.5)
    assert world.signals(job_id) == [signal.SIGTERM]
    world.after(0.5)
    assert world.signals(job_id) == [signal.SIGTERM, signal.SIGKILL]
    assert world.core.next_wake_s() is None
    world.exit(job_id, -9)
    ended = world.ended[job_id, 1]
    assert (ended.state, ended.reason, ended.exit_code, ended.signal, ended.end_s) == (
        AttemptState.TIMEOUT, "walltime of 100 s reached", 0, 0, 102.0,
    )  # fmt: skip


def test_a_walltime_counts_from_each_start_and_not_from_the_first(world: World) -> None:
    job_id = world.submit(walltime_s=10.0)
    world.after(8.0)
    world.exit(job_id, 1)
    world.act(Requeue(name(job_id)))
    world.after(8.0)
    assert world.signals(job_id) == []
    world.after(2.0)
    assert world.signals(job_id) == [signal.SIGTERM]


@pytest.mark.parametrize(("fault", "seconds"), [("fail", TIMING.detect_s), ("freeze", TIMING.detect_s)])
def test_a_fault_is_noticed_after_its_time(world: World, fault: str, seconds: float) -> None:
    world.fault("n1", fault)
    assert world.core.next_wake_s() == seconds
    world.after(seconds - 0.25)
    assert world.node("n1").state is NodeState.UP
    world.after(0.25)
    assert (world.node("n1").state, world.node("n1").reason) == (NodeState.DOWN, "Not responding")
    assert world.core.next_wake_s() is None


def test_a_node_that_fails_while_it_is_frozen_is_noticed_as_of_the_first_fault(world: World) -> None:
    world.fault("n1", "freeze")
    world.after(TIMING.detect_s / 2)
    world.fault("n1", "fail")
    world.after(TIMING.detect_s / 2)
    assert world.node("n1").state is NodeState.DOWN


def test_what_runs_on_a_thawed_node_is_told_to_end_and_then_killed(world: World) -> None:
    world.submit()
    world.fault("n1", "freeze")
    world.after(TIMING.detect_s)
    world.fault("n1", "thaw")
    started = world.now

    def sent() -> list[int]:
        return [e.signum for e in world.effects if isinstance(e, SignalNode)][2:]

    assert world.core.next_wake_s() == started + TIMING.thaw_s
    world.after(TIMING.thaw_s - 0.25)
    assert sent() == []
    world.after(0.25)
    assert sent() == [signal.SIGTERM]
    assert world.core.next_wake_s() == started + TIMING.thaw_s + TIMING.kill_wait_s
    world.after(TIMING.kill_wait_s)
    assert sent() == [signal.SIGTERM, signal.SIGKILL]
    assert world.node("n1").state is NodeState.UP


def test_the_cluster_s_own_requeue_waits_as_long_as_is_set(world: World) -> None:
    world.core.timing = replace(TIMING, requeue_delay_s=30.0)
    job_id = world.submit()
    world.fault("n1", "fail")
    world.after(TIMING.detect_s)
    record = world.core.jobs[job_id]
    assert (record.state, record.eligible_s, record.restarts, record.end_s) == (
        JobState.PENDING, world.now + 30.0, 1, None,
    )  # fmt: skip
    world.after(30.0)
    assert world.core.jobs[job_id].state is JobState.RUNNING


# -- ends


def test_a_gang_has_completed_once_all_have(world: World) -> None:
    job_id = world.submit(node_count=2)
    world.core.task_ended(job_id, 1, 0, 0, world.now)
    world.settle()
    assert job_id in world.core.running
    world.core.task_ended(job_id, 1, 1, 0, world.now)
    world.settle()
    assert world.ended[job_id, 1].state is AttemptState.COMPLETED
    assert world.core.jobs[job_id].end_s == world.now


def test_the_first_of_two_failures_says_how_and_others_are_told_once(world: World) -> None:
    job_id = world.submit(node_count=3)
    world.core.task_ended(job_id, 1, 2, 5, world.now)
    world.core.task_ended(job_id, 1, 0, 6, world.now)
    world.settle()
    assert [e.ranks for e in world.effects if isinstance(e, SignalTasks)] == [(0, 1)]
    world.core.task_ended(job_id, 1, 1, -15, world.now)
    world.settle()
    ended = world.ended[job_id, 1]
    assert (ended.exit_code, ended.signal, ended.reason) == (5, 0, "task 2 on n3 failed first")


def test_what_another_attempt_or_nobody_s_task_reports_is_not_heard(world: World) -> None:
    job_id = world.submit()
    world.core.task_ended(job_id, 2, 0, 1, world.now)
    world.core.task_ended("99", 1, 0, 1, world.now)
    world.core.launch_failed(job_id, 2, "x", world.now)
    world.settle()
    assert job_id in world.core.running
    world.core.launch_failed(job_id, 1, "no such program", world.now)
    world.settle()
    ended = world.ended[job_id, 1]
    assert (ended.state, ended.reason, ended.failed_nodes) == (AttemptState.LAUNCH_FAILED, "no such program", ())


# -- the queue


def test_of_equal_priority_the_earlier_number_goes_first(world: World) -> None:
    world.submit(node_count=3, gpus_per_node=4)
    waiting = [world.submit(gpus_per_node=4, node_count=3) for _ in range(10)]
    world.exit("1", 0, 0, 0)
    assert list(world.core.running) == [waiting[0]]
    assert [waiting[0], waiting[9]] == ["2", "11"]


def test_a_narrower_job_of_lower_rank_starts_where_the_wider_does_not_fit(world: World) -> None:
    world.submit(node_count=3, gpus_per_node=3)
    wide, narrow = world.submit(gpus_per_node=2, priority=5), world.submit(gpus_per_node=1)
    assert world.core.jobs[wide].reason == "Resources"
    assert world.core.jobs[narrow].state is JobState.RUNNING


def test_a_held_job_waits_until_it_is_released(world: World) -> None:
    job_id = world.submit(hold=True)
    assert (world.core.jobs[job_id].state, world.core.jobs[job_id].reason) == (JobState.HELD, "JobHeldUser")
    assert world.act(Release(name(job_id, 0))) is DONE
    assert world.core.jobs[job_id].state is JobState.RUNNING
    later = world.submit(delay_s=60.0)
    assert world.act(Hold(name(later, 0))) is DONE
    assert (world.core.jobs[later].state, world.core.jobs[later].reason) == (JobState.HELD, "JobHeldUser")
    world.after(60.0)
    assert world.core.jobs[later].state is JobState.HELD
    assert world.act(Hold(name(later, 0))) is SUPERSEDED
    assert world.act(Release(name(job_id, 1))) is SUPERSEDED


def test_so_many_wait_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    for _ in range(2):
        world.submit(hold=True)
    with pytest.raises(ClusterError, match="2 jobs wait already"):
        world.submit()


def test_of_equal_victims_the_latest_started_gives_way() -> None:
    nodes = [node("a")]
    jobs = {"1": job("1", preemptible=True), "2": job("2", preemptible=True)}
    running = [attempt("1", ("a", [0, 1]), start_s=5.0), attempt("2", ("a", [2, 3]), start_s=9.0)]
    urgent = job("9", priority=5, gpus_per_node=2)
    assert [each.job_id for each in choose_victims(urgent, nodes, running, jobs)] == ["2"]
    assert [each.job_id for each in choose_victims(urgent, nodes, running[::-1], jobs)] == ["2"]


def test_a_job_is_not_preempted_by_one_of_its_own_priority(world: World) -> None:
    world.submit(node_count=3, gpus_per_node=4, preemptible=True, priority=1)
    world.submit(gpus_per_node=4, priority=1)
    assert not [e for e in world.effects if isinstance(e, SignalTasks)]


# -- requests


def test_a_node_is_given_up_and_taken_back(world: World) -> None:
    job_id = world.submit()
    assert world.act(Down("n1", "silent", "e")) is DONE
    assert (world.node("n1").state, world.node("n1").reason, world.node("n1").since_s) == (
        NodeState.DOWN, "silent", world.now,
    )  # fmt: skip
    assert world.ended[job_id, 1].failed_nodes == ("n1",)
    assert SignalNode("n1", signal.SIGKILL) in world.effects
    assert world.act(Down("n1", "again", "e2")) is DONE
    assert world.node("n1").reason == "silent"
    world.now += 5.0
    assert world.act(Undrain("n1", "e")) is DONE
    assert (world.node("n1").state, world.node("n1").reason, world.node("n1").since_s) == (NodeState.UP, "", 5.0)


def test_a_node_whose_fault_goes_on_does_not_come_back_by_a_word(world: World) -> None:
    world.fault("n1", "fail")
    world.after(TIMING.detect_s)
    assert world.act(Undrain("n1", "e")) is SUPERSEDED
    assert world.act(Drain("n1", "fan", "e")) is DONE
    assert world.act(Undrain("n1", "e")) is DONE
    assert world.node("n1").state is NodeState.DOWN


def test_a_drained_node_tells_the_first_reason_and_unknown_ones_are_refused(world: World) -> None:
    world.act(Drain("n1", "first", "e"))
    assert world.act(Drain("n1", "second", "f")) is DONE
    assert world.node("n1").reason == "first"
    for action in (Drain("n9", "x", "e"), Undrain("n9", "e"), Down("n9", "x", "e")):
        assert world.act(action) is REFUSED
    assert world.submit(require=("n1",)) not in world.core.running


def test_a_walltime_grows_and_never_shrinks(world: World) -> None:
    job_id = world.submit(walltime_s=100.0)
    assert world.act(Extend(name(job_id), 150.0)) is DONE
    assert world.core.next_wake_s() == 150.0
    assert world.act(Extend(name(job_id), 120.0)) is DONE
    assert world.core.next_wake_s() == 150.0
    free = world.submit()
    world.act(Extend(name(free), 120.0))
    assert world.core.jobs[free].spec.walltime_s is None
    world.exit(free, 0)
    assert world.act(Extend(name(free), 120.0)) is SUPERSEDED


@pytest.mark.parametrize(
    ("exclude", "node_count", "status"), [(1, 2, DONE), (2, 2, REFUSED), (2, 1, DONE), (3, 1, REFUSED)]
)
def test_as_many_nodes_must_be_left_as_it_starts_on(
    world: World, exclude: int, node_count: int, status: OutcomeStatus
) -> None:
    job_id = world.submit(node_count=2)
    world.exit(job_id, 1, 1)
    off = tuple(f"n{n}" for n in range(1, exclude + 1))
    assert world.act(Requeue(name(job_id), (*off, "n77"), 0.0, node_count)) is status
    if status is DONE:
        record = world.core.jobs[job_id]
        assert (record.excluded, record.node_count, record.restarts, record.state) == (
            off, node_count, 1, JobState.RUNNING,
        )  # fmt: skip


def test_what_is_kept_off_adds_up_and_lets_go_of_what_was_required(world: World) -> None:
    job_id = world.submit(require=("n1",), exclude=("n2",), hold=True)
    assert world.act(Exclude(name(job_id, 0), ("n1", "n2"))) is DONE
    record = world.core.jobs[job_id]
    assert (record.excluded, record.required) == (("n2", "n1"), ())
    assert world.act(Exclude(name(job_id, 0), ("n3",))) is REFUSED


@pytest.mark.parametrize(("most", "may"), [(None, True), (0, False), (1, True)])
def test_how_often_a_job_may_restart(most: int | None, may: bool) -> None:
    assert job(max_requeues=most).may_restart is may
    assert not job(may_requeue=False, max_requeues=most).may_restart
    assert not replace(job(max_requeues=1), restarts=1).may_restart


# -- what is told


def test_nodes_tell_the_gpus_in_use_and_whether_they_are_busy(world: World) -> None:
    world.submit(gpus_per_node=3)
    world.submit(gpus_per_node=1)
    world.act(Drain("n1", "fan", "e"))
    told = {each.name: (each.state, each.gpus, each.gpus_used) for each in world.core.told_nodes()}
    assert told == {"n1": (NodeState.DRAINING, 4, 4), "n2": (NodeState.UP, 4, 0), "n3": (NodeState.UP, 4, 0)}
    assert {each.partitions for each in world.core.told_nodes()} == {("main",)}  # as jobs have it


def test_a_job_and_its_attempt_are_told_as_they_stand(world: World) -> None:
    spec = {
        "name": "train",
        "user": "ada",
        "gpus_per_node": 2,
        "node_count": 2,
        "min_nodes": 1,
        "wish": RetryPreference.NEVER,
    }
    job_id = world.submit(**spec, walltime_s=9.0, priority=3)
    told, ran = world.core.jobs[job_id].told("here"), world.core.running[job_id].told("here")
    assert (told.name, told.user, told.gpus, told.node_count, told.restart_nodes) == ("train", "ada", 4, 2, (1, 2))
    assert (told.cluster, told.walltime_s, told.wish, told.partition) == ("here", 9.0, RetryPreference.NEVER, "main")
    assert told.required_by == "the job's owner"  # this cluster has no -w
    assert (ran.id, ran.gpus, ran.nodes, ran.user) == (
        name(job_id).__class__("here", job_id, 1),
        4,
        ("n1", "n2"),
        "ada",
    )
    assert (ran.stdout, ran.stderr) == (f"/logs/{job_id}-1.log",) * 2
    assert job().told("here").restart_nodes is None


def test_what_is_known_of_a_node_is_kept_when_the_cluster_is_made_anew() -> None:
    known = {"n1": LocalNode("n1", 1, 1, 7.0, drained="fan"), "n9": LocalNode("n9", 1, 1, 7.0)}
    made = fresh_nodes(2, 8, 4, known, 50.0)
    assert made == [LocalNode("n1", 8, 4, 7.0, drained="fan"), LocalNode("n2", 8, 4, 50.0)]


def test_a_restart_takes_faults_away_and_goes_on_counting_jobs(world: World) -> None:
    world.submit()
    world.fault("n2", "freeze")
    world.core.all_lost("restarted", 5.0)
    assert [(node.fault, node.fault_s) for node in world.core.nodes.values()] == [(None, 0.0)] * 3
    again = Core(world.core.nodes.values(), world.core.jobs.values(), [], 2, TIMING, "{job}-{incarnation}")
    assert again.submit(JobSpec(("true",)), 6.0) == "2"
    again.tick(6.0)
    assert [e.attempt.job_id for e in again.take().effects if isinstance(e, Launch)] == ["1", "2"]
    again.forget(["2"])
    assert "2" not in again.jobs


def test_a_cluster_that_comes_back_with_fewer_nodes_has_lost_what_ran_on_the_others(world: World) -> None:
    job_id = world.submit(node_count=3)
    (ran,) = world.core.running.values()
    fewer = [world.core.nodes["n1"]]
    again = Core(fewer, world.core.jobs.values(), [ran], 2, TIMING, "{job}-{incarnation}")
    again.all_lost("restarted", 5.0)
    ended = again.take()
    assert [(a.state, a.failed_nodes) for a in ended.attempts] == [(AttemptState.NODE_FAIL, ())]
    assert again.jobs[job_id].state is JobState.PENDING


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"node_count": 2}, "BadConstraints"), ({"gpus_per_node": 4}, "BadConstraints"),
        ({"require": ("n3",)}, "BadConstraints"), ({"gpus_per_node": 2}, "Resources"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_cluster_that_came_back_smaller_can_never_start_does_not_wait_for_others(
    world: World, spec: dict[str, Any], reason: str
) -> None:
    job_id = world.core.submit(JobSpec(("true",), **spec), 0.0)
    smaller = [replace(world.core.nodes["n1"], gpus=2, drained="repair")]
    again = Core(smaller, world.core.jobs.values(), (), 3, TIMING, "{job}-{incarnation}")
    again.tick(1.0)
    assert (again.jobs[job_id].state, again.jobs[job_id].reason) == (JobState.PENDING, reason)


@pytest.mark.parametrize(
    "spec",
    [
        {"walltime_s": 0.5}, {"memory_mib": 1}, {"file_size_mib": 1}, {"min_nodes": 1}, {"max_requeues": 0},
        {"delay_s": 0.0}, {"signal_before_s": 0.0}, {"require": ("n1",)}, {"signal": "SIGUSR1"}, {"gpus_per_node": 0},
    ],
    ids=str,
)  # fmt: skip
def test_the_least_that_a_job_may_ask_for(spec: dict[str, Any]) -> None:
    assert JobSpec(("true",), **spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"memory_mib": 0}, {"file_size_mib": 0}, {"min_nodes": 2}, {"min_nodes": -1}, {"signal_before_s": -1.0},
        {"argv": ("",)}, {"env": {"": "x"}}, {"env": {"A": "x\0"}}, {"name": "\0"}, {"user": "\0"}, {"workdir": "\0"},
    ],
    ids=str,
)  # fmt: skip
def test_one_step_less_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        JobSpec(**{"argv": ("true",)} | spec)


def test_an_attempt_that_ends_takes_no_new_reason_s_time() -> None:
    world = World()
    job_id = world.submit()
    world.core.end_attempt(world.core.running[job_id], AttemptState.PREEMPTED, "first", 0.0)
    world.core.end_attempt(world.core.running[job_id], AttemptState.CANCELLED, "second", 1.5)
    assert world.core.running[job_id].ending == LocalEnding(AttemptState.CANCELLED, "second", TIMING.kill_wait_s)


def test_a_limit_that_is_too_low_is_named() -> None:
    with pytest.raises(InputError, match=r"walltime_s=-5 is not above 0"):
        JobSpec(("true",), walltime_s=-5.0)


@pytest.mark.parametrize(("born", "is_killed"), [("", True), ("another", False)])
def test_a_process_that_merely_has_the_number_of_an_old_one_is_left_alone(born: str, is_killed: bool) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            kill_leftover(Leftover(process.pid, born or birth(process.pid) or "", "1#1.0"), "PERDURE_STATE=/x")
            killed_by = process.wait(20) if is_killed else process.poll()
            assert killed_by == (-signal.SIGKILL if is_killed else None)
        finally:
            process.kill()
