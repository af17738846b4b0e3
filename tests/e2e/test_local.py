"""End to end on the embedded cluster: real processes fail, and the right thing is done about it, once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.backends.local.records import Timing
from perdure.model.actions import Exclude, Requeue
from perdure.model.jobs import JobState, RetryPreference
from perdure.retry.rules import RetryRules
from perdure.service.core.settings import ControllerSettings
from perdure.service.workers.executor import ActionState
from tests.e2e.service import Running, await_, running

QUICK = ControllerSettings(retry=RetryRules(back_off_s=0.2))

SHAPE = """
import numpy as np
print("step 1 loss 0.5", flush=True)
np.zeros((4, 3)) @ np.zeros((5, 2))
"""
PEER_LOST = """
import os, sys
print("step 1 loss 0.5 on", os.environ["PERDURE_NODE"], flush=True)
if os.environ["PERDURE_NODE"] == "{bad}":
    raise ConnectionResetError(104, "Connection reset by peer")
print("done")
"""
HABIT = """
import os, sys
print("ImportError: cannot import name 'foo' from 'bar'", flush=True)
if "{fails}" == "yes" and os.environ["PERDURE_NODE"] == "n1":
    raise ConnectionResetError(104, "Connection reset by peer")
print("done")
"""
STUCK = """
import os, time
print("step 1", flush=True)
if os.environ["PERDURE_NODE"] == "{bad}":
    time.sleep(3600)
print("done")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    home = tmp_path_factory.mktemp("cluster")
    start_daemon(home, nodes=4, gpus=4, timing=Timing(detect_s=0.3))
    try:
        yield LocalBackend(home)
    finally:
        stop_daemon(home)


@pytest.fixture
def service(cluster: LocalBackend, tmp_path: Path) -> Iterator[Running]:
    with running(cluster, tmp_path, settings=QUICK) as one:
        yield one


def submit(cluster: LocalBackend, program: str, **options: Any) -> str:
    return cluster.submit(JobSpec(argv=(sys.executable, "-c", program), user="ada", gpus_per_node=1, **options))


def nodes_of(attempt: dict[str, Any]) -> Any:
    return json.loads(attempt["payload"])["nodes"]


def test_a_deterministic_failure_is_explained_and_stopped(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, SHAPE)
    stopped = service.await_exception(job, "stopped")
    assert stopped["decision"] == "stop"
    (attempt,) = service.attempts(job)
    verdict = json.loads(attempt["verdict"])
    assert verdict["label"] == "deterministic"
    assert any("matmul" in line["text"] for line in verdict["evidence"])
    assert service.actions(job) == []


def test_a_job_whose_working_directory_is_missing_is_stopped_at_once(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, SHAPE, workdir="/nowhere/at/all")
    stopped = service.await_exception(job, "stopped")
    assert "working directory does not exist" in stopped["reason"]
    (attempt,) = service.attempts(job)
    told = [line["text"] for line in json.loads(attempt["verdict"])["evidence"]]
    assert told == ["state LAUNCH_FAILED: launch failed: working directory '/nowhere/at/all' does not exist"]
    assert service.actions(job) == []


def test_a_transient_failure_goes_elsewhere_and_succeeds(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, PEER_LOST.format(bad="n1"), require=("n1",))
    service.await_job(job, JobState.COMPLETED)
    service.await_exception(job, "recovered")
    first, again, last = service.attempts(job)
    assert nodes_of(first) == nodes_of(again) == ["n1"]  # its owner asks for that node: it gets it once more
    assert nodes_of(last) != ["n1"]
    assert [(type(each.action), each.state) for each in service.actions(job)] == [(Requeue, ActionState.DONE)] * 2


