"""Where things lie in the state directory, and the address of the daemon's socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MAX_SOCKET_PATH = 100  # bytes; systems allow 104 to 108


def database(state_dir: Path) -> Path:
    return state_dir / "cluster.sqlite"


def lock(state_dir: Path) -> Path:
    return state_dir / "cluster.lock"


def logs(state_dir: Path) -> Path:
    return state_dir / "logs"


def fence(state_dir: Path, job_id: str) -> Path:
    return state_dir / "fence" / job_id


def daemon_log(state_dir: Path) -> Path:
    return state_dir / "cluster.log"


def _address_file(state_dir: Path) -> Path:
    return state_dir / "cluster.address"


def new_socket_path(state_dir: Path) -> Path:
    """A path that a socket can be bound to, written down where `socket_path` finds it.

    Usually ``cluster.sock`` in the state directory; where that is too long for the system, in a fresh private
    directory for temporary files.
    """
    path = state_dir / "cluster.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        path = Path(tempfile.mkdtemp(prefix="perdure-")) / "cluster.sock"
    path.unlink(missing_ok=True)
    draft = _address_file(state_dir).with_suffix(".new")
    draft.write_text(f"{path}\n")
    draft.replace(_address_file(state_dir))
    return path


def forget_socket(state_dir: Path, path: Path) -> None:
    """Remove the socket and what `new_socket_path` made for it."""
    path.unlink(missing_ok=True)
    _address_file(state_dir).unlink(missing_ok=True)
    if path.parent != state_dir:
        path.parent.rmdir()


def socket_path(state_dir: Path) -> Path | None:
    """Where the daemon listens, or listened last; None where there never was one."""
    try:
        return Path(_address_file(state_dir).read_text().rstrip("\n"))
    except (FileNotFoundError, NotADirectoryError):
        return None
