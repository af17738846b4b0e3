"""The same programs as jobs of the embedded cluster and of a real Slurm, each twice: the service is right about all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.backends.protocol import Backend
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from tests.conftest import require
from tests.e2e.service import Running, await_, running
from tests.programs.program import HAS_TORCH, Program, programs
from tests.programs.test_programs import wrong
from tests.slurm.harness import require_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ALL = programs()
WITH_FILES = "--redirects 3 --log-dir logs"
AT_ONCE = 2  # programs of two ranks each
EACH_S = 90.0  # of patience


def judged(service: Running, job_id: str, patience_s: float) -> tuple[dict, str]:
    """What the service says of a job's first failure, and what it decided."""

    def done() -> bool:
        found = service.exceptions(job_id)
        return bool(found and found[0]["decision"])

    await_(done, patience_s, lambda: f"job {job_id} has no decision{service.told(job_id)}")
    return json.loads(service.attempts(job_id)[0]["verdict"]), service.exceptions(job_id)[0]["decision"]


def assert_all_right(backend: Backend, submit: Callable[[Program, str], str], home: Path) -> None:
    """Each program is run twice, the second time with files of its ranks where that can be; all are judged rightly."""
    require("torch", HAS_TORCH, "torch is not installed")
    runnable = [program for program in ALL if not program.missing()]
    with running(backend, home, armed=False) as service:
        again = [(p, WITH_FILES if "torchrun" in p.launch and not p.sizes_mib else "") for p in runnable]
        jobs = [(p, options, submit(p, options)) for p, options in [*((p, "") for p in runnable), *again]]
        errors = []
        for program, options, job_id in jobs:
            verdict, decision = judged(service, job_id, EACH_S * len(runnable))
            if why := wrong(program, verdict, decision):
                errors.append(f"{program.name} {options}: {why}: {verdict}")
    assert not errors, "\n".join(errors)


def test_on_the_embedded_cluster(tmp_path):
    start_daemon(tmp_path / "cluster", nodes=AT_ONCE, gpus=1)
    try:
        cluster = LocalBackend(tmp_path / "cluster")

        def submit(program: Program, options: str) -> str:
            work = tmp_path / f"{program.name}-{bool(options)}"
            work.mkdir(exist_ok=True)
            argv = ("sh", "-c", program.script(work))
            return cluster.submit(JobSpec(argv=argv, user="ada", gpus_per_node=1))

        assert_all_right(cluster, submit, tmp_path)
    finally:
        stop_daemon(tmp_path / "cluster")


@pytest.mark.slurm
def test_on_slurm(tmp_path):
    cluster = require_cluster()
    backend = SlurmBackend(cluster.name, Tools(timeout_s=15.0, environment=cluster.env))
    count = 0

    def submit(program: Program, options: str) -> str:
        nonlocal count
        count += 1
        work = cluster.output / f"programs-{count}"
        work.mkdir()
        turn = ("-J", f"turn-{count % AT_ONCE}", "--dependency=singleton")
        return cluster.submit(program.script(work, options), "--requeue", *turn)

    try:
        assert_all_right(backend, submit, tmp_path)
    finally:
        cluster.cancel_all()
