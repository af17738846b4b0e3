"""The failure table, row by row, with real faults on a real Slurm: one owner of each recovery, no start twice.

Rows that `test_service` has: a dead node, freeze and thaw, slurmctld away and back, slurmdbd down. The slow ones run by
``make slurm-table``.
"""

from __future__ import annotations

import json
import threading
import time
from itertools import groupby

import pytest

import perdure.client as client
from perdure.errors import PerdureError
from tests.slurm.cluster import await_
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

NAN = """
import time
import perdure.client as perdure
name = perdure.raise_exception("app.nan", note="loss is NaN at step 7", step=7)
time.sleep(3)
raise SystemExit({code})
"""
OOM = """
echo 'step 1 loss 0.5'
echo 'torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total)' >&2
exit 1
"""
KILLED = """
srun -n 2 --kill-on-bad-exit=1 sh -c '[ $SLURM_PROCID = 1 ] && [ ! -e {mark} ] && touch {mark} && kill -9 $$; sleep 2'
"""
GATED = """
until [ -e {gate} ]; do sleep 0.2; done
"""
ONCE = """
[ -e {mark} ] && exit 0
touch {mark}
sleep 600
"""

WRITES = """
import os, time
from pathlib import Path
from perdure.errors import Fenced
from perdure.job import checkpointed
with Path("{folder}/log").open("a") as log:
    for step in range(12):
        try:
            with checkpointed(Path("{folder}/model")) as draft:
                Path(draft).write_text(str(step))
                written_s = time.time()
        except Fenced:
            raise SystemExit(93)
        log.write(f"{{written_s}} {{os.environ['PERDURE_FENCE_TOKEN']}}\\n"); log.flush()
        time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def running_site(cluster, tmp_path_factory):
    one = Site(cluster, tmp_path_factory.mktemp("site"))
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture
def site(running_site, quiet_cluster):
    return running_site


@pytest.fixture
def store(site):
    """The name of a store that is in order, and is so again afterwards."""
    yield "pfs:/scratch"
    site.raise_("storage.restored", resource="pfs:/scratch")


@pytest.fixture
def mark(quiet_cluster, request):
    """A file that a job leaves at its first start."""
    return quiet_cluster.output / f"mark-{request.node.name}-{time.monotonic_ns()}"


# -- launcher


def test_a_program_that_is_not_there_is_not_tried_again(site):
    job = site.submit("srun /nonsense/train.py")
    record = site.await_outcome(job, "stopped")
    assert site.actions(job) == []
    assert record["verdicts"][-1]["component"] == "scheduler"
    site.check_history(job)


@pytest.mark.slow
def test_a_launch_that_is_refused_is_tried_again(site, mark):
    """srun signs by a SLURM_JWT that says nothing, and Slurm does not take that."""
    job = site.submit(f"[ -e {mark} ] || export SLURM_JWT=nonsense\ntouch {mark}\nsrun true || exit $?")
    site.await_outcome(job, "recovered")
    assert len(site.cluster.ends(job)) == 2
    site.check_history(job)


@pytest.mark.slow
def test_a_log_that_cannot_be_opened_is_tried_again(site, mark):
    """Slurm says JobLaunchFailure, 0:53; the directory comes back."""
    job = site.submit("true", "-o", f"{mark}/%j.out")
    await_("a first failure", lambda: any(row["End"].isdecimal() for row in site.cluster.ends(job)), 60)
    mark.mkdir()
    site.await_outcome(job, "recovered")
    site.check_history(job)


@pytest.mark.slow
def test_a_node_whose_prolog_fails_is_left(site):
    """Slurm drains the node, holds the job, and leaves it at that: somebody has to release it."""
    with site.cluster.failing_prolog("node1"):
        job = site.submit("echo done", "-w", "node1")
        ended = site.cluster.wait(job, lambda fields: fields.get("JobState") == "COMPLETED", 90)
    assert ended["NodeList"] != "node1"
    assert [action["kind"] for action in site.actions(job)].count("release") == 1
    site.check_history(job)


# -- application


def test_an_application_failure_that_its_job_takes_is_left_to_it(site):
    """NaN is raised by the program; who registered in the seat of the job rolls back and forbids a requeue."""
    took = threading.Event()
    threading.Thread(target=_take, args=(site, "app.nan", took), daemon=True).start()
    await_("a handler", lambda: site.service.ask("GET", "/handlers"), 30)
    job = site.python(NAN.format(code=1))
    record = site.await_record(job, lambda record: record["type"] == "app.nan" and record["state"] == "handled")
    (owning,) = [verdict for verdict in record["verdicts"] if verdict["verdict"] == "handled"]
    assert (owning["component"], owning["handler"], record["step"]) == ("job", "trainer", 7)
    assert took.wait(60)
    failure = site.await_outcome(job, "stopped")  # its program ends all the same: that is its own affair
    assert "forbids a requeue" in failure["verdicts"][-1]["note"]
    assert site.actions(job) == []
    assert len(site.cluster.ends(job)) == 1
    site.check_history(job)


def _take(site, kind, took):
    for asked in client.handle("trainer", component="job", types=[kind], service=site.service):
        asked.handled("rolled back to step 6", forbids=["requeue"])
        took.set()
        return


@pytest.mark.slow
def test_memory_that_does_not_suffice_is_not_tried_again(site):
    job = site.submit(OOM)
    site.await_outcome(job, "stopped")
    assert site.actions(job) == []
    site.check_history(job)


# -- processes


def test_a_rank_that_is_killed_is_recovered_once(site, mark):
    job = site.submit(KILLED.format(mark=mark), "-n", "2")
    record = site.await_outcome(job, "recovered")
    assert record["verdicts"][-1]["component"] == "scheduler"
    assert [row["State"] for row in site.cluster.ends(job)][1:] == ["COMPLETED"]
    site.check_history(job)


# -- nodes


def test_a_node_that_its_operator_gives_up_is_left_at_once(site, mark):
    job = site.submit(ONCE.format(mark=mark), "-w", "node3")
    site.await_known(job)
    name = site.raise_("node.unreachable", nodes=["node3"], note="power is cut")
    try:
        site.await_outcome(job, "recovered")
    finally:
        site.cluster.return_node("node3")
    assert [row["State"] for row in site.cluster.ends(job)] == ["NODE_FAIL", "COMPLETED"]
    assert site.record(name)["state"] == "handled"
    site.check_history(job)


@pytest.mark.slow
def test_two_faults_at_once_are_two_recoveries(site, mark):
    """A node is given up while a rank of another job dies; a third job spans both nodes."""
    lost = site.submit(ONCE.format(mark=f"{mark}-1"), "-w", "node1")
    died = site.submit(KILLED.format(mark=f"{mark}-2"), "-w", "node2", "-n", "2")
    both = site.submit(ONCE.format(mark=f"{mark}-3"), "-w", "node1,node2", "-N", "2")
    for job in (lost, both):
        site.await_known(job)
    site.cluster.run("scontrol", "update", "nodename=node1", "state=down", "reason=tested")
    try:
        for job in (lost, died, both):
            site.await_outcome(job, "recovered", 150)
    finally:
        site.cluster.return_node("node1")
    site.check_history(lost, died, both)
    assert all(len(site.cluster.ends(job)) == 2 for job in (lost, died, both))


# -- what jobs share


def test_jobs_that_need_a_store_that_is_down_are_held_and_let_go(site, store):
    """Waiting jobs that ask for its licence are held in Slurm, the running one is told; others go on."""
    runs = site.submit("sleep 600", "-L", "pfs:4")
    site.await_known(runs)
    waits = [site.submit("true", "-L", "pfs:1") for _ in range(2)]
    other = site.submit("true")
    await_("waiting jobs known", lambda: {*waits} <= {job["job_id"] for job in site.ask("/jobs")}, 60)
    down = site.raise_("storage.down", resource=store)
    for job in waits:
        site.cluster.wait(job, lambda fields: fields["Priority"] == "0" and fields["JobState"] == "PENDING")
    assert any(record["type"] == "job.pause" and record["cause"] == down for record in site.records(runs))
    waits.append(site.submit("true", "-L", "pfs:1"))  # it comes later
    site.cluster.wait(waits[-1], lambda fields: fields["Priority"] == "0" and fields["JobState"] == "PENDING")
    assert site.raise_("storage.down", resource=store) == down  # told again, it is the same
    site.cluster.wait(other, lambda fields: fields["JobState"] == "COMPLETED")
    site.cluster.run("scancel", runs)
    site.raise_("storage.restored", resource=store)
    for job in waits:
        site.cluster.wait(job, lambda fields: fields["JobState"] == "COMPLETED")
        site.await_done(job, "hold", "release")
    assert site.actions(other) == []


@pytest.mark.slow
def test_a_job_that_fails_while_its_store_is_down_starts_again_only_after(site, store, mark):
    gate = mark.with_suffix(".gate")
    job = site.submit(GATED.format(gate=gate) + KILLED.format(mark=mark), "-n", "2", "-L", "pfs:1")
    site.await_known(job)
    site.raise_("storage.down", resource=store)
    gate.touch()
    site.await_done(job, "hold", "requeue")
    waiting = site.cluster.job(job)
    assert (waiting["JobState"], waiting["Priority"]) == ("PENDING", "0")
    assert len(site.cluster.ends(job)) == 1
    site.raise_("storage.restored", resource=store)
    site.await_outcome(job, "recovered", 240)
    assert len(site.cluster.ends(job)) == 2


@pytest.mark.slow
def test_a_quota_that_is_exceeded_is_mended_by_the_fewest_jobs_once(site, store):
    usage = {"limit": 100, "used": 130, "by": {}}
    writers = [site.submit("sleep 600", "-L", "pfs:1") for _ in range(3)]
    for job, n_bytes in zip(writers, (10, 35, 60), strict=True):
        site.await_known(job)
        usage["by"][job] = n_bytes
    waits = site.submit("true", "-L", "pfs:4")
    await_("a waiting job known", lambda: waits in {job["job_id"] for job in site.ask("/jobs")}, 60)
    said = [{"component": "operator", "time": time.time(), "key": "usage", "value": json.dumps(usage)}]
    over = site.raise_("storage.quota.over", resource=store, annotations=said)
    site.await_record(writers[1], lambda record: record["type"] == "job.move")
    moves = [record for job in writers for record in site.records(job) if record["type"] == "job.move"]
    assert [(record["subject"]["job"], record["cause"]) for record in moves] == [(writers[1], over)]
    site.cluster.wait(waits, lambda fields: fields["Priority"] == "0")
    site.raise_("storage.restored", resource=store)
    for job in writers:
        site.cluster.run("scancel", job)
    site.cluster.wait(waits, lambda fields: fields["JobState"] == "COMPLETED")


# -- the resource manager


@pytest.mark.slow
def test_a_start_that_slurmctld_forgot_does_not_write_beside_the_next(site, mark):
    """Killed before it saved the start, slurmctld starts the job anew under the same restart count.

    It may give up the node then, on which it finds one job twice, and put the job back once more.
    """
    mark.mkdir()
    job = site.python(WRITES.format(folder=mark), "--begin=now+1hour", "-J", "forgotten-writer")
    saved = site.cluster.await_saved("forgotten-writer")
    site.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    await_("writes", lambda: len(_writes(mark)) > 2, 60)
    site.cluster.crash_ctld(saved)
    site.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    try:
        site.cluster.wait(job, lambda fields: fields["JobState"] == "COMPLETED", 120)
    finally:
        for node in site.cluster.nodes:
            site.cluster.return_node(node)
    turns = [token for token, _ in groupby(token for _, token in sorted(_writes(mark)))]
    assert len(turns) > 1
    assert len(turns) == len({*turns})  # nobody writes again once a newer one does
    site.check_history(job)


def _writes(folder):
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [(float(line.split()[0]), line.split()[1]) for line in lines]


@pytest.mark.slow
def test_a_preempted_job_is_slurms_to_put_back(site, mark):
    """By quality of service: the higher one takes the whole cluster for a moment."""
    site.cluster.run("sacctmgr", "-i", "add", "qos", "low", check=False)
    site.cluster.run("sacctmgr", "-i", "add", "qos", "high", "preempt=low", check=False)
    with site.cluster.configured("PreemptType=preempt/qos\nPreemptMode=REQUEUE"):
        job = site.submit(ONCE.format(mark=mark), "--qos=low")
        site.await_known(job)
        winner = site.submit("sleep 2", "--qos=high", "-N", "4", "--exclusive")
        record = site.await_outcome(job, "recovered", 150)
        site.cluster.wait(winner, lambda fields: fields["JobState"] == "COMPLETED")
    assert record["verdicts"][-1]["component"] == "resource_manager"
    assert [row["State"] for row in site.cluster.ends(job)] == ["PREEMPTED", "COMPLETED"]
    assert site.actions(job) == []
    site.check_history(job)


@pytest.mark.slow
def test_a_job_at_its_time_limit_gets_no_second_owner(site):
    """It would take as long again: whatever is decided, it is decided once."""
    job = site.submit("sleep 600", "--time=1")
    site.await_record(job, lambda record: record["type"] != "job.timeout" and record["state"] == "handled", 180)
    site.check_history(job)


@pytest.mark.slow
def test_another_users_word_is_not_heard(site):
    job = site.submit("sleep 600")
    site.await_known(job)
    token = site.service.ask("POST", "/tokens", {"user": "mallory", "role": "viewer"})["token"]
    mallory = client.Service(site.service.url, token)
    with pytest.raises(PerdureError, match="belongs to another user"):
        client.raise_exception("app.nan", job=job, service=mallory)
    assert site.records(job) == []
