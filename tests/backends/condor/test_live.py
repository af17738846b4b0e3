"""What a real HTCondor does, as the backend tells it; skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.backends.check_harness import Program
from perdure.backends.condor.backend import CondorBackend
from perdure.backends.condor.checkup import check_schedd
from perdure.backends.condor.settings import CondorSettings
from perdure.backends.condor.tools import CondorTools
from perdure.backends.kind import NOBODY_ACTS, Mark
from perdure.errors import ClusterBusy
from perdure.model.actions import Comment, Drain, Extend, Hold, OutcomeStatus, Preempt, Release, Requeue, Undrain
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, JobState, RetryPreference
from perdure.model.nodes import NodeState
from perdure.model.observation import Observation
from perdure.model.output import OutputKind
from tests.backends.condor.harness import CondorHarness
from tests.backends.condor.pool import NODE

T = TypeVar("T")

AFTER_A_SECOND = "periodic_hold = JobStatus == 2 && time() > EnteredCurrentStatus + 1"
KEPT = "on_exit_hold = ExitBySignal || ExitCode != 0"


def until(condor: CondorHarness, holds: Callable[[Observation], T | None]) -> T:
    """Look until something holds, and return it."""
    for _ in condor.moments():
        if found := holds(condor.backend.observe(condor.since_s)):
            return found
    raise AssertionError(f"not so: {condor.backend.observe(condor.since_s)}")


def attempts(seen: Observation, job_id: str) -> list[Attempt]:
    return [attempt for attempt in seen.attempts if attempt.id.job_id == job_id]


def ended(condor: CondorHarness, job_id: str, runs: int = 1) -> Attempt:
    """The end of a run of a job, by its number."""
    return until(
        condor,
        lambda seen: next((a for a in attempts(seen, job_id) if a.id.incarnation == runs and a.state.is_over), None),
    )


def started(condor: CondorHarness, job_id: str) -> Attempt:
    return until(condor, lambda seen: next((a for a in attempts(seen, job_id) if not a.state.is_over), None))


@pytest.fixture(autouse=True)
def _leave_nothing(condor: CondorHarness) -> Iterator[None]:
    yield
    condor.pool.remove_all()


@pytest.mark.parametrize(
    ("script", "lines", "state", "code", "signal"),
    [
        ("exit 7", (KEPT,), AttemptState.FAILED, 7, 0),
        ("kill -SEGV $$", (KEPT,), AttemptState.FAILED, 0, 11),
        ("exit 7", (), AttemptState.FAILED, 7, 0),
        ("sleep 60", ("allowed_job_duration = 2",), AttemptState.TIMEOUT, 0, 0),
        ("exit 0", ("executable = /nowhere/at/all",), AttemptState.LAUNCH_FAILED, 0, 0),
        ("exit 0", ("output = /nowhere/at/all",), AttemptState.LAUNCH_FAILED, 0, 0),
        ("sleep 60", (AFTER_A_SECOND, 'periodic_hold_reason = "memory exceeded"'), AttemptState.OUT_OF_MEMORY, 0, 0),
    ],
    ids=["exit code", "signal", "not kept", "walltime", "no program", "no output", "memory"],
)
def test_the_end_of_a_run_is_told(
    condor: CondorHarness, script: str, lines: tuple[str, ...], state: AttemptState, code: int, signal: int
) -> None:
    job_id = condor.pool.submit(script, *lines)
    attempt = ended(condor, job_id)
    assert (attempt.state, attempt.exit_code, attempt.signal) == (state, code, signal), attempt
    job = until(condor, lambda seen: next((j for j in seen.jobs if j.job_id == job_id and j.state.is_over), None))
    assert job.state is JobState.FAILED
    assert job.may_requeue is (script != "exit 7" or bool(lines))


def test_runs_that_htcondor_repeats_by_itself_are_attempts_of_one_job(condor: CondorHarness) -> None:
    job_id = condor.pool.submit("exit 3", "max_retries = 2")
    assert [ended(condor, job_id, runs).exit_code for runs in (1, 2, 3)] == [3, 3, 3]
    assert [a.id.incarnation for a in attempts(condor.backend.observe(condor.since_s), job_id)] == [1, 2, 3]


def test_a_job_knows_its_run_as_the_page_says(condor: CondorHarness) -> None:
    page = (Path(__file__).parents[3] / "docs/condor.md").read_text()
    exports = "\n".join(line for line in page.splitlines() if line.startswith("export PERDURE_") and "sed" in line)
    job_id = condor.pool.submit(f"{exports}\necho $PERDURE_JOB_ID $PERDURE_INCARNATION; exit 1", KEPT)
    first = ended(condor, job_id)
    assert condor.backend.perform(Requeue(first.id)).status is OutcomeStatus.DONE
    second = ended(condor, job_id, 2)
    log = condor.backend.output(second).main
    assert log is not None
    assert log.tail == f"{job_id} 2\n".encode()


def test_the_ranks_of_a_gang_have_files_of_their_own(condor: CondorHarness) -> None:
    job_id = condor.pool.submit(
        'echo "I am rank $_CONDOR_PROCNO"', "universe = parallel", "machine_count = 3", "request_gpus = 2"
    )
    attempt = ended(condor, job_id)
    files = condor.backend.output(attempt).files
    assert {(file.kind, file.rank): file.tail.strip() for file in files} == {
        (OutputKind.STDOUT, ""): b"I am rank 0",
        (OutputKind.RANK, "1"): b"I am rank 1",
        (OutputKind.RANK, "2"): b"I am rank 2",
    }
    assert attempt.gpus == 6


def test_a_gang_that_loses_a_node_names_it_and_runs_again(condor: CondorHarness) -> None:
    job_id = condor.pool.submit("echo up; sleep 600", "universe = parallel", "machine_count = 2", KEPT)
    first = started(condor, job_id)
    lost = first.nodes[1]
    until(condor, lambda _: [file.tail for file in condor.backend.output(first).files] == [b"up\n"] * 2)
    condor.fail_node(lost)
    try:
        attempt = ended(condor, job_id)
        assert attempt.state is AttemptState.NODE_FAIL
        assert attempt.failed_nodes == (lost,)
        second = started(condor, job_id)
        assert lost not in second.nodes
    finally:
        condor.return_node(lost)
    until(condor, lambda seen: all(node.state is NodeState.UP for node in seen.nodes))


def test_a_run_that_is_given_more_time_gets_it(condor: CondorHarness) -> None:
    job_id = condor.pool.submit("sleep 16", "allowed_job_duration = 12")
    action = Extend(started(condor, job_id).id, 600.0)
    assert condor.backend.perform(action).status is OutcomeStatus.DONE
    assert ended(condor, job_id).state is AttemptState.COMPLETED


def test_what_was_done_is_known_to_a_service_that_comes_back(condor: CondorHarness) -> None:
    """Each action is looked up by another process than the one that carried it out."""
    job_id = condor.submit(Program(exit_code=1, run_s=1.0))
    requeue = Requeue(ended(condor, job_id).id, comment="retried by perdure")
    done = OutcomeStatus.DONE
    with closing(CondorBackend("pool", CondorTools(CondorSettings(), condor.pool.env))) as other:
        assert other.lookup(requeue) is None
        assert condor.backend.perform(requeue).status is done
        ended(condor, job_id, 2)
        told = other.lookup(requeue)
        assert told is not None
        assert told.status is done
        long_id = condor.submit(Program(run_s=600.0))
        preempt = Preempt(started(condor, long_id).id)
        assert other.lookup(preempt) is None
        assert condor.backend.perform(preempt).status is done
        ended(condor, long_id)
        told = other.lookup(preempt)
        assert told is not None
        assert told.status is done


def test_a_persons_hold_and_drain_are_theirs(condor: CondorHarness) -> None:
    job_id = condor.pool.submit("exit 1", "hold = True")
    held = until(condor, lambda seen: next((j for j in seen.jobs if j.job_id == job_id), None))
    assert held.state is JobState.HELD
    nobody = AttemptId("pool", job_id, 0)
    own = Hold(nobody, "x")
    assert condor.backend.perform(Release(nobody, "x")).status is OutcomeStatus.SUPERSEDED
    assert condor.backend.perform(Release(nobody)).status is OutcomeStatus.DONE
    assert condor.backend.perform(own).status in (OutcomeStatus.DONE, OutcomeStatus.SUPERSEDED)
    node = condor.nodes[0]
    condor.pool.run("condor_drain", "-reason", "new memory", f"slot1@{node}")
    try:
        seen = until(condor, lambda seen: next((n for n in seen.nodes if n.name == node and not n.is_usable), None))
        assert (seen.reason, seen.by) == ("new memory", "")
        assert condor.backend.perform(Drain(node, "bad", "1")).status is OutcomeStatus.DONE
        assert condor.backend.perform(Undrain(node, "1")).status is OutcomeStatus.SUPERSEDED
    finally:
        condor.pool.run("condor_drain", "-cancel", f"slot1@{node}")
    until(condor, lambda seen: all(node.state is NodeState.UP for node in seen.nodes))


def test_a_drain_that_would_end_jobs_is_refused(condor: CondorHarness) -> None:
    node = condor.nodes[2]
    before = next(line for line in NODE.splitlines() if line.startswith("MAXJOBRETIREMENTTIME"))
    condor.pool.configure(node, "MAXJOBRETIREMENTTIME = 0")
    try:
        at = ("condor_status", "-constraint", f'Machine == "{node}"', "-af", "MaxJobRetirementTime")
        condor.pool.until("the node knows it", lambda: condor.pool.run(*at).strip() == "0")
        attempt = started(condor, condor.pool.submit("sleep 600", f'requirements = Machine == "{node}"'))
        outcome = condor.backend.perform(Drain(attempt.nodes[0], "bad", "2"))
        assert outcome.status is OutcomeStatus.REFUSED
        assert "MAXJOBRETIREMENTTIME" in outcome.detail
    finally:
        condor.pool.configure(node, before)


def test_what_an_owner_writes_and_what_is_written_to_the_job(condor: CondorHarness) -> None:
    job_id = condor.pool.submit("sleep 600", '+Perdure = "retry=never"', 'requirements = Machine == "node2"', KEPT)
    attempt = started(condor, job_id)
    job = next(j for j in condor.backend.observe(condor.since_s).jobs if j.job_id == job_id)
    assert (job.wish, job.required, job.user) == (RetryPreference.NEVER, ("node2",), "nobody")
    assert condor.backend.write_comments([Comment(attempt.id, 'its "disk" is full')])[0].status is OutcomeStatus.DONE
    assert condor.pool.run("condor_q", "-allusers", job_id, "-af", "PerdureComment").strip() == 'its "disk" is full'


@pytest.mark.parametrize(
    ("change", "jobs"),
    [
        ({}, 2),
        ({"constraint": "RequestGPUs > 0"}, 1),
        ({"schedd": "sched@central"}, 2),
        ({"schedd": "sched@elsewhere"}, None),
        ({"pool": "127.0.0.1:1", "schedd": "sched@central"}, None),
    ],
)
def test_the_jobs_of_the_named_schedd_are_seen(condor: CondorHarness, change: dict[str, Any], jobs: int | None) -> None:
    condor.pool.submit("sleep 600", "request_gpus = 1", "hold = True")
    condor.pool.submit("sleep 600", "hold = True")
    tools = CondorTools(replace(CondorSettings(tool_timeout_s=20.0), **change), condor.pool.env)
    with closing(CondorBackend("pool", tools)) as backend:
        seen = backend.observe(condor.since_s)
    waiting = [job for job in seen.jobs if job.state is JobState.HELD]
    assert (None if "controller" in seen.unseen else len(waiting)) == jobs, seen.unseen


def test_the_checkup_of_a_pool(condor: CondorHarness) -> None:
    condor.pool.submit("sleep 600", "hold = True")
    found = check_schedd(CondorSettings(), lambda _: NOBODY_ACTS, CondorTools(CondorSettings(), condor.pool.env))
    assert found.answered
    words = {each.what: each.mark for each in found.found}
    assert words["1 jobs in the queue of sched@central, 3 machines, 12 GPUs"] is Mark.OK
    assert words["HTCondor keeps a record of each run"] is Mark.OK
    assert words["no job stays in the queue when it fails: none can be put back"] is Mark.WARN


def test_a_pool_that_is_not_there_is_named(condor: CondorHarness) -> None:
    tools = CondorTools(CondorSettings("sched@central", "127.0.0.1:1", tool_timeout_s=30.0), condor.pool.env)
    with closing(CondorBackend("pool", tools)) as backend:
        assert "controller" in backend.observe(0.0).unseen
        with pytest.raises(ClusterBusy):
            backend.perform(Hold(AttemptId("pool", "1.0", 0)))
