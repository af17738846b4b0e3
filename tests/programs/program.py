"""One real program that fails, and the truth about it, which stands at its head."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRUTH = "#: "
_COMMANDS = {
    "torchrun": f"{sys.executable} -m torch.distributed.run",
    "accelerate": f"{sys.executable} -m accelerate.commands.launch",
    "python": sys.executable,
    "perdure": f"{sys.executable} -m perdure",
}
# Outside of a cluster `perdure exec` is told that this is a job.
_IN_A_JOB = '[ "$SLURM_JOB_ID$PERDURE_JOB_ID" ] || export PERDURE_JOB_ID=1 PERDURE_INCARNATION=1'
TORCHRUN = "torchrun --standalone --nproc-per-node 2"
WITH_FILES = f"{TORCHRUN} --redirects 3 --log-dir logs"
ACCELERATE = "accelerate --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
_PORT = "$((20000 + SLURM_JOB_ID % 10000))"
TWO_NODES = f"srun torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{_PORT}"
RANKS_OF_SRUN = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={_PORT} WORLD_SIZE=2 srun sh -c 'RANK=$SLURM_PROCID exec python $0'"
"""Launches of two ranks: on one node, and by srun on a node each."""


@dataclass(frozen=True)
class Program:
    """A file of `failing/`: what it does, how it is started, and what is true of its failure."""

    path: Path
    says: str  # what happens in it
    cause: list[str]  # category that is right; several where words for the same thing differ
    verdict: str  # what becomes of its first failure: retry, probe (one retry) or stop
    rank: str = ""  # that failed first; "any" where all do, "" where there is one process
    message: str = ""  # holds of the line that names the cause
    frame: str = ""  # the innermost frame in own code that is shown holds this
    says_also: str = ""  # words that the verdict or its advice must hold
    launch: str = TORCHRUN
    anywhere: bool = False  # run by Accelerate too, and by srun on two nodes, with torchrun and without
    needs: str = ""  # a module beside torch
    offline: bool = False  # run without a network; needs root
    sizes_mib: dict[str, int] = field(default_factory=dict)  # file systems made anew for it, by path; needs root
    environment: dict[str, str] = field(default_factory=dict)
    lands: bool = False  # run each time that a change lands

    @property
    def name(self) -> str:
        return self.path.stem

    def missing(self) -> str:
        """Why it cannot be run here, or ""."""
        if not is_installed("torch"):
            return "torch is not installed"
        if self.needs and not is_installed(self.needs):
            return f"{self.needs} is not installed"
        return "it has namespaces of its own, which needs root" if self._namespaces and os.geteuid() else ""

    @property
    def _namespaces(self) -> str:
        return " ".join([*(["-m"] if self.sizes_mib else []), *(["-n"] if self.offline else [])])

    def script(self, work: Path, launch: str = "") -> str:
        """A shell script that runs it in the directory `work`, by `launch` if that is given."""
        words = [_COMMANDS.get(word, word) for word in (launch or self.launch).split(" ")]
        search = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": search, **self.environment}
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        mounts = "".join(
            f"mkdir -p {path}; mount -t tmpfs -o size={size}m tmpfs {path}; " for path, size in self.sizes_mib.items()
        )
        run = f"cd {shlex.quote(str(work))}; {mounts}{' '.join(words)} {self.path}"
        apart = f"exec unshare {self._namespaces} sh -c {shlex.quote(run)}" if self._namespaces else run
        return f"export {exports}\n{_IN_A_JOB}\n{apart}\n"


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def programs() -> list[Program]:
    """All by name; of these, those that PERDURE_PROGRAMS names where it is set."""
    only = os.environ.get("PERDURE_PROGRAMS", "").split()
    return [read(path) for path in sorted((HERE / "failing").glob("*.py")) if not only or path.stem in only]


def read(path: Path) -> Program:
    """A program, by the docstring and the lines of TOML behind ``#:`` at its head."""
    text = path.read_text()
    truth = tomllib.loads("\n".join(line.removeprefix(TRUTH) for line in text.splitlines() if line.startswith(TRUTH)))
    if unknown := set(truth) - {each.name for each in fields(Program)}:
        raise ValueError(f"{path}: unknown words {sorted(unknown)}")
    return Program(path, text.split('"""')[1], **truth)
