"""Facts that hold for every `Backend`, to be run against your own: each check takes a `Harness` and asserts.

    @pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
    def test_my_backend(check, my_harness):
        check(my_harness)

The checks share one cluster and leave it as they found it: nodes in service, no job of theirs running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from perdure.backends.check_harness import Harness, Program
from perdure.backends.protocol import TAIL_BYTES
from perdure.errors import ClusterBusy
from perdure.model.actions import (
    Action,
    Cancel,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    JobAction,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import NodeState
from perdure.model.observation import Known, Observation, changes
from perdure.model.output import OutputFile

T = TypeVar("T")

FOREVER_S = 3600.0
RECENT_S = 120.0  # attempts that ended since are shown where a check fails


def check_success_is_seen(harness: Harness) -> None:
    """A job that ends well is COMPLETED with code 0, and its attempt has a number, nodes, times and its log."""
    job_id = harness.submit(Program(says="all is well"))
    attempt = _ended(harness, job_id)
    assert attempt.state is AttemptState.COMPLETED
    assert (attempt.exit_code, attempt.signal) == (0, 0)
    assert attempt.id.incarnation > 0
    assert len(attempt.nodes) == 1
    assert set(attempt.nodes) <= set(harness.nodes)
    assert attempt.end_s is not None
    assert attempt.start_s <= attempt.end_s
    assert b"all is well" in _log(harness, attempt).tail
    _until(harness, lambda seen: _job(seen, job_id).state is JobState.COMPLETED, "the job to be completed")


def check_failure_is_seen(harness: Harness) -> None:
    """A job that fails is FAILED with its exit code and its log."""
    job_id = harness.submit(Program(says="RuntimeError: no luck", exit_code=3))
    attempt = _ended(harness, job_id)
    assert attempt.state is AttemptState.FAILED
    assert (attempt.exit_code, attempt.signal) == (3, 0)
    assert b"RuntimeError: no luck" in _log(harness, attempt).tail
    _until(harness, lambda seen: _job(seen, job_id).state is JobState.FAILED, "the job to have failed")


def check_output_is_bounded(harness: Harness) -> None:
    """Of a long log its end is read, at most as much as was asked for; a log that is not there is named."""
    attempt = _ended(harness, harness.submit(Program(says="x" * 5000 + " the end")))
    log = _log(harness, attempt, max_bytes=1000)
    assert len(log.tail) <= 1000
    assert b"the end" in log.tail
    assert log.head.startswith(b"x")
    nowhere = harness.backend.output(replace(attempt, stdout="/nowhere/at/all", stderr=""))
    assert nowhere.main is None
    assert [absent.path for absent in nowhere.absent] == ["/nowhere/at/all"]


def _log(harness: Harness, attempt: Attempt, max_bytes: int = TAIL_BYTES) -> OutputFile:
    log = harness.backend.output(attempt, max_bytes).main
    assert log is not None
    return log


def check_gang_has_its_nodes(harness: Harness) -> None:
    """A gang runs on as many different nodes as it asked for."""
    attempt = _ended(harness, harness.submit(Program(node_count=3)))
    assert attempt.state is AttemptState.COMPLETED
    assert len(set(attempt.nodes)) == 3


def check_looking_changes_nothing(harness: Harness) -> None:
    """Looking again at a quiet cluster tells nothing new; what clears up after a job may still be news for a while."""
    job_id = harness.submit(Program(exit_code=1))
    _until(harness, lambda seen: _job(seen, job_id).state.is_over, "the job to be over")
    known, _ = changes(Known(), harness.backend.observe(harness.since_s))

    def nothing_new(seen: Observation) -> bool:
        nonlocal known
        known, events = changes(known, seen)
        return not events

    for _ in range(2):
        _until(harness, nothing_new, "a look that tells nothing new")


def check_requeue_is_one_new_attempt(harness: Harness) -> None:
    """Requeueing a failed job once or twice gives one new attempt with a larger incarnation."""
    job_id = harness.submit(Program(exit_code=1))
    first = _ended(harness, job_id)
    action = Requeue(first.id)
    assert _looked_up(harness, action) is None
    assert _status(harness, action) is OutcomeStatus.DONE
    assert _status(harness, action) is OutcomeStatus.DONE
    second = _ended(harness, job_id, after=first)
    assert second.id.incarnation > first.id.incarnation
    assert _status(harness, action) is OutcomeStatus.DONE
    assert _looked_up(harness, action) is OutcomeStatus.DONE
    _until(harness, lambda seen: _job(seen, job_id).state is JobState.FAILED, "the job to have failed again")
    assert len(_attempts(harness.backend.observe(harness.since_s), job_id)) == 2


def check_requeue_avoids_excluded_nodes(harness: Harness) -> None:
    """A job requeued away from a node does not run there again before that is lifted."""
    job_id = harness.submit(Program(exit_code=1))
    first = _ended(harness, job_id)
    assert _status(harness, Requeue(first.id, exclude=first.nodes)) is OutcomeStatus.DONE
    second = _ended(harness, job_id, after=first)
    assert not set(second.nodes) & set(first.nodes)
    others = tuple(name for name in harness.nodes if name not in first.nodes)
    assert _status(harness, Requeue(second.id, exclude=others, lift=first.nodes)) is OutcomeStatus.DONE
    assert _ended(harness, job_id, after=second).nodes == first.nodes


def check_restart_on_fewer_nodes(harness: Harness) -> None:
    """A gang whose owner allows it is restarted on fewer nodes while one is out, and on all of them later."""
    job_id = harness.submit(Program(node_count=3, min_nodes=2, exit_code=1))
    first = _ended(harness, job_id)
    assert _job(harness.backend.observe(harness.since_s), job_id).restart_nodes == (2, 3)
    with _drained(harness, (first.nodes[0], *(set(harness.nodes) - set(first.nodes)))):
        fewer = Requeue(first.id, node_count=2)
        assert _status(harness, fewer) is OutcomeStatus.DONE
        assert _status(harness, fewer) is OutcomeStatus.DONE
        second = _ended(harness, job_id, after=first)
    assert set(second.nodes) == set(first.nodes[1:])
    assert _status(harness, Requeue(second.id, node_count=3)) is OutcomeStatus.DONE
    third = _ended(harness, job_id, after=second)
    assert len(set(third.nodes)) == 3


def check_a_waiting_gang_starts_on_fewer_nodes(harness: Harness) -> None:
    """A gang that waits for a node that is out starts once it is told to do with fewer."""
    out = harness.nodes[2:]
    with _drained(harness, out):
        job_id = harness.submit(Program(node_count=3, min_nodes=2))
        waiting = _until(harness, lambda seen: _waiting(seen, job_id), "the job to wait")
        assert waiting.node_count == 3
        action = Exclude(AttemptId(harness.backend.cluster, job_id, 0), out[:1], 2)
        assert _status(harness, action) is OutcomeStatus.DONE
        assert set(_ended(harness, job_id).nodes) == set(harness.nodes[:2])


def check_requeue_waits_as_asked(harness: Harness) -> None:
    """A job requeued with a delay is not eligible before the delay is over."""
    job_id = harness.submit(Program(exit_code=1))
    first = _ended(harness, job_id)
    asked_s = harness.backend.observe(harness.since_s).time_s
    assert _status(harness, Requeue(first.id, delay_s=FOREVER_S)) is OutcomeStatus.DONE
    job = _until(harness, lambda seen: _waiting(seen, job_id), "the job to wait")
    assert job.eligible_s is not None
    assert job.eligible_s >= asked_s + FOREVER_S - 60.0
    _cancel(harness, first.id)


def check_requeue_needs_the_owners_leave(harness: Harness) -> None:
    """A job that must not be requeued is not."""
    job_id = harness.submit(Program(exit_code=1, may_requeue=False))
    first = _ended(harness, job_id)
    assert not _job(harness.backend.observe(harness.since_s), job_id).may_requeue
    assert _status(harness, Requeue(first.id)) is OutcomeStatus.REFUSED


def check_stale_actions_change_nothing(harness: Harness) -> None:
    """What was decided on an attempt touches neither the one that came after it nor another's job of that id."""
    job_id = harness.submit(Program(exit_code=1, run_s=1.0))
    first = _ended(harness, job_id)
    assert _status(harness, Requeue(first.id, delay_s=0.0)) is OutcomeStatus.DONE
    second = _until(harness, lambda seen: _newer(seen, job_id, first), "the second attempt to start")
    for stale in (Cancel(first.id), Hold(first.id), Exclude(first.id, first.nodes), Release(first.id)):
        assert _status(harness, stale) is OutcomeStatus.SUPERSEDED, stale.kind
    assert _status(harness, Cancel(second.id, user="who-had-the-id")) is OutcomeStatus.SUPERSEDED
    ended = _ended(harness, job_id, after=first)
    assert (ended.id, ended.state) == (second.id, AttemptState.FAILED)


