"""What owners ask for, and what their scripts do by themselves."""

from __future__ import annotations

import getpass
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import perdure.client as client
from perdure.errors import PerdureError
from tests.slurm.cluster import await_
from tests.slurm.site import Site
from tests.slurm.table.programs import LOST_PEER, SHAPE
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

OWNERS = Group("owners")
NAN = """
import time
from pathlib import Path
import perdure.client as perdure
name = perdure.raise_exception("app.nan", note="loss is NaN at step 7", step=7)
while not Path("{gate}").exists():
    time.sleep(0.2)
raise SystemExit({code})
"""


@OWNERS.row(quick=True)
def no_requeue(stage: Stage) -> Iterator[None]:
    """`--no-requeue`, and a transient failure."""
    job = stage.submit(LOST_PEER, "--no-requeue")
    yield
    stage.stopped(job)
    assert "--no-requeue" in stage.says(job)


@OWNERS.row()
def requeue_switched_off(stage: Stage) -> Iterator[None]:
    """`scontrol update requeue=0` while it runs, and a permission error: what is wrong is said first."""
    denied = "PermissionError: [Errno 13] Permission denied: '/data/train.h5'"
    job = stage.submit(f'{stage.at_the_gate}echo "{denied}" >&2; exit 1', "--requeue")
    yield
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "RUNNING")
    stage.cluster.run("scontrol", "update", f"jobid={job}", "requeue=0")
    stage.gate.touch()
    note = stage.stopped(job)["verdicts"][-1]["note"]
    assert note.startswith("the job may not touch a file")
    assert "Requeue=0" in note


@OWNERS.row()
def no_batch_job(stage: Stage) -> Iterator[None]:
    """`salloc` and `srun` from a terminal that fail: Slurm cannot put them back."""
    program = ("sh", "-c", "echo $SLURM_JOB_ID; sleep 2; exit 3")
    for launcher in ("salloc", "srun"):
        stage.jobs.append(stage.cluster.run(launcher, "-n", "1", *program, check=False).split()[0])
    yield
    for job in stage.jobs:
        stage.stopped(job)
        assert "not a batch job" in stage.says(job)


@OWNERS.row(quick=True)
def retry_never(stage: Stage) -> Iterator[None]:
    """`--comment="Perdure:Retry=No"`, and a transient failure."""
    jobs = [stage.submit(LOST_PEER, f"--comment={said}") for said in ("Perdure:Retry=No", "perdure: retry=never")]
    yield
    for job in jobs:
        stage.stopped(job)


@OWNERS.row()
def retry_never_in_json(stage: Stage) -> Iterator[None]:
    """`--comment='{"perdure": {"retry": "OFF"}}'`, and a transient failure."""
    job = stage.submit(LOST_PEER, "--comment=" + json.dumps({"perdure": {"retry": "OFF"}}))
    yield
    stage.stopped(job)


@OWNERS.row(quick=True)
def unknown_wish(stage: Stage) -> Iterator[None]:
    """`--comment=perdure:retry=nevr`: the word that is not known is answered in AdminComment."""
    job = stage.submit(stage.once() + LOST_PEER, "--comment=perdure:retry=nevr")
    plea = "perdure: please do not retry this one, writes to prod DB"
    again = '[ "${SLURM_RESTART_COUNT:-0}" != 0 ] && exec sleep 20\n'
    other = stage.submit(again + LOST_PEER, f"--comment={plea}")
    yield
    stage.recovered(job)
    await_("an answer", lambda: "nevr" in _admin_comment(stage, job))
    await_("an answer", lambda: "not understood: perdure: please" in _admin_comment(stage, other))
    assert f" Comment={plea} " in stage.cluster.run("scontrol", "-o", "show", "job", other)


@OWNERS.row(quick=True)
def comment_tells(stage: Stage) -> Iterator[None]:
    """AdminComment of a stopped job says in a line what failed, what was done and where to read more."""
    job = stage.submit(SHAPE)
    yield
    stage.stopped(job)
    said = await_("a comment", lambda: _admin_comment(stage, job))
    assert "perdure" in said
    assert f"why {job}" in said
    assert len(said) <= 200


def _admin_comment(stage: Stage, job: str) -> str:
    """As `scontrol` has it, or accounting where that takes no change of a job that is over."""
    answer = stage.cluster.run("scontrol", "-o", "show", "job", job, check=False)
    _, found, rest = answer.partition(" AdminComment=")
    if found:
        return rest.partition(" SystemComment=")[0].partition(" StdErr=")[0]
    return stage.cluster.run("sacct", "-nPXD", "-j", job, "-o", "AdminComment", check=False).strip()


