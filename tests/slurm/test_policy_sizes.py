"""Sizes at start on a real Slurm: a job that allows several gets the planned one, and its own back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobSize
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.store.journal import Journal
from perdure.waits.queue import QueuedJob
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

PRIORITIES = "PriorityType=priority/multifactor\n"


class SizedWorld:
    """Three nodes of four GPUs, all of them taken, and what a policy does there."""

    def __init__(self, folder: Path) -> None:
        self.cluster = SlurmCluster(folder / "slurm", 3, 4, PRIORITIES)
        self.cluster.start()
        self.backend = SlurmBackend(self.cluster.name, Tools(timeout_s=15.0, environment=self.cluster.env))
        self.state = folder

    def turn(self, journal: Journal, name: str) -> None:
        """One decision, as after a start of the service."""
        self.look()
        settings = PolicySettings(name, lease_s=1.0, round_s=1.0, least_run_s=0.0)
        PolicyWorker(
            self.backend, PolicyStore(journal.store, "perdure"), settings, PolicySwitch(self.state), lambda: True,
            lambda: (), lambda *_: None, lambda: 0.0,
        ).turn()  # fmt: skip

    def look(self) -> dict[str, QueuedJob]:
        self.backend.queue()
        self.backend.observe(0.0)
        look = self.backend.queue()
        assert look is not None
        return {job.job_id: job for job in look.queue.jobs}

    def asks(self, job_id: str) -> JobSize | None:
        return self.look()[job_id].asks


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SizedWorld]:
    from tests.slurm.harness import require_slurm

    require_slurm()
    made = SizedWorld(tmp_path_factory.mktemp("sizes"))
    try:
        yield made
    finally:
        made.backend.close()
        made.cluster.stop()


@pytest.mark.parametrize(
    ("options", "asked", "planned"),
    [
        (
            ("--gres=gpu:4", "--nodes=1-3", "--comment=perdure:policy"),
            JobSize(1, 3, 4),
            [JobSize(n, n, 4) for n in (1, 2, 3)],
        ),
        (
            ("--gres=gpu:2", "--comment=perdure:policy gpus=2,4,8"),
            JobSize(1, 1, 2),
            [JobSize(1, 1, 4), JobSize(2, 2, 4)],
        ),
    ],
    ids=["nodes", "gpus"],
)
def test_a_job_starts_on_the_planned_size_and_a_waiting_one_gets_its_own_back(
    world: SizedWorld, tmp_path: Path, options: tuple[str, ...], asked: JobSize, planned: list[JobSize]
) -> None:
    cluster = world.cluster
    block = cluster.submit("sleep 600", "--gres=gpu:4", "--nodes=3", "--requeue", "--comment=perdure:preempt")
    cluster.wait(block, lambda job: job.get("JobState") == "RUNNING")
    first, second = (cluster.submit("sleep 600", "--requeue", *options) for _ in range(2))
    stranger = cluster.submit("sleep 600", "--gres=gpu:4", "--nodes=1-3", "--hold")
    try:
        with closing(Journal.open(tmp_path / "state", "perdure")) as journal:
            assert world.asks(first) == asked

            def planned_sizes() -> list[JobSize | None] | None:
                world.turn(journal, "themis")  # once the lease of the job that runs has ended
                found = [world.asks(job_id) for job_id in (first, second)]
                return found if found != [asked, asked] else None

            sizes = await_("a size is chosen", planned_sizes)
            assert [size for size in sizes if size not in (asked, *planned)] == []
            world.turn(journal, "fifo")  # chooses no sizes
            assert (world.asks(first), world.asks(second)) == (asked, asked)
            assert PolicyStore(journal.store, "perdure").sizes() == {}
        assert world.asks(stranger) == JobSize(1, 3, 4)
    finally:
        cluster.run("scancel", "--full", first, second, stranger, block, check=False)
        await_("no job is there", lambda: not cluster.run("squeue", "--noheader").strip())
