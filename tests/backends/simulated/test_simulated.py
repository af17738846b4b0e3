"""The simulated cluster keeps its word, and its line breaks it as often as it was told to."""

import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.backends.simulated import EVERY, FaultPlan, Script, SimulatedBackend, SimulatedCluster
from perdure.errors import ClusterBusy
from perdure.model.actions import Exclude, Hold, OutcomeStatus, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import AttemptState, JobState
from perdure.model.observation import Observation
from tests.crash.remote import RemoteBackend, handlers_of, serve


def failed_once(cluster: SimulatedCluster, **script: Any) -> tuple[str, AttemptId]:
    """A job whose first attempt has failed, and that attempt."""
    job_id = cluster.submit(Script(run_s=1.0, failures=EVERY, **script))
    cluster.advance(2.0)
    return job_id, cluster.attempts(job_id)[0].id


def test_a_job_fails_as_often_as_its_script_says() -> None:
    cluster = SimulatedCluster(seed=0)
    job_id = cluster.submit(Script(failures=2, error="connection reset"))
    for _ in range(2):
        cluster.advance(20.0)
        assert cluster.job(job_id).state is JobState.FAILED
        cluster.carry_out(Requeue(cluster.attempts(job_id)[-1].id))
    cluster.advance(20.0)
    assert [a.state for a in cluster.attempts(job_id)] == [AttemptState.FAILED] * 2 + [AttemptState.COMPLETED]
    assert b"connection reset" in cluster.log(cluster.attempts(job_id)[0].stdout)


def test_a_bad_node_fails_whoever_runs_there() -> None:
    cluster = SimulatedCluster(seed=0, nodes=2, gpus=1)
    ids = [cluster.submit(Script(bad_nodes=("n1",))) for _ in range(2)]
    cluster.advance(20.0)
    states = {cluster.attempts(i)[0].nodes: cluster.attempts(i)[0].state for i in ids}
    assert states == {("n1",): AttemptState.FAILED, ("n2",): AttemptState.COMPLETED}


def test_the_manager_requeues_by_itself_after_the_exit_codes_it_was_given() -> None:
    cluster = SimulatedCluster(seed=0, requeue_exit=frozenset({75}))
    job_id = cluster.submit(Script(failures=1, exit_code=75))
    cluster.advance(60.0)
    assert [a.state for a in cluster.attempts(job_id)] == [AttemptState.FAILED, AttemptState.COMPLETED]
    assert cluster.recoveries == Counter({AttemptId("sim", job_id, 1): 1})


def test_a_job_waits_for_room_and_for_its_instant() -> None:
    cluster = SimulatedCluster(seed=0, nodes=1, gpus=1)
    first, second = (cluster.submit(Script(run_s=10.0)) for _ in range(2))
    cluster.advance(5.0)
    assert (cluster.job(first).state, cluster.job(second).state) == (JobState.RUNNING, JobState.PENDING)
    cluster.advance(10.0)
    assert cluster.attempts(second)[0].start_s == cluster.attempts(first)[0].end_s


@given(seed=st.integers(0, 99), steps=st.lists(st.integers(1, 30), max_size=12))
@settings(deadline=None, max_examples=25)
def test_one_seed_is_one_history(seed: int, steps: list[Any]) -> None:
    def history() -> Observation:
        cluster = SimulatedCluster(seed, nodes=3, gpus=2)
        for step in steps:
            cluster.submit(Script(run_s=step, failures=step % 3, node_count=1 + step % 2))
            cluster.advance(step / 2)
        return cluster.observation(0.0)

    assert history() == history()


def test_no_more_runs_on_a_node_than_fits() -> None:
    cluster = SimulatedCluster(seed=3, nodes=2, gpus=4)
    for gpus in (3, 1, 2, 4, 1):
        cluster.submit(Script(gpus_per_node=gpus))
    for _ in range(40):
        cluster.advance(1.0)
        used = Counter()
        for attempt in cluster.observation(0.0).attempts:
            if not attempt.state.is_over:
                used.update(dict.fromkeys(attempt.nodes, attempt.gpus))
        assert all(count <= 4 for count in used.values())
    assert cluster.idle


