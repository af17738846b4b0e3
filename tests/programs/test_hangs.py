"""``--hang-after`` on real programs of two ranks: hangs are found in time, whoever started them; healthy runs go on."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.model.exits import FAILED_SAID, HANG_SAID
from tests.e2e.service import Running, await_, running
from tests.programs.program import HERE, Program, is_installed, read
from tests.slurm.harness import require_cluster

AFTER_S = 20
FOUND_S = 30.0  # from the last step
EXEC = f"perdure exec --hang-after {AFTER_S} --hang-grace 3"
LOCAL = "torchrun --standalone --nproc-per-node 2"
PORT = "$((20000 + SLURM_JOB_ID % 10000))"
TORCHRUN = f"torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{PORT}"
TASKS = "sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 exec python $0'"
HANGS = {
    "srun, exec, a task each": f"MASTER_PORT={PORT} srun {EXEC} -- {TASKS}",
    "srun, exec, torchrun": f"srun {EXEC} -- {TORCHRUN}",
    "exec, srun, torchrun": f"{EXEC} --hang-signal USR1 -- srun {TORCHRUN}",
    "exec, torchrun": f"{EXEC} --hang-signal USR1 -- {LOCAL}",
}
KINDS = {  # of healthy runs; seconds of silence beyond the limit, and within it
    "silent-start": LOCAL,
    "validation": LOCAL,
    "save": LOCAL,
    "loader-stall": LOCAL,
    "progress-bar": LOCAL,
    "files": f"{LOCAL} --redirects 3 --log-dir logs",
}
LIVE = ("PENDING", "RUNNING", "COMPLETING")
FAST = {"validation"}
# PyTorch's own end now and then, once all is done: a thread of gloo is left over as the process exits.
ABORTED_AT_EXIT = "terminate called without an active exception"
HUNG = read(HERE / "failing" / "hang_before_collective.py")
needs_torch = pytest.mark.skipif(not is_installed("torch"), reason="torch is not installed")


def healthy(kind: str, launch: str, after_s: int) -> tuple[Program, str]:
    """A healthy run, and how it is started."""
    program = Program(HERE / f"healthy.py {kind} {2 * after_s} {0.6 * after_s}", "", [], "")
    return program, f"perdure exec --hang-after {after_s} --hang-grace 1 -- {launch}"


@needs_torch
@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in FAST else pytest.mark.slow) for k in KINDS])
def test_a_healthy_run_is_not_ended(kind, tmp_path):
    program, launch = healthy(kind, KINDS[kind], 5)
    command = ["sh", "-c", program.script(tmp_path, launch)]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        log = ended.stdout + ended.stderr
        if ABORTED_AT_EXIT not in log:
            break
    assert (ended.returncode, HANG_SAID in log) == (0, False), log


def found_after_s(work: Path) -> float:
    """Seconds from a program's last step until the rank that stopped first was known."""
    notes = [json.loads(path.read_text()) for path in work.glob(".perdure/**/attempts/1/*/hang.json")]
    told_s = min(note["time_s"] for note in notes if "stopped first" in note["note"])
    return told_s - (work / "last-step-0").stat().st_mtime


def _verdict(service: Running, job: str) -> dict:
    """What the service says of a job's first attempt; empty while it says nothing."""
    attempts = service.attempts(job)
    return json.loads(attempts[0]["verdict"]) if attempts and attempts[0]["verdict"] else {}


@pytest.mark.slow
@pytest.mark.slurm
@needs_torch
@pytest.mark.timeout(900)
def test_hangs_and_healthy_runs_on_slurm(tmp_path):
    """However exec, srun and torchrun are put together: found in time, the rank named by the service, too.

    One rank that fails while the other waits for it is told of while the job runs.
    """
    cluster = require_cluster()
    backend = SlurmBackend(cluster.name, Tools(timeout_s=15.0, environment=cluster.env))
    jobs, works = {}, {}

    def submit(name: str, script: str) -> None:
        nodes = ("-N2", "--ntasks-per-node=1") if "srun" in script else ("-N1",)
        log = f"--output={works[name]}/job.out"
        jobs[name] = cluster.submit(script, *nodes, log, "-J", "turn", "--dependency=singleton")

    def start(name: str, program: Program, launch: str) -> None:
        works[name] = cluster.output / f"hangs-{len(works)}"
        works[name].mkdir()
        submit(name, program.script(works[name], launch))

    try:
        with running(backend, tmp_path, armed=False) as service:
            for name, launch in HANGS.items():
                start(name, HUNG, launch)
            dead = Program(HERE / "one_rank_dies.py", "", [], "")
            start("dead", dead, f"MASTER_PORT={PORT} srun {EXEC} -- {TASKS}")
            for kind, launch in KINDS.items():
                start(kind, *healthy(kind, launch, 10))
            for name in HANGS:
                job, log = jobs[name], works[name] / "job.out"
                await_(lambda job=job: _verdict(service, job), 240, lambda job=job: service.told(job))
                verdict, told = _verdict(service, job), log.read_text()
                cluster.run("scancel", job)  # Slurm itself starts again what ends with 75 here
                assert (verdict["category"], verdict["rank"]) == ("hang", "1"), (name, verdict, told)
                assert found_after_s(works[name]) < FOUND_S, (name, told)
            log = works["dead"] / "job.out"
            await_(lambda: log.exists() and FAILED_SAID in log.read_text(), 120, lambda: f"{log}")
            assert cluster.job(jobs["dead"])["JobState"] == "RUNNING"
            says = rf"{FAILED_SAID}rank 0 on \S+ ended with exit code 1 .* rank 1 on \S+ waits"
            assert re.search(says, log.read_text())
            cluster.run("scancel", jobs["dead"])
        for kind in KINDS:
            ended = cluster.wait(jobs[kind], lambda job: job["JobState"] not in LIVE, 400)
            assert ended["JobState"] == "COMPLETED", (kind, (works[kind] / "job.out").read_text())
    finally:
        cluster.cancel_all()
