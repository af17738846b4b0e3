"""Run a program once: in a directory of its own, within limits, with its trouble or without; nothing outlives it."""

from __future__ import annotations

import os
import re
import resource
import secrets
import shlex
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO

from foundry import chatter
from foundry.needs import Machine
from foundry.program import Program
from foundry.troubles import TROUBLES

MIB = 1 << 20
LIMITS = {
    resource.RLIMIT_CPU: 240,  # seconds
    resource.RLIMIT_DATA: 6144 * MIB,
    resource.RLIMIT_FSIZE: 1024 * MIB,
    resource.RLIMIT_CORE: 0,
}
MAX_OUTPUT_BYTES = 256 * 1024
RUN_MARK = "FOUNDRY_RUN"

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "*",
    "no_proxy": "*",
    "GIT_TERMINAL_PROMPT": "0",
}
CALM = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "0",
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "COLUMNS": "120",
}


@dataclass(frozen=True, slots=True)
class Output:
    """What one run gave: its exit code as a shell gives it, its text, and which lines are ordinary."""

    exit_code: int
    text: str
    ordinary: tuple[bool, ...]  # one for each line of the text

    @property
    def span(self) -> tuple[int, int]:
        """First and last line (from 1) that is not ordinary; the whole text where all are."""
        lines = self.text.split("\n")
        telling = [n for n, (line, calm) in enumerate(zip(lines, self.ordinary, strict=True), 1) if line and not calm]
        return (telling[0], telling[-1]) if telling else (1, len(lines))


def run(program: Program, machine: Machine, style: int, *, present: bool) -> Output:
    """Run once in a fresh directory. What does not end within the program's time is ended, with all it started."""
    mark = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="foundry") as name, tempfile.TemporaryFile() as printed:
        directory = Path(name).resolve()
        _furnish(directory, program, machine)
        with TROUBLES[program.trouble](directory, present) as (extra, disturb):
            process = subprocess.Popen(
                program.command,
                cwd=directory,
                env={**_environment(directory, machine, style), RUN_MARK: mark, **extra},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                _limit(process.pid)
                disturb(process)
                _await(process, program.timeout_s)
            finally:
                _sweep(mark)
        return _told(process.wait(), _tail(printed), directory, machine)


def _furnish(directory: Path, program: Program, machine: Machine) -> None:
    (directory / "tmp").mkdir()
    if not (machine.python.parent / "python").exists():  # a system's own Python may be called python3 alone
        (directory / "bin").mkdir()
        (directory / "bin" / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(str(machine.python))} "$@"\n')
        (directory / "bin" / "python").chmod(0o755)
    (directory / "chatter.py").write_text((resources.files("foundry") / "chatter.py").read_text())
    for name, text in {"train.py": program.source, **program.files}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))


def _environment(directory: Path, machine: Machine, style: int) -> dict[str, str]:
    places = {"HOME": str(directory), "TMPDIR": str(directory / "tmp"), "PATH": f"{directory}/bin:{machine.path}"}
    slurm = {"SLURM_CONF": str(machine.slurm / "etc" / "slurm.conf")} if machine.slurm else {}
    tool = {"SLURM_TOOL": str(machine.slurm_tool), "SLURM_STATE": str(machine.slurm)} if machine.slurm_tool else {}
    return {**places, **OFFLINE, **CALM, **slurm, **tool, "CHATTER": str(style), "CHATTER_MARK": chatter.MARK}


def _limit(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, 10)
    for limit, value in LIMITS.items():
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or has set itself a lower one
            resource.prlimit(pid, limit, (value, value))


def _await(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until the program has ended; one that hangs is killed."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _tail(printed: IO[bytes]) -> bytes:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - MAX_OUTPUT_BYTES))
    return printed.read()


def _sweep(mark: str) -> None:
    """End every process that a run started, known by the mark in its environment."""
    wanted = f"{RUN_MARK}={mark}".encode()
    for _ in range(3):
        left = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal() and _carries(p, wanted)]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return


def _carries(process: Path, wanted: bytes) -> bool:
    try:
        return wanted in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _told(status: int, output: bytes, directory: Path, machine: Machine) -> Output:
    text = scrub(output.decode("utf-8", "replace"), directory, machine)
    lines = text.rstrip("\n").split("\n")
    ordinary = tuple(line.endswith(chatter.MARK) for line in lines)
    return Output(status if status >= 0 else 128 - status, "\n".join(lines).replace(chatter.MARK, ""), ordinary)


def scrub(text: str, directory: Path, machine: Machine) -> str:
    """The text with this machine's directories, host and user replaced by such as a user would have."""
    places = {
        str(directory): "/home/user/job",
        directory.name: "job",
        str(machine.python.parent.parent): "/home/user/env",
        str(Path(os.path.realpath(machine.python)).parent.parent): "/usr",
    }
    if machine.slurm is not None:
        places[str(machine.slurm)] = "/var/lib/slurm"
    if (address := _own_address()) is not None:
        places[address] = "10.0.0.17"
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    text = re.sub(rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w.])", "node17", text)
    return re.sub(r"/root\b", "/home/user", text)


def _own_address() -> str | None:
    """The address by which this machine would reach others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])
    return None
