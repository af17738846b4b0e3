"""Slurm's own daemons away, its accounting off, its data private."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.slurm.cluster import await_
from tests.slurm.table.programs import LOST_PEER, SHAPE
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

MANAGER = Group("manager")
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


@MANAGER.row()
def launch_refused(stage: Stage) -> Iterator[None]:
    """srun signs by a SLURM_JWT that says nothing, and Slurm refuses the launch, once."""
    job = stage.submit(f"[ -e {stage.mark} ] || export SLURM_JWT=nonsense\ntouch {stage.mark}\nsrun true || exit $?")
    yield
    stage.recovered(job)
    assert len(stage.cluster.ends(job)) == 2
    stage.check()


@MANAGER.row(alone=True)
def controller_away(stage: Stage) -> Iterator[None]:
    """slurmctld is away while the job fails, and comes back."""
    gate = stage.folder / "gate"
    job = stage.submit(f"until [ -e {gate} ]; do sleep 0.2; done\n{stage.once()}{LOST_PEER}")
    yield
    stage.site.await_known(job)
    stage.cluster.stop_ctld()
    try:
        gate.touch()
        time.sleep(5)
    finally:
        stage.cluster.start_ctld()
    stage.recovered(job, 180)
    assert stage.cluster.job(job)["Restarts"] == "1"
    stage.check()


@MANAGER.row(alone=True)
def accounting_away(stage: Stage) -> Iterator[None]:
    """slurmdbd is away while the job fails, and comes back."""
    stage.cluster.kill_dbd()
    try:
        job = stage.submit(stage.once() + LOST_PEER)
        yield
        stage.recovered(job, 150)
    finally:
        stage.cluster.start_dbd()
    assert stage.cluster.job(job)["Restarts"] == "1"


@MANAGER.row(alone=True)
def accounting_off(stage: Stage) -> Iterator[None]:
    """The site has no accounting at all: hooks and the controller must do."""
    with stage.cluster.configured("AccountingStorageType=accounting_storage/none\nAccountingStorageTRES=node"):
        job = stage.submit(stage.once() + LOST_PEER)
        stops = stage.submit(SHAPE)
        yield
        stage.recovered(job, 150)
        stage.stopped(stops)
        assert len(stage.requeues(job)) == 1


@MANAGER.row(alone=True)
def private_data(stage: Stage) -> Iterator[None]:
    """PrivateData=jobs,usage,users: the service's own rights let it see, and a user's job is judged."""
    with stage.cluster.configured("PrivateData=jobs,usage,users,reservations,accounts"):
        job = stage.submit(SHAPE, user="nobody")
        yield
        stage.stopped(job)
        assert "mat1 and mat2" in stage.says(job)


@MANAGER.row(alone=True)
def start_that_was_forgotten(stage: Stage) -> Iterator[None]:
    """slurmctld is killed before it saved a start, and starts the job again: no two write side by side.

    It may give up the node then, on which it finds one job twice, and put the job back once more.
    """
    site, cluster, folder = stage.site, stage.cluster, stage.folder
    job = site.python(WRITES.format(folder=folder), "--begin=now+1hour", "-J", "forgotten-writer")
    stage.jobs.append(job)
    saved = cluster.await_saved("forgotten-writer")
    cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    yield
    await_("writes", lambda: len(_writes(folder)) > 2, 60)
    cluster.crash_ctld(saved)
    crashed = time.monotonic()
    cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    try:
        stage.done(job)
    finally:
        for node in cluster.nodes:
            cluster.return_node(node)
    turns = [token for token, _ in groupby(token for _, token in sorted(_writes(folder)))]
    assert len(turns) > 1
    assert len(turns) == len({*turns})  # nobody writes again once a newer one does
    time.sleep(max(0.0, crashed + 35.0 - time.monotonic()))  # then the start that was forgotten counts as lost
    told = str(stage.site.records(job))
    assert "nobody can put it back" not in told
    assert "job.forgotten" not in told
    stage.check()


def _writes(folder: Path) -> list[tuple[float, str]]:
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [(float(line.split()[0]), line.split()[1]) for line in lines]


@MANAGER.row(alone=True)
def killed_between_hold_and_release(stage: Stage) -> Iterator[None]:
    """The service is killed (signal 9) as soon as the job is put back and held: the next one releases it, once."""
    job = stage.submit(stage.once() + LOST_PEER)
    yield
    stage.cluster.wait(job, lambda fields: fields["Restarts"] == "1")
    stage.site.kill()
    stage.site.start()
    stage.recovered(job, 150)
    assert stage.cluster.job(job)["Restarts"] == "1"
    stage.check()


@MANAGER.row(alone=True)
def retry_forgotten(stage: Stage) -> Iterator[None]:
    """slurmctld dies before it saved that the job was put back: it is put back again."""
    stage.site.service.ask("POST", "/kill-switch", {"on": True})
    job = stage.submit(stage.once() + LOST_PEER, "-J", "forgotten-retry")
    try:
        yield
        stage.await_failures(job, 1)
        stage.cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")
        saved = stage.cluster.saved()
    finally:
        stage.site.service.ask("POST", "/kill-switch", {"on": False})
    await_("its retry", lambda: any(act["state"] == "done" for act in stage.requeues(job)), 120)
    stage.site.kill()
    stage.cluster.crash_ctld(saved)
    assert stage.cluster.job(job)["JobState"] == "FAILED"
    stage.site.start()
    stage.done(job, 150)
    assert stage.cluster.job(job)["Restarts"] == "1"
    assert [act["state"] for act in stage.requeues(job)] == ["done"]
    stage.check()


@MANAGER.row(alone=True)
def kill_switch(stage: Stage) -> Iterator[None]:
    """The kill switch is on when the job fails: nothing is done until it is turned off."""
    stage.site.service.ask("POST", "/kill-switch", {"on": True})
    job = stage.submit(stage.once() + LOST_PEER)
    try:
        yield
        stage.await_failures(job, 1)
        stage.cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")
        time.sleep(4)
        assert stage.cluster.job(job)["JobState"] == "FAILED"
    finally:
        stage.site.service.ask("POST", "/kill-switch", {"on": False})
    stage.recovered(job, 150)


@MANAGER.row(alone=True)
def reconfigured(stage: Stage) -> Iterator[None]:
    """`scontrol reconfigure` while jobs run and fail."""
    job = stage.submit(f"{stage.once()}sleep 3\n{LOST_PEER}")
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "reconfigure")
    stage.recovered(job, 150)
    assert len(stage.requeues(job)) == 1


@MANAGER.row(alone=True)
def ids_given_again(stage: Stage) -> Iterator[None]:
    """slurmctld loses its state while a job waits for its retry, and gives the job's id to another user.

    Nothing of the one is told of the other, and the lost retry is not called done.
    """
    job = stage.submit(f"{stage.once()}{LOST_PEER}")
    yield
    stage.site.await_done(job, "requeue")
    with stage.cluster.forgetful(int(job)):
        assert stage.submit("echo mine; sleep 3", "-o", f"{stage.folder}/theirs.out", user="nobody") == job

        def is_known() -> bool:
            found = stage.full(job)["job"]
            return (found["user"], found["state"]) == ("nobody", "completed")

        await_("the job of the other user", is_known, words=lambda: stage.site.told(job))
        found = stage.full(job)
        assert len(found["attempts"]) == 1
        assert (found["exceptions"], found["actions"]) == ([], [])
        assert stage.site.records(job) == []
        assert next(each["job_id"] for each in stage.site.ask("/jobs")) == job  # the latest first
    stage.cluster.run("scancel", job, check=False)


@MANAGER.row(alone=True)
def retry_forgotten_for_good(stage: Stage) -> Iterator[None]:
    """slurmctld loses its state while a job waits for its retry: a person is told that it is gone."""
    job = stage.submit(f"{stage.once()}{LOST_PEER}")
    yield
    stage.site.await_done(job, "requeue")
    stage.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now+120")  # else it may start before a look
    await_("the look that sees it wait", lambda: stage.full(job)["job"]["state"] == "pending")
    with stage.cluster.forgetful(int(job) + 1000):
        gone = stage.site.await_record(job, lambda record: record["state"] == "escalated")
        assert "submit it again" in gone["verdicts"][-1]["note"]
        assert "does not know it any more" in stage.full(job)["job"]["reason"]
    stage.cluster.run("scancel", job, check=False)


@MANAGER.row(alone=True)
def start_forgotten_for_good(stage: Stage) -> Iterator[None]:
    """slurmctld loses its state while a job runs: its owner is told to submit it again.

    Slurm shows no end of it: accounting calls it running still.
    """
    job = stage.submit("echo step 1; sleep 600")
    yield
    stage.site.await_known(job)
    with stage.cluster.forgetful(int(job) + 1000):
        record = stage.site.await_outcome(job, "stopped", 150)
        said = record["verdicts"][-1]["note"]
        assert "has forgotten that it ran" in said
        assert "submit it again" in said
        assert stage.acts(job) == [], stage.site.told(job)
    stage.cluster.run("scancel", job, check=False)