@OWNERS.row(quick=True)
def submits_its_own_successor(stage: Stage) -> Iterator[None]:
    """The script submits itself again and then fails: no second copy beside its successor."""
    path = stage.folder / "train.sh"
    path.write_text(
        f"#!/bin/sh\n[ -e {stage.mark} ] && {{ sleep 30; exit 0; }}\ntouch {stage.mark}\n"
        f"sbatch --parsable -J chain -o {stage.folder}/%j.out $0 >{stage.folder}/next\nsleep 1\n{LOST_PEER}"
    )
    path.chmod(0o755)
    cluster = stage.cluster
    script = ("sbatch", "--parsable", "-J", "chain", "-o", f"{stage.folder}/%j.out", f"--chdir={stage.folder}")
    job = cluster.run(*script, str(path)).strip()
    stage.jobs.append(job)
    yield
    stage.stopped(job)
    successor = (stage.folder / "next").read_text().strip()
    stage.jobs.append(successor)
    assert successor in stage.says(job)


@OWNERS.row()
def a_chain_whose_links_fail_at_once(stage: Stage) -> Iterator[None]:
    """Each of three jobs submits the next and fails: all have ended when the first is decided on, and none doubles."""
    path, links = stage.folder / "train.sh", stage.folder / "links"
    options = f"--parsable -J links -o {stage.folder}/%j.out"
    path.write_text(
        f"#!/bin/sh\n[ -z $SLURM_RESTART_COUNT ] || exit 0\n"
        f"[ $N = 0 ] || N=$((N-1)) sbatch {options} --export=ALL -d afterany:$SLURM_JOB_ID {path} >>{links}\n"
        f"{LOST_PEER}"
    )
    path.chmod(0o755)
    with stage.site.frozen():
        words = ("sbatch", *options.split(), "--export=ALL,N=2", f"--chdir={stage.folder}", str(path))
        first = stage.cluster.run(*words).strip()
        await_("three links", lambda: links.exists() and len(links.read_text().split()) == 2, 60)
        second, last = links.read_text().split()
        stage.cluster.wait(last, lambda fields: fields["JobState"] == "FAILED", 120)
    stage.jobs += [first, second, last]
    yield
    stage.stopped(first)
    stage.stopped(second)
    assert f"its own successor, job {second}" in stage.says(first)
    stage.recovered(last)
    assert len(links.read_text().split()) == 2


@OWNERS.row()
def submitted_again_by_hand(stage: Stage) -> Iterator[None]:
    """It fails, and its owner submits the same script again from the same terminal: no second copy beside that job."""
    path = stage.folder / "train.sh"
    path.write_text(f"#!/bin/sh\n[ -e {stage.mark} ] && {{ sleep 30; exit 0; }}\ntouch {stage.mark}\n{LOST_PEER}")
    path.chmod(0o755)
    words = ("sbatch", "--parsable", "-o", f"{stage.folder}/%j.out", f"--chdir={stage.folder}", str(path))
    with stage.site.frozen():
        job = stage.cluster.run(*words).strip()
        stage.cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")
        time.sleep(2.0)  # it fails in the second of its submission: what follows within one more may be of one loop
        again = stage.cluster.run(*words).strip()
    stage.jobs += [job, again]
    yield
    stage.stopped(job)
    assert f"job {again}, submitted since" in stage.says(job)


@OWNERS.row()
def requeues_itself(stage: Stage) -> Iterator[None]:
    """The script calls `scontrol requeue` on itself: its own recovery, and nobody else's."""
    job = stage.submit(f"{stage.once()}echo saved; scontrol requeue $SLURM_JOB_ID; sleep 60")
    yield
    stage.done(job)
    assert stage.acts(job) == []
    stage.check()


@OWNERS.row(quick=True)
def held_while_it_runs(stage: Stage) -> Iterator[None]:
    """`scontrol hold` while it runs, and a transient failure: nobody releases what a person holds."""
    job = stage.submit(f"{stage.at_the_gate}{LOST_PEER}")
    yield
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "RUNNING")
    stage.cluster.run("scontrol", "hold", job)
    stage.gate.touch()
    record = stage.site.await_record(job, lambda record: record["state"] == "escalated")
    assert "a person holds the job" in str(record["verdicts"])
    assert stage.cluster.job(job)["Restarts"] == "0"


@OWNERS.row()
def put_back_for_ever(stage: Stage) -> Iterator[None]:
    """The script calls `scontrol requeue` on itself at each start: after the ninth a person is told."""
    job = stage.submit("echo step 1; scontrol requeue $SLURM_JOB_ID; sleep 60")
    yield
    loop = stage.site.await_record(job, lambda record: record["type"] == "job.requeue-loop", 240)
    assert loop["state"] == "escalated"
    assert f"scontrol hold {job}" in loop["note"]
    assert loop["id"] in [each["id"] for each in stage.site.ask("/exceptions", open="true")]
    assert stage.acts(job) == []
    stage.cluster.run("scancel", job)
    stage.site.await_record(job, lambda record: record["outcome"] == "withdrawn")


