"""A program that goes on where it stopped, chains of it on a real Slurm, and what its own log proves of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster

PROGRAM = """
import os, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
try: step = int(open("progress").read())
except FileNotFoundError: step = 0
while step < int(sys.argv[1]):
    time.sleep(0.5)
    step += 1
    open("progress.new", "w").write(str(step))
    os.replace("progress.new", "progress")
    open("log", "a").write(f"{time.time():.2f} {step} {os.environ['SLURM_JOB_ID']}\\n")
    if stop: sys.exit(0)
"""
SCRIPT = """#!/bin/sh
#SBATCH --job-name={name} --gres=gpu:{gpus} --time={minutes} --signal=B:TERM@10
cd {folder}
exec {python} program.py {steps}
"""
PAUSE_S = 8.0  # longer than a busy machine makes a job wait
AGE = """
PriorityType=priority/multifactor
PriorityWeightAge=100000
PriorityMaxAge=00:10:00
PriorityCalcPeriod=1
OverTimeLimit=0
"""
"""Ages that count as fast as these links run: seven days are to a day's link what ten minutes are to these."""


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the program."""

    at_s: float
    step: int
    job_id: str


@dataclass(slots=True)
class Work:
    """A folder in which the program runs, whichever jobs run it."""

    cluster: SlurmCluster
    name: str
    steps: int
    minutes: int = 1
    gpus: int = 4
    state: Path | None = None  # where its chain is written down; beside it if not given
    variables: Mapping[str, str] = field(default_factory=dict)  # for whoever keeps it
    _keepers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "program.py").write_text(PROGRAM)
        text = SCRIPT.format(
            name=self.name, gpus=self.gpus, minutes=self.minutes, folder=self.folder, python=sys.executable,
            steps=self.steps,
        )  # fmt: skip
        (self.folder / "train.sh").write_text(text)

    @property
    def folder(self) -> Path:
        return self.cluster.output / self.name

    @property
    def environment(self) -> dict[str, str]:
        return {**self.cluster.env, "PERDURE_KEEP_DIR": str(self.state or self.folder / "state"), **self.variables}

    def keep(self, *words: str) -> subprocess.Popen[bytes]:
        """Start ``perdure keep`` with these words."""
        with (self.folder / "keep.log").open("ab") as out:
            keeper = subprocess.Popen(
                (sys.executable, "-m", "perdure", "keep", *words), cwd=self.folder, env=self.environment, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        self._keepers.append(keeper)
        return keeper

    def ask(self, *words: str) -> Any:
        """What ``perdure keep ... --json`` says."""
        done = self.run(*words, "--json")
        return json.loads(done.stdout)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "perdure", "keep", *words)
        return subprocess.run(
            argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def end(self) -> None:
        """Kill whoever keeps it still."""
        for keeper in self._keepers:
            if keeper.poll() is None:
                keeper.kill()
            keeper.wait()

    def log(self) -> list[Line]:
        try:
            lines = (self.folder / "log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Line(float(at), int(step), job) for at, step, job in (line.split() for line in lines)]

    def account(self) -> str:
        """What is to be told of a test that failed."""
        return (self.folder / "keep.log").read_text() + "\n".join(
            path.read_text(errors="replace")[-500:] for path in sorted(self.folder.glob("*.out"))
        )


def violations(log: Sequence[Line], most_overlap_s: float = 0.0) -> list[str]:
    """What is wrong with a chain by its program's own log: a step twice, one left out, or two jobs at once."""
    found = []
    for before, after in pairwise(log):
        if not before.step < after.step <= before.step + 2:  # killed between its progress and its log, one is not told
            found.append(f"step {after.step} of job {after.job_id} follows {before.step} of {before.job_id}")
    order = jobs_of(log)
    for job in set(order):
        if order.count(job) > 1 and job != order[-1] and order.index(job) != len(order) - 1 - order[::-1].index(job):
            found.append(f"job {job} wrote again after another had")
    return found


def jobs_of(log: Sequence[Line]) -> list[str]:
    """The jobs that wrote it, each run of lines once."""
    return [line.job_id for at, line in enumerate(log) if not at or log[at - 1].job_id != line.job_id]


def gaps_s(log: Sequence[Line]) -> list[float]:
    """How long nothing was written where another job went on, or the same after it was put back."""
    return [
        round(after.at_s - before.at_s, 1)
        for before, after in pairwise(log)
        if after.job_id != before.job_id or after.at_s - before.at_s > PAUSE_S
    ]


def competing_load(cluster: SlurmCluster, seconds: float, seed: int, waiting: int = 4) -> subprocess.Popen[bytes]:
    """Other jobs of many sizes, a few of which always wait."""
    text = f"""
import random, subprocess, time
rng, end = random.Random({seed}), time.monotonic() + {seconds}
while time.monotonic() < end:
    asked = subprocess.run(["squeue", "-h", "-t", "pending", "-n", "load", "-o", "%i"], capture_output=True, text=True)
    if asked.returncode == 0 and len(asked.stdout.split()) < {waiting}:
        gpus, run_s = rng.choice([2, 4, 4]), rng.randint(20, 75)
        subprocess.run(["sbatch", "-Q", "-J", "load", "-o", "/dev/null", "--no-requeue", f"--gres=gpu:{{gpus}}",
                        "-t", "2", "--wrap", f"sleep {{run_s}}"], capture_output=True)
    time.sleep(2)
"""
    return subprocess.Popen((sys.executable, "-c", text), env=cluster.env, start_new_session=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 512 KiB; skips where none may be mounted."""
    folder.mkdir()
    done = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "-l", folder), check=False)


def fill(folder: Path) -> Path:
    """Take all the room there is; returns the file that has it."""
    path = folder / "full"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
    return path


def kill(process: subprocess.Popen[bytes]) -> None:
    """As a power cut would, for this process alone."""
    if process.poll() is None:
        os.kill(process.pid, 9)
    process.wait()
