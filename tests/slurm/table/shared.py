"""What jobs share: a store that goes down, a quota that is exceeded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.attacks.test_full_disk import small_disk
from tests.slurm.cluster import await_
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

SHARED = Group("shared")
STORE = "pfs:/scratch"


@contextmanager
def _restored(stage: Stage) -> Iterator[None]:
    """The store is in order, and is so again afterwards."""
    try:
        yield
    finally:
        stage.site.raise_("storage.restored", resource=STORE)


def _held(fields: dict[str, str]) -> bool:
    return fields["Priority"] == "0" and fields["JobState"] == "PENDING"


@SHARED.row(alone=True, quick=True)
def store_down(stage: Stage) -> Iterator[None]:
    """A store is down: waiting jobs that need it are held and released, the running one is notified; others go on."""
    site, cluster = stage.site, stage.cluster
    with _restored(stage):
        runs = stage.submit("sleep 600", "-L", "pfs:4")
        yield
        site.await_known(runs)
        waits = [stage.submit("true", "-L", "pfs:1") for _ in range(2)]
        other = stage.submit("true")
        stage.main = waits[0]
        await_("waiting jobs known", lambda: {*waits} <= {job["job_id"] for job in site.ask("/jobs")}, 60)
        down = site.raise_("storage.down", resource=STORE)
        for job in waits:
            cluster.wait(job, _held)
        assert any(record["type"] == "job.pause" and record["cause"] == down for record in site.records(runs))
        waits.append(stage.submit("true", "-L", "pfs:1"))  # it comes later
        cluster.wait(waits[-1], _held)
        assert site.raise_("storage.down", resource=STORE) == down  # told again, it is the same
        stage.done(other)
        cluster.run("scancel", runs)
        site.raise_("storage.restored", resource=STORE)
        for job in waits:
            stage.done(job)
            site.await_done(job, "hold", "release")
        assert stage.acts(other) == []


@SHARED.row()
def store_full(stage: Stage) -> Iterator[None]:
    """A job fails for the disk it saves to is full: no node is avoided, who writes there waits until there is room."""
    site, cluster = stage.site, stage.cluster
    with small_disk(stage.folder / "scratch") as disk:
        disk.chmod(0o1777)
        there = f"--chdir={disk}"
        writes = stage.submit("sleep 600", there)
        site.await_known(writes)
        stage.main = stage.submit("echo step 1 loss 0.5; dd if=/dev/zero of=checkpoint.pt bs=1M", there)
        yield
        stage.stopped(stage.main)
        pause = site.await_record(writes, lambda record: record["type"] == "job.pause")
        waits = stage.submit("true", there, "--begin=now+20")
        cluster.wait(waits, _held)
        (disk / "checkpoint.pt").unlink()
        stage.done(waits)
        assert [record["id"] for record in site.records(writes) if record["type"] == "job.pause"] == [pause["id"]]
        assert not any("suspect" in record["type"] for record in site.records(stage.main))
        cluster.run("scancel", writes)
        await_("the disk unused", lambda: not cluster.run("squeue", "-h", "-j", writes).strip(), 60)


@SHARED.row(alone=True)
def failure_while_the_store_is_down(stage: Stage) -> Iterator[None]:
    """A job fails while the store that it needs is down: it starts again only after the all-clear."""
    gate, site = stage.folder / "gate", stage.site
    with _restored(stage):
        job = stage.submit(f"until [ -e {gate} ]; do sleep 0.2; done\n{stage.once()}kill -9 $$", "-L", "pfs:1")
        yield
        site.await_known(job)
        site.raise_("storage.down", resource=STORE)
        gate.touch()
        site.await_done(job, "hold", "requeue")
        stage.cluster.wait(job, _held)
        assert len(stage.cluster.ends(job)) == 1
        site.raise_("storage.restored", resource=STORE)
        stage.recovered(job, 240)
        assert len(stage.cluster.ends(job)) == 2


@SHARED.row(alone=True)
def quota_exceeded(stage: Stage) -> Iterator[None]:
    """A quota is exceeded: the fewest jobs move their data, once."""
    site = stage.site
    by: dict[str, int] = {}
    usage = {"limit": 100, "used": 130, "by": by}
    with _restored(stage):
        writers = [stage.submit("sleep 600", "-L", "pfs:1") for _ in range(3)]
        yield
        for job, n_bytes in zip(writers, (10, 35, 60), strict=True):
            site.await_known(job)
            by[job] = n_bytes
        waits = stage.submit("true", "-L", "pfs:4")
        await_("a waiting job known", lambda: waits in {job["job_id"] for job in site.ask("/jobs")}, 60)
        said = [{"component": "operator", "time": time.time(), "key": "usage", "value": json.dumps(usage)}]
        over = site.raise_("storage.quota.over", resource=STORE, annotations=said)
        site.await_record(writers[1], lambda record: record["type"] == "job.move")
        moves = [record for job in writers for record in site.records(job) if record["type"] == "job.move"]
        assert [(record["subject"]["job"], record["cause"]) for record in moves] == [(writers[1], over)]
        stage.cluster.wait(waits, lambda fields: fields["Priority"] == "0")
        site.raise_("storage.restored", resource=STORE)
        for job in writers:
            stage.cluster.run("scancel", job)
        stage.done(waits)
