"""The same programs as jobs of the embedded cluster and of a real Slurm, each twice: the service is right about all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.backends.protocol import Backend
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from tests.conftest import require
from tests.e2e.service import Running, await_, running
from tests.programs.program import (
    ACCELERATE,
    RANKS_OF_SRUN,
    TORCHRUN,
    TWO_NODES,
    WITH_FILES,
    Program,
    is_installed,
    programs,
)
from tests.programs.test_programs import wrong
from tests.slurm.harness import require_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ALL = programs()
AT_ONCE = 2  # programs of two ranks each
EACH_S = 90.0  # of patience


def judged(service: Running, job_id: str, patience_s: float) -> tuple[dict, str]:
    """What the service says of a job's first failure, and what it decided."""

    def done() -> bool:
        found = service.exceptions(job_id)
        return bool(found and found[0]["decision"])

    await_(done, patience_s, lambda: f"job {job_id} has no decision{service.told(job_id)}")
    return json.loads(service.attempts(job_id)[0]["verdict"]), service.exceptions(job_id)[0]["decision"]


def keep(row: dict) -> None:
    """Write down what was said of a run, a line of JSON, where PERDURE_TABLE names a file (`page` reads it)."""
    if table := os.environ.get("PERDURE_TABLE"):
        with Path(table).open("a") as out:
            out.write(json.dumps(row) + "\n")


def assert_all_right(
    place: str,
    backend: Backend,
    submit: Callable[[Program, str], str],
    home: Path,
    more: Sequence[str] = (),
    cancel: Callable[[str], object] = lambda job_id: None,
) -> None:
    """Each program is run twice, and by each of `more` launches where it can be; all are judged rightly.

    A job is cancelled once it is judged: some ask to be put back, which a manager may do by itself.
    """
    require("torch", is_installed("torch"), "torch is not installed")
    runnable = [program for program in ALL if not program.missing()]
    runs = [(program, launch) for program in runnable for launch in launches(program, more)]
    with running(backend, home, armed=False) as service:
        jobs = [(program, launch, submit(program, launch)) for program, launch in runs]
        errors = []
        for program, launch, job_id in jobs:
            verdict, decision = judged(service, job_id, EACH_S * len(runs))
            cancel(job_id)
            why = wrong(program, verdict, decision)
            run = {"program": program.name, "place": place, "launch": launch, "wrong": why, "decision": decision}
            keep(run | {name: verdict[name] for name in ("category", "rank", "p_transient", "summary", "evidence")})
            errors += [f"{program.name} by {launch}: {why}: {verdict}"] if why else []
    assert not errors, "\n".join(errors)


def launches(program: Program, more: Sequence[str]) -> list[str]:
    """The launches of a program; the second of torchrun's writes files of the ranks where the service reads them."""
    files = program.launch == TORCHRUN and not program.sizes_mib
    by_accelerate = [ACCELERATE] if is_installed("accelerate") else []
    others = [*by_accelerate, *more] if program.anywhere else []
    return [program.launch, WITH_FILES if files else program.launch, *others]


def test_on_the_embedded_cluster(tmp_path):
    start_daemon(tmp_path / "cluster", nodes=AT_ONCE, gpus=1)
    try:
        cluster = LocalBackend(tmp_path / "cluster")

        def submit(program: Program, launch: str) -> str:
            work = Path(tempfile.mkdtemp(dir=tmp_path))
            argv = ("sh", "-c", program.script(work, launch))
            return cluster.submit(JobSpec(argv=argv, user="ada", gpus_per_node=1))

        assert_all_right("embedded cluster", cluster, submit, tmp_path)
    finally:
        stop_daemon(tmp_path / "cluster")


@pytest.mark.slurm
def test_on_slurm(tmp_path):
    cluster = require_cluster()
    backend = SlurmBackend(cluster.name, Tools(timeout_s=15.0, environment=cluster.env))
    count = 0

    def submit(program: Program, launch: str) -> str:
        nonlocal count
        count += 1
        work = cluster.output / f"programs-{count}"
        work.mkdir()
        turn = ("-J", f"turn-{count % AT_ONCE}", "--dependency=singleton")
        nodes = ("-N2", "--ntasks-per-node=1") if "srun" in launch else ()
        return cluster.submit(program.script(work, launch), "--requeue", *nodes, *turn)

    try:
        more = [TWO_NODES, RANKS_OF_SRUN]
        assert_all_right("Slurm", backend, submit, tmp_path, more, lambda job: cluster.run("scancel", job))
    finally:
        cluster.cancel_all()