def test_a_line_that_good_runs_print_too_misleads_nobody(cluster: LocalBackend, tmp_path: Path) -> None:
    with running(cluster, tmp_path, settings=QUICK, learns=True) as service:
        stopped = submit(cluster, HABIT.format(fails="yes"), name="habit", require=("n1",))
        service.await_exception(stopped, "stopped")
        good = submit(cluster, HABIT.format(fails="no"), name="habit")
        service.await_job(good, JobState.COMPLETED)
        await_(lambda: service.has_good_run(good))
        retried = submit(cluster, HABIT.format(fails="yes"), name="habit", require=("n1",))
        service.await_exception(retried, "recovered")
        assert json.loads(service.attempts(retried)[0]["verdict"])["category"] == "net"


def test_a_dead_nodes_job_is_requeued_once_by_the_cluster_itself(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, STUCK.format(bad="n2"), require=("n2",))
    service.await_job(job, JobState.RUNNING)
    cluster.fault("n2", "fail")
    try:
        recovered = service.await_exception(job, "recovered")
        assert recovered["owner"] == "resource_manager"
        assert len(service.attempts(job)) == 2
        assert all(isinstance(row.action, Exclude) for row in service.actions(job))
    finally:
        cluster.fault("n2", "return")


def test_a_dead_nodes_job_is_requeued_by_us_where_the_cluster_does_not(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, STUCK.format(bad="n2"), require=("n2",), requeue_on_node_fail=False)
    service.await_job(job, JobState.RUNNING)
    cluster.fault("n2", "fail")
    try:
        recovered = service.await_exception(job, "recovered")
        assert recovered["owner"] == "scheduler"
        assert nodes_of(service.attempts(job)[1]) != ["n2"]
    finally:
        cluster.fault("n2", "return")


def test_the_owners_wish_is_honoured(cluster: LocalBackend, service: Running) -> None:
    job = submit(cluster, PEER_LOST.format(bad="n1"), require=("n1",), wish=RetryPreference.NEVER)
    stopped = service.await_exception(job, "stopped")
    assert "owner asked" in stopped["reason"]
    assert service.actions(job) == []


def test_in_shadow_mode_it_says_what_it_would_do_and_does_nothing(cluster: LocalBackend, tmp_path: Path) -> None:
    with running(cluster, tmp_path, armed=False, settings=QUICK) as service:
        job = submit(cluster, PEER_LOST.format(bad="n1"), require=("n1",))
        service.await_action(job, ActionState.SHADOW)
        assert len(service.attempts(job)) == 1
        assert service.exceptions(job)[0]["decision"] == "retry"


def test_the_kill_switch_keeps_actions_from_beginning(cluster: LocalBackend, service: Running) -> None:
    (service.state / "STOP").touch()
    job = submit(cluster, PEER_LOST.format(bad="n1"), require=("n1",))
    await_(lambda: [row.detail for row in service.actions(job)] == ["the kill switch is on"])
    assert len(service.attempts(job)) == 1
    (service.state / "STOP").unlink()
    service.await_job(job, JobState.COMPLETED)


def test_a_service_that_was_down_acts_on_what_failed_meanwhile(cluster: LocalBackend, tmp_path: Path) -> None:
    with running(cluster, tmp_path, settings=QUICK) as service:
        service.await_job(submit(cluster, "print('done')"), JobState.COMPLETED)
    job = submit(cluster, PEER_LOST.format(bad="n3"), require=("n3",))
    await_(lambda: _is_over(cluster, job))
    with running(cluster, tmp_path, settings=QUICK) as service:
        service.await_exception(job, "recovered")
        assert len(service.attempts(job)) == 3


def test_what_failed_before_the_first_start_is_left_alone(cluster: LocalBackend, tmp_path: Path) -> None:
    job = submit(cluster, PEER_LOST.format(bad="n3"), require=("n3",))
    await_(lambda: _is_over(cluster, job))
    over_s = time.time()
    await_(lambda: int(time.time()) > int(over_s))  # the line is drawn in whole seconds
    with running(cluster, tmp_path, settings=QUICK) as service:
        later = submit(cluster, SHAPE)
        service.await_exception(later, "stopped")
        assert service.exceptions(job) == []


def _is_over(cluster: LocalBackend, job: str) -> bool:
    with suppress(StopIteration):
        return next(j for j in cluster.observe(0.0).jobs if j.job_id == job).state.is_over
    return False