@OWNERS.row(alone=True)
def nodes_changed_while_it_waits(stage: Stage) -> Iterator[None]:
    """Its owner gives a waiting retry other nodes (`scontrol update`): the decision and the comment say so."""
    cluster = stage.cluster
    job = stage.submit(f"{stage.at_the_gate}{stage.once()}{LOST_PEER}")
    yield
    stage.site.await_known(job)
    cluster.run("scontrol", "update", "partitionname=main", "state=down")  # it waits as long as the row needs
    try:
        stage.gate.touch()
        stage.site.await_done(job, "requeue")
        await_("the look that sees it wait", lambda: stage.full(job)["job"]["state"] == "pending")
        cluster.run("scontrol", "update", f"jobid={job}", "ExcNodeList=node4")
        said = "its nodes were changed since, it is kept off node4"
        await_("the new words", lambda: said in stage.says(job), 60, lambda: stage.says(job))
        await_("the new comment", lambda: said in _admin_comment(stage, job), 60, lambda: _admin_comment(stage, job))
    finally:
        cluster.run("scontrol", "update", "partitionname=main", "state=up")
    stage.recovered(job)


@OWNERS.row()
def handled_by_the_job(stage: Stage) -> Iterator[None]:
    """NaN is raised by the program; who registered for the job rolls back and forbids a requeue."""
    site, took = stage.site, threading.Event()
    threading.Thread(target=_take, args=(site, "app.nan", took), daemon=True).start()
    await_("a handler", lambda: site.service.ask("GET", "/handlers"))
    job = site.python(NAN.format(code=1, gate=stage.gate))
    stage.jobs.append(job)
    yield
    record = site.await_record(job, lambda record: record["type"] == "app.nan" and record["state"] == "handled")
    (owning,) = [verdict for verdict in record["verdicts"] if verdict["verdict"] == "handled"]
    assert (owning["component"], owning["handler"], record["step"]) == ("job", "trainer", 7)
    assert took.wait(60)
    stage.gate.touch()
    failure = site.await_outcome(job, "stopped")  # its program ends all the same: that is its own affair
    assert "forbids a requeue" in failure["verdicts"][-1]["note"]
    assert stage.acts(job) == []
    assert len(site.cluster.ends(job)) == 1
    stage.check()


def _take(site: Site, kind: str, took: Any) -> None:
    for asked in client.handle("trainer", component="job", types=[kind], service=site.service):
        asked.handled("rolled back to step 6", forbids=["requeue"])
        took.set()
        return


@OWNERS.row()
def another_users_word(stage: Stage) -> Iterator[None]:
    """Another user raises an exception about the job: it is refused."""
    site = stage.site
    job = stage.submit("sleep 600")
    yield
    site.await_known(job)
    token = site.service.ask("POST", "/tokens", {"user": "mallory", "role": "viewer"})["token"]
    mallory = client.Service(site.service.url, token)
    with pytest.raises(PerdureError, match="belongs to another user"):
        client.raise_exception("app.nan", job=job, service=mallory)
    assert site.records(job) == []
    stage.cluster.run("scancel", job)


@OWNERS.row(quick=True)
def ordinary_user(stage: Stage) -> Iterator[None]:
    """A job of an ordinary user, whose log only that user may read."""
    job = stage.submit(f"umask 077; {SHAPE}", user="nobody")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@OWNERS.row(quick=True)
def required_node(stage: Stage) -> Iterator[None]:
    """`-w node2`, and a transient failure that speaks against no node but took place there."""
    job = stage.submit(stage.once() + LOST_PEER, "-w", "node2")
    yield
    stage.recovered(job)
    assert len(stage.requeues(job)) == 1
    moved = stage.cluster.ends(job)[-1]["NodeList"] != "node2"
    assert not moved or "-w" in stage.says(job) or "asked for" in stage.says(job), stage.says(job)


@OWNERS.row()
def told_twice(stage: Stage) -> Iterator[None]:
    """Its owner puts it back before Perdure has decided: it starts once more, not twice."""
    with stage.site.frozen():
        job = stage.submit(stage.once() + LOST_PEER)
        stage.cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")
        stage.cluster.run("scontrol", "requeue", job)
    yield
    stage.done(job)
    assert len(stage.cluster.ends(job)) == 2, (getpass.getuser(), stage.site.told(job))