def check_hold_and_release(harness: Harness) -> None:
    """A held job does not start, though a later one does; released, it starts."""
    with _drained(harness, harness.nodes):
        held_id = harness.submit(Program())
        _until(harness, lambda seen: _waiting(seen, held_id), "the job to wait")
        action = Hold(AttemptId(harness.backend.cluster, held_id, 0))
        assert _looked_up(harness, action) is None
        assert _status(harness, action) is OutcomeStatus.DONE
        assert _looked_up(harness, action) is OutcomeStatus.DONE
    _ended(harness, harness.submit(Program()))
    job = _job(harness.backend.observe(harness.since_s), held_id)
    assert job.state is JobState.HELD
    assert _status(harness, Release(action.attempt)) is OutcomeStatus.DONE
    assert _ended(harness, held_id).state is AttemptState.COMPLETED


def check_exclude_of_a_waiting_job(harness: Harness) -> None:
    """A job that waits can be kept off nodes before it starts."""
    barred = harness.nodes[:-1]
    with _drained(harness, harness.nodes):
        job_id = harness.submit(Program())
        _until(harness, lambda seen: _waiting(seen, job_id), "the job to wait")
        assert _status(harness, Exclude(AttemptId(harness.backend.cluster, job_id, 0), barred)) is OutcomeStatus.DONE
    assert set(_ended(harness, job_id).nodes).isdisjoint(barred)


