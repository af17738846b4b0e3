"""A disk that jobs share gets full while they save: no node is blamed, those who write there wait, and go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.coordination.playbook import own_playbook
from perdure.model.jobs import JobState
from perdure.service.workers.full_stores import FullStores
from tests.attacks.test_full_disk import fill, needs_mount, small_disk
from tests.e2e.service import Running, await_, running

SAVES = """
print("step 1 loss 0.5", flush=True)
with open("{user}.pt", "wb") as checkpoint:
    while True:
        checkpoint.write(bytes(1 << 20))
"""
WAITS = "import time; print('step 1 loss 0.5', flush=True); time.sleep(600)"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalBackend]:
    home = tmp_path / "cluster"
    home.mkdir()
    start_daemon(home, nodes=3, gpus=1)
    try:
        yield LocalBackend(home)
    finally:
        stop_daemon(home)


def records(service: Running, kind: str) -> list[Any]:
    chain = service.engine.state.chain
    return [record for record in (*chain.open.values(), *chain.ended.values()) if record.type == kind]


@needs_mount
def test_a_full_disk_explains_no_other_failure(cluster: LocalBackend, tmp_path: Path) -> None:
    with small_disk(tmp_path / "scratch") as disk, running(cluster, tmp_path / "state") as service:
        fill(disk)
        argv = (sys.executable, "-c", "print('step 1 loss 0.5', flush=True); {}['labels']")
        job = cluster.submit(JobSpec(argv, user="mira", workdir=str(disk)))
        service.await_job(job, JobState.FAILED)
        await_(lambda: bool(records(service, "job.index")))
        assert records(service, "storage.full") == []


@needs_mount
def test_a_full_shared_disk_blames_no_node_and_pauses_its_writers_once(cluster: LocalBackend, tmp_path: Path) -> None:
    with small_disk(tmp_path / "scratch") as disk, running(cluster, tmp_path / "state") as service:

        def submit(code: str, user: str, where: Path = disk) -> str:
            argv = (sys.executable, "-c", code)
            return cluster.submit(JobSpec(argv, user=user, gpus_per_node=1, workdir=str(where)))

        def of_type(kind: str) -> list[Any]:
            return records(service, kind)

        def state(job: str) -> JobState:
            return service.engine.state.known.jobs[job].state

        (disk / "runs").mkdir()
        writes = submit(WAITS, "tunde", disk / "runs")
        service.await_job(writes, JobState.RUNNING)
        savers = [submit(SAVES.format(user=user), user, disk / "runs") for user in ("mira", "jonas")]
        for job in savers:
            service.await_job(job, JobState.FAILED)
        await_(lambda: len(of_type("job.pause")) == 1)
        elsewhere = [submit(WAITS, "aiko", tmp_path) for _ in range(2)]
        for job in elsewhere:
            service.await_job(job, JobState.RUNNING)
        late = submit(WAITS, "mira")
        service.await_job(late, JobState.HELD)
        assert [record.subject.resource for record in of_type("storage.full")] == [str(disk)]
        assert [record.subject.job_id for record in of_type("job.pause")] == [writes]
        assert service.engine.state.fleet.suspects(time.time(), 3600.0) == frozenset()
        assert not any(getattr(row.action, "nodes", ()) for job in savers for row in service.actions(job))

        stores = FullStores(lambda: service.engine.state.chain, own_playbook(), service.engine.tell, time.time)
        stores.look()
        assert of_type("storage.restored") == []
        for checkpoint in disk.glob("runs/*.pt"):
            checkpoint.unlink()
        stores.look()
        service.await_job(late, JobState.PENDING, JobState.RUNNING)
        assert state(writes) is JobState.RUNNING
        stores.look()
        assert len(of_type("storage.restored")) == 1
