"""Emulated GPUs that Slurm hands out: whose they are, who shares them, and what a broken one does to its job."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.any_user import OF_PYTHON, python
from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.harness import require_slurm
from tests.slurm.site import Site

pytest.importorskip("torch")
pytestmark = pytest.mark.slurm

TRAIN = """
import os, sys, time, torch
print("has", torch.cuda.device_count(), "GPUs", flush=True)
device = torch.device("cuda", torch.cuda.device_count() - 1)
model = torch.nn.Linear(8, 2).to(device)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        model(torch.zeros(32, 8, device=device)).sum().backward()
        optimiser.step()
    torch.cuda.synchronize()
train(5)
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):  # until others are there too
    time.sleep(0.1)
train(5)
print("trained on", torch.cuda.get_device_name(device))
"""


@pytest.fixture(scope="module")
def emulated() -> Iterator[SlurmCluster]:
    """Two nodes with four emulated GPUs each."""
    require_slurm()
    directory = Path(tempfile.mkdtemp(prefix="perdure-slurm-", dir="/tmp"))  # socket paths must be short
    cluster = SlurmCluster(directory, nodes=2, emulated=True)
    cluster.env.update(OF_PYTHON)
    try:
        cluster.start()
        (cluster.output / "train.py").write_text(TRAIN)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def cluster(emulated: SlurmCluster) -> Iterator[SlurmCluster]:
    yield emulated
    emulated.cancel_all()


@contextmanager
def managers(cluster: SlurmCluster, node: str, *options: str) -> Iterator[list[str]]:
    """The managers of a node's GPUs; what they said at their end is there afterwards."""
    folder, said = cluster.devices(node), list[str]()
    words = ("device", "--gpu", "a100", "--gpus", "4", "--socket", str(folder), "--jobs", str(folder / "jobs"))
    argv = (sys.executable, "-m", "perdure", "emulate", *words, *options)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as served:
        try:
            await_("the sockets", lambda: len(list(folder.glob("*.sock"))) == 4 or served.poll() is not None)
            yield said
        finally:
            served.send_signal(signal.SIGTERM)
            said += served.communicate()[0].splitlines()


def program(cluster: SlurmCluster, *words: str) -> str:
    """A job's line that trains on the GPUs that Slurm gave it."""
    run = f"{python()} -m perdure emulate run --gpu a100 --model resnet50"
    share = f"--share {cluster.directory}/run/$SLURMD_NODENAME --report $SLURM_JOB_ID.json"
    return " ".join((run, share, "train.py", *words))


def submit(cluster: SlurmCluster, script: str, gres: str, *options: str, user: str | None = None) -> str:
    return cluster.submit(script, f"--gres={gres}", *options, user=user)


def log_of(cluster: SlurmCluster, job: str) -> str:
    path = cluster.output / f"{job}.out"
    return path.read_text() if path.exists() else ""


def ended(cluster: SlurmCluster, *jobs: str) -> list[tuple[str, str]]:
    """How each ended, and what it said."""
    states = [
        cluster.wait(job, lambda fields: fields["JobState"] in ("COMPLETED", "FAILED"), 240)["JobState"] for job in jobs
    ]
    return [(state, log_of(cluster, job)) for state, job in zip(states, jobs, strict=True)]


def test_each_job_has_the_gpus_that_slurm_gave_it_and_no_others(cluster: SlurmCluster) -> None:
    """Two users on a node: each uses its own two GPUs, and is denied those of the other, even by a forged variable."""
    both = cluster.output / "both"
    forged = "SLURM_JOB_GPUS=$OTHER SLURM_STEP_GPUS=$OTHER CUDA_VISIBLE_DEVICES=$OTHER"
    script = (
        f"echo $SLURM_JOB_GPUS; {program(cluster, str(both))}; "
        f"[ $SLURM_JOB_GPUS = 0,1 ] && OTHER=2 || OTHER=0; {forged} {program(cluster)}; echo forged $?"
    )
    with managers(cluster, "node1") as said:
        jobs = [submit(cluster, script, "gpu:emulated:2", "-w", "node1", user=user) for user in ("nobody", "daemon")]

        def trained() -> bool:
            return all("has 2 GPUs" in log_of(cluster, job) for job in jobs)

        await_("both at work", trained, 240, lambda: str([log_of(cluster, job) for job in jobs]))
        whose = {file.name: file.read_text() for file in (cluster.devices("node1") / "jobs").iterdir()}
        first, second = jobs
        assert set(whose) == {f"0.{first}", f"1.{first}", f"2.{second}", f"3.{second}"}
        both.touch()
        for job, (state, text) in zip(jobs, ended(cluster, *jobs), strict=True):
            assert state == "COMPLETED", text
            numbers = [0, 1] if job == first else [2, 3]
            assert text.startswith(",".join(map(str, numbers)))
            assert "trained on a100" in text
            other = 2 if job == first else 0
            assert f"GPU {other} of this node is not given to any job of yours" in text
            assert text.endswith("forged 2\n")
        await_("an epilog of each", lambda: not list((cluster.devices("node1") / "jobs").iterdir()))
    served = [line for line in said if " 0.000 s" not in line]
    assert [line.split(",")[0] for line in served] == ["GPU 1", "GPU 3"]  # each program trained on its last one


def test_shards_of_one_gpu_are_shared_by_its_manager(cluster: SlurmCluster) -> None:
    with managers(cluster, "node1") as said:
        script = program(cluster)
        jobs = [submit(cluster, script, "shard:1", "-w", "node1", user=user) for user in ("nobody", "daemon")]
        for job, (state, text) in zip(jobs, ended(cluster, *jobs), strict=True):
            assert state == "COMPLETED", text
            assert json.loads((cluster.output / f"{job}.json").read_text())["numbers"] == [0]
    served = [line for line in said if line.startswith("GPU 0, ")]
    assert len(served) == 2
    assert len({line.split(": ")[1] for line in served}) == 1  # both had as much


def test_a_broken_gpu_fails_the_job_that_has_it_and_the_retry_goes_elsewhere(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    site = Site(cluster, tmp_path).start()
    done = cluster.output / "done"
    try:
        with (
            managers(cluster, "node1"),
            managers(cluster, "node2", "--fault", "ecc@0s#1", "--kernel-log", str(tmp_path / "kernel.log")),
        ):
            fine = submit(cluster, program(cluster, str(done)), "gpu:emulated:1", "-w", "node2", user="nobody")
            site.await_known(fine)
            hit = submit(
                cluster, f"{sys.executable} -m perdure exec -- {program(cluster)}", "gpu:emulated:1", "-w", "node2"
            )
            site.await_outcome(hit, "recovered", 240)
            (requeue,) = site.actions(hit)
            assert requeue["exclude"] == ["node2"]
            done.touch()
            assert [state for state, _ in ended(cluster, fine, hit)] == ["COMPLETED", "COMPLETED"]
        assert "Xid (PCI:0000:19:00): 48" in (tmp_path / "kernel.log").read_text()
        argv = (sys.executable, "-m", "perdure", "why", hit, "--state", str(tmp_path / "state"))
        why = subprocess.run(argv, env=cluster.env, capture_output=True, text=True, timeout=180, check=False)
        told = " ".join(why.stdout.split())
        assert "a GPU or its link failed" in told, why
        assert "away from node2" in told, why
    finally:
        site.stop()