def check_cancel_ends_a_running_job(harness: Harness) -> None:
    """A cancelled job ends as CANCELLED and stays so."""
    job_id = harness.submit(Program(run_s=FOREVER_S))
    running = _until(harness, lambda seen: _newer(seen, job_id, None), "the job to run")
    action = Cancel(running.id)
    assert _looked_up(harness, action) is None
    assert _status(harness, action) is OutcomeStatus.DONE
    assert _looked_up(harness, action) is OutcomeStatus.DONE
    assert _ended(harness, job_id).state is AttemptState.CANCELLED
    _until(harness, lambda seen: _job(seen, job_id).state is JobState.CANCELLED, "the job to be cancelled")
    assert _status(harness, Requeue(running.id)) is not OutcomeStatus.DONE


def check_drain_and_undrain(harness: Harness) -> None:
    """A drained node gets no new work; undrained it does."""
    node = harness.nodes[0]
    with _drained(harness, (node,)):
        seen = harness.backend.observe(harness.since_s)
        assert next(n for n in seen.nodes if n.name == node).state in (NodeState.DRAINING, NodeState.DRAINED)
        wide_id = harness.submit(Program(node_count=len(harness.nodes)))
        assert node not in _ended(harness, harness.submit(Program())).nodes
        assert _job(harness.backend.observe(harness.since_s), wide_id).state.is_waiting
    assert node in _ended(harness, wide_id).nodes


def check_preempting_puts_a_running_job_back_once(harness: Harness) -> None:
    """A job that runs is put back and runs again; asking twice does so once, and its attempt did not fail."""
    job_id = harness.submit(Program(run_s=FOREVER_S))
    first = _until(harness, lambda seen: _newer(seen, job_id, None), "the job to run")
    action = Preempt(first.id)
    assert _looked_up(harness, action) is None
    assert _status(harness, action) is OutcomeStatus.DONE
    assert _status(harness, action) is OutcomeStatus.DONE
    second = _until(harness, lambda seen: _newer(seen, job_id, first), "the job to run again")
    assert second.id.incarnation > first.id.incarnation
    assert _ended(harness, job_id).state is AttemptState.REQUEUED
    _cancel(harness, second.id)


def check_granted_time(harness: Harness) -> None:
    """A running job is given more time, and never less; one that has ended is not."""
    job_id = harness.submit(Program(run_s=FOREVER_S))
    attempt = _until(harness, lambda seen: _newer(seen, job_id, None), "the job to run")
    before_s = _job(harness.backend.observe(harness.since_s), job_id).walltime_s
    if before_s is not None:
        longer_s = before_s + 600.0
        for wanted_s in (longer_s, longer_s, 60.0):
            assert _status(harness, Extend(attempt.id, wanted_s)) is OutcomeStatus.DONE
        _until(harness, lambda seen: _job(seen, job_id).walltime_s == longer_s, "the longer walltime")
    _cancel(harness, attempt.id)
    assert _status(harness, Extend(attempt.id, 1e6)) is OutcomeStatus.SUPERSEDED


