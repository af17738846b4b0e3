"""Starting and stopping the embedded cluster's daemon."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from pathlib import Path

from msgspec import structs

from perdure.backends.local import paths
from perdure.backends.local.client import LocalBackend
from perdure.backends.local.records import Timing
from perdure.errors import ClusterBusy, StateError

_POLL_S = 0.02


def start_daemon(
    state_dir: Path | str,
    *,
    cluster: str = "local",
    nodes: int = 4,
    gpus: int = 8,
    slots: int = 16,
    nice: int = 10,
    timing: Timing | None = None,
    timeout_s: float = 20.0,
) -> int:
    """Start the daemon of a state directory unless it runs; returns its process number once it answers.

    It belongs to no terminal and outlives its starter; end it with `stop_daemon`. One that runs already is left
    as it is, whatever shape is asked for. Raises `StateError` where it does not come up.
    """
    state = Path(state_dir).resolve()
    backend = LocalBackend(state, cluster, timeout_s=timeout_s)
    try:
        return backend.ping()
    except ClusterBusy:
        pass
    try:
        state.mkdir(parents=True, exist_ok=True)
        log = paths.daemon_log(state).open("ab", buffering=0)
    except OSError as err:
        raise StateError(str(state), f"cannot be written: {err.strerror}", "Name another --state") from err
    options = {"state": state, "cluster": cluster, "nodes": nodes, "gpus": gpus, "slots": slots, "nice": nice}
    options |= structs.asdict(timing or Timing())
    command = [sys.executable, "-P", "-m", "perdure.backends.local"]  # -P: no modules from the state directory
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    with log:
        log_start = log.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=state
        )
    try:
        _await_answer(backend, process, state, log_start, timeout_s)
    except BaseException:  # Ctrl-C, too: nobody would know of a daemon that has not answered yet
        process.terminate()
        raise
    return process.pid


def stop_daemon(state_dir: Path | str, *, timeout_s: float = 20.0) -> bool:
    """End the daemon and every process of its jobs; returns whether one ran. Its memory stays.

    Raises `StateError` where it does not end in time.
    """
    state = Path(state_dir).resolve()
    try:
        LocalBackend(state, timeout_s=timeout_s).stop()
    except ClusterBusy:
        return False
    deadline = time.monotonic() + timeout_s
    while not _is_free(state):
        if time.monotonic() > deadline:
            raise StateError(str(state), "its cluster daemon does not end", f"See {paths.daemon_log(state)}")
        time.sleep(_POLL_S)
    return True


def _await_answer(
    backend: LocalBackend, process: subprocess.Popen[bytes], state: Path, log_start: int, timeout_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            backend.ping()
            return
        except ClusterBusy as err:
            if process.poll() is not None:
                said = paths.daemon_log(state).read_bytes()[log_start:].decode(errors="replace").strip()
                what = said.splitlines()[-1] if said else f"it ended with code {process.returncode}"
                raise StateError(str(state), f"the cluster daemon does not start: {what}", "Fix that first") from err
            if time.monotonic() > deadline:
                process.kill()
                raise StateError(str(state), "the cluster daemon does not answer", "Try again") from err
        time.sleep(_POLL_S)


def _is_free(state: Path) -> bool:
    """Whether nobody holds the state directory."""
    with paths.lock(state).open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
