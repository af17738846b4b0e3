"""Jobs that are put back in the very moment in which they end: under ``perdure exec`` each ends well once."""

import random
import sys
import threading
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

JOBS = 30
PROGRAM = """
echo near >> {folder}/$SLURM_JOB_ID
sleep 0.5
echo end >> {folder}/$SLURM_JOB_ID
"""


def put_back(cluster: SlurmCluster, job: str, notes: Path, after_s: float) -> None:
    """Requeue a job some time after its program has said that it is near its end."""
    await_(f"job {job} near its end", lambda: (notes / job).exists(), 240.0)
    threading.Event().wait(after_s)
    cluster.run("scontrol", "requeue", job, check=False)


def test_each_ends_well_once(quiet_cluster: SlurmCluster) -> None:
    """From 0.5 s before the end to 0.7 s after it: Slurm carries out all of these, at whatever it finds then."""
    folder, rng = quiet_cluster.output / "at-the-end", random.Random(1)
    (folder / "notes").mkdir(parents=True)
    program = folder / "program"
    program.write_text(PROGRAM.format(folder=folder / "notes"))
    launcher = f"{sys.executable} -m perdure exec -- sh {program}"
    script = f"export PERDURE_FENCE_DIR={folder}/fence-$SLURM_JOB_ID\nexec {launcher}\n"
    jobs = [quiet_cluster.submit(script, "--requeue", "--time=5") for _ in range(JOBS)]
    hands = [
        threading.Thread(target=put_back, args=(quiet_cluster, job, folder / "notes", rng.uniform(0.0, 1.2)))
        for job in jobs
    ]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    for job in jobs:
        quiet_cluster.wait(job, lambda record: record["JobState"] == "COMPLETED", 240)
    ended = {job: (folder / "notes" / job).read_text().count("end") for job in jobs}
    assert set(ended.values()) == {1}, ended
