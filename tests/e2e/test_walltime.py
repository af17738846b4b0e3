"""A job that needs six allocations runs to its end: it is told of its walltime, saves, and is put back."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.model.jobs import JobState
from perdure.service.core.settings import ControllerSettings
from tests.e2e.recipes import RECIPES, WITH, command, steps_done
from tests.e2e.service import Running, running

WALLTIME_S = 9.0  # of which a busy machine takes seconds to start what is told of its end


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    home = tmp_path_factory.mktemp("cluster")
    start_daemon(home, nodes=1, gpus=4)
    try:
        yield LocalBackend(home)
    finally:
        stop_daemon(home)


def submit(cluster: LocalBackend, directory: Path, walltime_s: float, before_s: int, *argv: object) -> str:
    launcher = (sys.executable, "-m", "perdure", "exec", "--signal-before", str(before_s), "--")
    env = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "OMP_NUM_THREADS")}
    words = (*launcher, *map(str, argv))
    return cluster.submit(JobSpec(argv=words, user="ada", walltime_s=walltime_s, workdir=str(directory), env=env))


def ran_on(service: Running, job: str, least: int, within_s: int = 400) -> None:
    """Wait for its end: it took so many attempts at least, and each but the last ended for its walltime."""
    service.await_job(job, JobState.COMPLETED, within_s=within_s)
    *before, last = service.attempts(job)
    verdicts = [json.loads(attempt["verdict"]) for attempt in before]
    assert [verdict["category"] for verdict in verdicts] == ["time_limit"] * len(before), service.told(job)
    assert last["state"] == "completed", service.told(job)
    assert len(before) + 1 >= least


def test_a_plain_loop_of_six_allocations_runs_to_its_end(cluster: LocalBackend, tmp_path: Path) -> None:
    """The retries that a job has would not do for it; no step is lost, none is done twice."""
    with running(cluster, tmp_path, settings=ControllerSettings()) as service:
        job = submit(cluster, tmp_path, WALLTIME_S, 3, sys.executable, RECIPES / "plain_loop.py", 300, 0.1)
        ran_on(service, job, 6)
    assert steps_done(tmp_path) == list(range(1, 301))


def test_a_loop_that_makes_no_progress_is_stopped_after_two(cluster: LocalBackend, tmp_path: Path) -> None:
    """It is told, and asks to be run again, and starts at its first step each time."""
    program = tmp_path / "forgets.py"
    program.write_text((RECIPES / "plain_loop.py").read_text().replace("if latest.exists()", "if False"))
    with running(cluster, tmp_path, settings=ControllerSettings()) as service:
        job = submit(cluster, tmp_path, WALLTIME_S, 3, sys.executable, program, 200, 0.1)
        service.await_exception(job, "stopped")
        attempts, reason = service.attempts(job), service.exceptions(job)[-1]["reason"]
    assert "newer step" in reason
    assert len(attempts) == 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", WITH)
def test_a_recipe_loses_no_step_over_many_allocations(cluster: LocalBackend, tmp_path: Path, recipe: str) -> None:
    argv = command(recipe, 200, 0.2)
    with running(cluster, tmp_path, settings=ControllerSettings()) as service:
        job = submit(cluster, tmp_path, 26.0, 10, *argv)
        ran_on(service, job, 4, within_s=600)
    assert steps_done(tmp_path) == list(range(1, 201))
