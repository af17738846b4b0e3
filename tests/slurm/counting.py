"""Counts what a service asks of Slurm: processes by a shim in PATH, RPCs by `sdiag`."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.slurm.cluster import SlurmCluster

TOOLS = ("scontrol", "sacct", "scancel", "squeue", "sinfo", "sacctmgr", "sdiag", "sbatch")


class Shim:
    """Directory of programs that write a line and then become the true ones."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._log = directory / "calls"
        self._environment = environment
        directory.mkdir(parents=True, exist_ok=True)
        for tool in TOOLS:
            true = shutil.which(tool, path=environment["PATH"])
            script = f'#!/bin/sh\necho "$(date +%s.%N) {tool} $*" >>{self._log}\nexec {true} "$@"\n'
            (directory / tool).write_text(script)
            (directory / tool).chmod(0o755)
        self.environment = {**environment, "PATH": f"{directory}:{environment['PATH']}"}

    def calls(self, since_s: float = 0.0) -> list[tuple[float, str]]:
        """Each process that was started since: the instant, and its command line."""
        if not self._log.exists():
            return []
        lines = (line.split(" ", 1) for line in self._log.read_text(errors="replace").splitlines())
        return [(float(at), argv) for at, argv in lines if float(at) >= since_s]


def busiest_minute(instants: list[float]) -> int:
    """How many fall into the minute that holds the most."""
    return max((sum(at <= other < at + 60.0 for other in instants) for at in instants), default=0)


_RPC = re.compile(r"(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)\s+total_time:(\d+)")


def rpcs(cluster: SlurmCluster) -> tuple[Counter[str], Counter[str]]:
    """How often slurmctld was asked what, and the microseconds that it spent on each, since it started."""
    found = {name: (int(n), int(total)) for name, n, _, total in _RPC.findall(cluster.run("sdiag"))}
    return Counter({k: n for k, (n, _) in found.items()}), Counter({k: t for k, (_, t) in found.items()})