def check_a_node_given_up_ends_what_runs_there(harness: Harness) -> None:
    """A node that is set down loses what runs on it at once and gets no new work, until it is taken back."""
    job_id = harness.submit(Program(run_s=FOREVER_S))
    first = _until(harness, lambda seen: _newer(seen, job_id, None), "the job to run")
    (node,) = first.nodes
    # Slurm's accounting counts whole seconds, and a start that loses its node within one may be missing.
    _until(harness, lambda seen: seen.time_s >= first.start_s + 2 or None, "it to run for a second")
    episode = str(harness.backend.observe(harness.since_s).time_s)
    action = Down(node, "a check of the backend", episode)
    assert _looked_up(harness, action) is None
    try:
        assert _status(harness, action) is OutcomeStatus.DONE
        assert _looked_up(harness, action) is OutcomeStatus.DONE
        assert _ended(harness, job_id).state is AttemptState.NODE_FAIL
        second = _until(harness, lambda seen: _newer(seen, job_id, first), "the manager to requeue")
        assert node not in second.nodes
        _cancel(harness, second.id)
    finally:
        assert _status(harness, Undrain(node, episode)) is OutcomeStatus.DONE
    _until(harness, lambda seen: all(n.state is NodeState.UP for n in seen.nodes), "the node to be back")


def check_node_death(harness: Harness) -> None:
    """The death of a node is told as NODE_FAIL with its name; the manager's own requeue shows as a newer attempt."""
    job_id = harness.submit(Program(run_s=FOREVER_S))
    first = _until(harness, lambda seen: _newer(seen, job_id, None), "the job to run")
    (node,) = first.nodes
    harness.fail_node(node)
    try:
        ended = _ended(harness, job_id)
        told = (ended.id, ended.state, ended.failed_nodes)
        assert told == (first.id, AttemptState.NODE_FAIL, (node,)), f"told {ended}, which began as {first}"
        second = _until(harness, lambda seen: _newer(seen, job_id, first), "the manager to requeue")
        assert second.nodes != first.nodes
        assert _status(harness, Requeue(first.id, exclude=(node,))) is OutcomeStatus.SUPERSEDED
        assert _newer(harness.backend.observe(harness.since_s), job_id, first) == second
        _cancel(harness, second.id)
    finally:
        harness.return_node(node)
    _until(harness, lambda seen: all(n.state is NodeState.UP for n in seen.nodes), "the node to be back")


def check_unknown_things(harness: Harness) -> None:
    """An action on a job or node that does not exist is an outcome, not an error."""
    nobody = AttemptId(harness.backend.cluster, "999999999", 1)
    actions: tuple[JobAction, ...] = (
        Requeue(nobody),
        Exclude(nobody, (harness.nodes[0],)),
        Hold(nobody),
        Release(nobody),
        Cancel(nobody),
    )
    for action in actions:
        assert _status(harness, action) is not OutcomeStatus.DONE, action.kind
    assert _status(harness, Drain("no-such-node", "check", "check-unknown")) is OutcomeStatus.REFUSED
    assert _status(harness, Undrain("no-such-node", "check-unknown")) is not OutcomeStatus.DONE


def check_silence_is_named(harness: Harness) -> None:
    """While the manager cannot be reached, looking says so and acting raises; afterwards nothing is lost or doubled."""
    job_id = harness.submit(Program(exit_code=1))
    first = _ended(harness, job_id)
    action = Requeue(first.id)
    with harness.cut_off():
        assert "controller" in harness.backend.observe(harness.since_s).unseen
        try:
            harness.backend.perform(action)
        except ClusterBusy:
            pass
        else:
            raise AssertionError("an action was carried out by a manager that cannot be reached")
    _until(harness, lambda seen: not seen.unseen, "the manager to be back")
    assert _looked_up(harness, action) is None
    assert _status(harness, action) is OutcomeStatus.DONE
    second = _ended(harness, job_id, after=first)
    assert second.id.incarnation > first.id.incarnation


