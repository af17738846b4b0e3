"""Jobs that go on after their walltime, on a real Slurm: six allocations under each recipe of the docs."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.model.jobs import JobState
from perdure.service.core.settings import ControllerSettings
from tests.e2e.recipes import RECIPES, WITH, command, is_installed, steps_done
from tests.e2e.service import running
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(3000)]

STEPS, STEP_S, LEAST = 720, 0.5, 6  # a quiet machine does some 140 in an allocation, a busy one fewer
BEFORE_S = 40  # of 120 s: a busy machine takes more than half a minute to import what trains
WITHIN_S = 2400


def test_six_allocations_under_each_recipe_lose_no_step_and_spend_no_retry(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """All at once, those whose libraries are installed. The retries that a job has would not do."""
    plain = (sys.executable, RECIPES / "plain_loop.py", STEPS + 160, STEP_S)
    commands = {"plain": plain} | {name: command(name, STEPS, STEP_S) for name in WITH if is_installed(name)}
    backend = SlurmBackend(quiet_cluster.name, Tools(timeout_s=15.0, environment=quiet_cluster.env))
    with running(backend, tmp_path, look_every_s=1.0, settings=ControllerSettings()) as service:
        jobs = {}
        for name, argv in commands.items():
            directory = quiet_cluster.output / name
            directory.mkdir()
            launcher = f"{sys.executable} -m perdure exec --signal-before {BEFORE_S} -- "
            script = f"cd {directory}\nexport OMP_NUM_THREADS=1\nsrun -n1 {launcher}{shlex.join(map(str, argv))}\n"
            jobs[name] = quiet_cluster.submit(script, "--requeue", "--time=2", "-n2")
        for name, job in jobs.items():
            service.await_job(job, JobState.COMPLETED, within_s=WITHIN_S)
            *before, last = service.attempts(job)
            verdicts = [json.loads(attempt["verdict"])["category"] for attempt in before]
            assert verdicts == ["time_limit"] * len(before), service.told(job)
            assert last["state"] == "completed", service.told(job)
            assert len(before) + 1 >= LEAST, name
            done = steps_done(quiet_cluster.output / name)
            assert done == list(range(1, done[-1] + 1)), name
