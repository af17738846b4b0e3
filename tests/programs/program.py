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
HAS_TORCH = importlib.util.find_spec("torch") is not None
_COMMANDS = {"torchrun": f"{sys.executable} -m torch.distributed.run", "python": sys.executable}
TORCHRUN = "torchrun --standalone --nproc-per-node 2"


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
        if not HAS_TORCH:
            return "torch is not installed"
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return "it has namespaces of its own, which needs root" if self._namespaces and os.geteuid() else ""

    @property
    def _namespaces(self) -> str:
        return " ".join([*(["-m"] if self.sizes_mib else []), *(["-n"] if self.offline else [])])

    def script(self, work: Path, options: str = "") -> str:
        """A shell script that runs it in the directory `work`; `options` go to torchrun."""
        words = [_COMMANDS.get(word, word) for word in f"{self.launch} {options}".split()]
        variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), **self.environment}
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        mounts = "".join(
            f"mkdir -p {path}; mount -t tmpfs -o size={size}m tmpfs {path}; " for path, size in self.sizes_mib.items()
        )
        run = f"cd {shlex.quote(str(work))}; {mounts}exec {' '.join(words)} {self.path}"
        apart = f"exec unshare {self._namespaces} sh -c {shlex.quote(run)}" if self._namespaces else run
        return f"export {exports}\n{apart}\n"


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
