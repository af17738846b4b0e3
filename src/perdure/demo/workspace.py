"""The directory the demonstration's jobs work in: the programs, a home for each user, what all share."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from perdure.demo.workload import SCENARIOS
from perdure.errors import StateError

KEEP_RUNS_S = 3600.0
"""Checkpoints of runs that never finished are deleted when they have not changed for this long."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where things are; `prepare` makes it so."""

    root: Path

    @property
    def programs(self) -> Path:
        return self.root / "programs"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def home(self, user: str) -> Path:
        return self.root / "home" / user

    def tidy(self, now: float) -> None:
        """Remove runs that nobody has written to for `KEEP_RUNS_S` seconds before `now` (since the epoch)."""
        for run in self.root.glob("home/*/runs/*"):
            with suppress(FileNotFoundError):  # its job has just finished
                if run.stat().st_mtime < now - KEEP_RUNS_S:
                    shutil.rmtree(run, ignore_errors=True)


def prepare(root: Path) -> Workspace:
    """Make or renew the workspace under `root`. Raises `StateError` where it cannot be written."""
    workspace = Workspace(root.resolve())
    users = {job.user for scenario in SCENARIOS for job in scenario.jobs}
    try:
        for directory in (workspace.programs, workspace.shared / "bin", *map(workspace.home, sorted(users))):
            directory.mkdir(parents=True, exist_ok=True)
        _write_index(workspace.shared / "index.db")
        for program in resources.files("perdure.demo").joinpath("programs").iterdir():
            if program.name.endswith((".py", ".py.txt")):  # one has a syntax error that no tool should stumble over
                (workspace.programs / program.name.removesuffix(".txt")).write_bytes(program.read_bytes())
        tool = workspace.shared / "bin" / "tokenise.sh"
        tool.write_text('#!/bin/sh\necho "tokens of $1"\n')
        tool.chmod(0o644)  # not even root runs a file that nobody may run
    except OSError as err:
        what = f"the demonstration cannot write there: {err.strerror}"
        raise StateError(str(root), what, "Name another --state, or use --no-demo") from err
    return workspace


def _write_index(path: Path) -> None:
    """A small search index; one that exists may be in use and stays."""
    if not path.exists():
        with closing(sqlite3.connect(path)) as index, index:
            index.execute("CREATE TABLE passage (id INTEGER PRIMARY KEY, text TEXT)")
            index.execute("INSERT INTO passage (text) VALUES ('the first passage')")
