"""A PostgreSQL server of the tests' own, in a directory of its own, reached through a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg


def programs() -> Path | None:
    """The directory of the server's programs, or None where it is not installed."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return debian[-1].parent if debian else None


@contextmanager
def server(bin_dir: Path) -> Iterator[str]:
    """Run a server; gives the URL of its databases without a name at the end. It refuses to run as root."""
    identity = _identity()
    directory = Path(tempfile.mkdtemp(prefix="pg-"))
    if identity:
        shutil.chown(directory, identity["user"], identity["group"])
    common: dict[str, Any] = {"cwd": directory, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **identity}
    data = directory / "data"
    try:
        subprocess.run(
            [bin_dir / "initdb", "-D", data, "-U", "perdure", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            timeout=120,
            **common,
        )
        quick = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", "shared_buffers=16MB"]
        with (directory / "log").open("wb") as log:
            running = subprocess.Popen([bin_dir / "postgres", "-D", data, "-k", directory, *quick],
                                       **{**common, "stderr": log})  # fmt: skip
        try:
            _await(directory, running)
            yield f"postgresql://perdure@/{{name}}?host={directory}"
        finally:
            running.send_signal(signal.SIGQUIT)
            running.wait(30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def new_database(url: str, name: str) -> str:
    """Create an empty database; returns its URL."""
    with psycopg.connect(url.format(name="postgres"), autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return url.format(name=name)


def _identity() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise LookupError("root may not run PostgreSQL, and there is neither a user postgres nor nobody")


def _await(directory: Path, running: subprocess.Popen[bytes]) -> None:
    """Wait until the server takes connections. Raises `RuntimeError` with its log where it gave up."""
    while True:
        try:
            psycopg.connect(f"postgresql://perdure@/postgres?host={directory}", connect_timeout=5).close()
        except psycopg.OperationalError:
            try:
                running.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError((directory / "log").read_text()) from None
        return