def test_a_guarded_cluster_requeues_once_and_a_blind_one_each_time() -> None:
    for guarded, times in ((True, 1), (False, 3)):
        cluster = SimulatedCluster(seed=0, guarded=guarded)
        _, attempt = failed_once(cluster)
        for _ in range(3):
            cluster.carry_out(Requeue(attempt))
        assert cluster.effects[Requeue(attempt).key] == cluster.recoveries[attempt] == times


def test_a_hold_can_be_wanted_again_after_a_release() -> None:
    cluster = SimulatedCluster(seed=0, nodes=1, gpus=1)
    cluster.submit(Script(run_s=100.0))
    job_id = cluster.submit(Script())
    hold = Hold(AttemptId("sim", job_id, 0))
    cluster.carry_out(hold)
    cluster.return_node("n1")
    assert cluster.carry_out(hold).status is OutcomeStatus.DONE
    assert cluster.job(job_id).state is JobState.HELD
    exclude = Exclude(AttemptId("sim", job_id, 0), ("n1", "n1"))
    assert cluster.carry_out(exclude).status is OutcomeStatus.DONE
    assert cluster.job(job_id).excluded == ("n1",)


def test_a_lost_request_is_not_done_and_a_lost_reply_is() -> None:
    for plan, done in ((FaultPlan(p_lose_request=1.0), 0), (FaultPlan(p_lose_reply=1.0), 1)):
        cluster = SimulatedCluster(seed=0)
        backend = SimulatedBackend(cluster, plan)
        _, attempt = failed_once(cluster)
        with pytest.raises(ClusterBusy):
            backend.perform(Requeue(attempt))
        assert cluster.recoveries[attempt] == done


def test_of_a_delayed_request_nobody_can_say_what_became_until_it_arrived() -> None:
    cluster = SimulatedCluster(seed=0)
    backend = SimulatedBackend(cluster, FaultPlan(p_delay=1.0, delay_s=10.0))
    _, attempt = failed_once(cluster)
    with pytest.raises(ClusterBusy):
        backend.perform(Requeue(attempt))
    with pytest.raises(ClusterBusy):
        backend.lookup(Requeue(attempt))
    cluster.advance(10.0)
    assert backend.lookup(Requeue(attempt)).status is OutcomeStatus.DONE
    assert cluster.recoveries[attempt] == 1


def test_a_duplicate_arrives_twice() -> None:
    cluster = SimulatedCluster(seed=0, guarded=False)
    backend = SimulatedBackend(cluster, FaultPlan(p_duplicate=1.0, delay_s=5.0))
    _, attempt = failed_once(cluster)
    backend.perform(Requeue(attempt))
    cluster.advance(5.0)
    backend.observe(0.0)
    assert cluster.effects[Requeue(attempt).key] == 2


def test_a_stale_look_shows_the_past_and_a_blind_one_nothing() -> None:
    cluster = SimulatedCluster(seed=0)
    backend = SimulatedBackend(cluster)
    before = backend.observe(0.0)
    cluster.submit(Script())
    cluster.advance(1.0)
    backend.faults = FaultPlan(p_stale=1.0)
    stale = backend.observe(0.0)
    assert (stale.jobs, stale.time_s) == (before.jobs, cluster.now)
    backend.faults = FaultPlan(p_blind=1.0)
    assert backend.observe(0.0).unseen
    backend.faults = FaultPlan()
    assert len(backend.observe(0.0).jobs) == 1


def test_a_cluster_in_another_process_says_the_same(tmp_path: Path) -> None:
    cluster = SimulatedCluster(seed=0)
    backend = SimulatedBackend(cluster)
    _, attempt = failed_once(cluster, error="no luck")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sim"))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener, handlers_of(backend)))
        server.start()
        remote = RemoteBackend(tmp_path / "sim", "sim")
        first = remote.observe(0.0)
        assert first == backend.observe(0.0)
        assert b"no luck" in remote.output(first.attempts[0]).main.tail
        assert remote.lookup(Requeue(attempt)) is None
        assert remote.perform(Requeue(attempt)).status is OutcomeStatus.DONE
        backend.silent = True
        with pytest.raises(ClusterBusy):
            remote.lookup(Requeue(attempt))
        nowhere = first.attempts[0].__class__(attempt, AttemptState.FAILED, (), 0.0, stdout="/nowhere")
        assert [absent.path for absent in remote.output(nowhere).absent] == ["/nowhere"]
        remote.ask("stop")
        remote.close()
        server.join()