BACKEND_CHECKS: tuple[Callable[[Harness], None], ...] = (
    check_success_is_seen,
    check_failure_is_seen,
    check_output_is_bounded,
    check_gang_has_its_nodes,
    check_looking_changes_nothing,
    check_requeue_is_one_new_attempt,
    check_requeue_avoids_excluded_nodes,
    check_restart_on_fewer_nodes,
    check_a_waiting_gang_starts_on_fewer_nodes,
    check_requeue_waits_as_asked,
    check_requeue_needs_the_owners_leave,
    check_stale_actions_change_nothing,
    check_hold_and_release,
    check_exclude_of_a_waiting_job,
    check_cancel_ends_a_running_job,
    check_preempting_puts_a_running_job_back_once,
    check_granted_time,
    check_drain_and_undrain,
    check_a_node_given_up_ends_what_runs_there,
    check_node_death,
    check_unknown_things,
    check_silence_is_named,
)


# Looking


def _until(harness: Harness, condition: Callable[[Observation], T | None], what: str) -> T:
    """Look until the condition gives something true, and return that."""
    seen = harness.backend.observe(harness.since_s)
    if found := condition(seen):
        return found
    for _ in harness.moments():
        seen = harness.backend.observe(harness.since_s)
        if found := condition(seen):
            return found
    raise AssertionError(f"waited without success for {what}; last seen: {_words(seen)}")


def _words(seen: Observation) -> str:
    """What was seen, one thing a line, but for the jobs and attempts that were over long before."""
    recent = [a for a in seen.attempts if a.end_s is None or a.end_s > seen.time_s - RECENT_S]
    ids = {attempt.id.job_id for attempt in recent}
    jobs = [job for job in seen.jobs if job.job_id in ids or not job.state.is_over]
    unseen = (f"unseen: {part}: {why}" for part, why in seen.unseen.items())
    return "\n".join(("", *unseen, *map(str, (*jobs, *recent, *seen.nodes))))


def _job(seen: Observation, job_id: str) -> Job:
    return next(job for job in seen.jobs if job.job_id == job_id)


def _waiting(seen: Observation, job_id: str) -> Job | None:
    return next((job for job in seen.jobs if job.job_id == job_id and job.state.is_waiting), None)


def _attempts(seen: Observation, job_id: str) -> list[Attempt]:
    """All attempts of a job, oldest first."""
    return sorted((a for a in seen.attempts if a.id.job_id == job_id), key=lambda a: a.id.incarnation)


def _newer(seen: Observation, job_id: str, than: Attempt | None) -> Attempt | None:
    """The oldest attempt of a job after `than`."""
    floor = than.id.incarnation if than else 0
    return next((a for a in _attempts(seen, job_id) if a.id.incarnation > floor), None)


def _ended(harness: Harness, job_id: str, after: Attempt | None = None) -> Attempt:
    """The first attempt of a job, or the first after another, once it is over."""

    def over(seen: Observation) -> Attempt | None:
        attempt = _newer(seen, job_id, after)
        return attempt if attempt is not None and attempt.state.is_over else None

    return _until(harness, over, f"job {job_id} to end")


# Acting


def _status(harness: Harness, action: Action) -> OutcomeStatus:
    return _answered(harness, lambda: harness.backend.perform(action)).status


def _looked_up(harness: Harness, action: Action) -> OutcomeStatus | None:
    outcome = _answered(harness, lambda: harness.backend.lookup(action))
    return None if outcome is None else outcome.status


def _answered(harness: Harness, ask: Callable[[], T]) -> T:
    """Call the resource manager; retry while it is still cleaning up the previous job."""
    try:
        return ask()
    except ClusterBusy as err:
        busy = err
    for _ in harness.moments():
        try:
            return ask()
        except ClusterBusy as err:
            busy = err
    raise busy


def _cancel(harness: Harness, attempt: AttemptId) -> None:
    assert _status(harness, Cancel(attempt)) is OutcomeStatus.DONE
    _until(harness, lambda seen: _job(seen, attempt.job_id).state.is_over, f"job {attempt.job_id} to be cancelled")


@contextmanager
def _drained(harness: Harness, nodes: tuple[str, ...]) -> Iterator[None]:
    """Some nodes take no new work inside this block."""
    episode = str(harness.backend.observe(harness.since_s).time_s)
    try:
        for node in nodes:
            action = Drain(node, "a check of the backend", episode)
            assert _looked_up(harness, action) is None
            assert _status(harness, action) is OutcomeStatus.DONE
            assert _looked_up(harness, action) is OutcomeStatus.DONE
        yield
    finally:
        for node in nodes:
            assert _status(harness, Undrain(node, episode)) is OutcomeStatus.DONE
