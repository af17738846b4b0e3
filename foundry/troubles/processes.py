"""Troubles that come as signals: to the program, or to a process of it that writes its id into PIDFILE."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foundry.troubles.setting import Setting, Trouble, calm

GRACE_S = 0.6
PATIENCE_S = 900.0


@contextmanager
def terminated(_directory: Path, present: bool) -> Iterator[Setting]:
    def disturb(process: subprocess.Popen[bytes]) -> None:
        time.sleep(GRACE_S)
        process.send_signal(signal.SIGTERM)

    yield {}, disturb if present else calm


def _signalled(number: signal.Signals) -> Trouble:
    @contextmanager
    def trouble(directory: Path, present: bool) -> Iterator[Setting]:
        path = directory / "tmp" / "worker.pid"

        def disturb(process: subprocess.Popen[bytes]) -> None:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until and process.poll() is None:
                if path.exists() and (text := path.read_text()).endswith("\n"):
                    with suppress(ProcessLookupError):
                        os.kill(int(text), number)
                    return
                time.sleep(0.01)

        yield {"PIDFILE": str(path)}, disturb if present else calm

    return trouble


TROUBLES: dict[str, Trouble] = {
    "sigterm": terminated,
    "kill-worker": _signalled(signal.SIGKILL),
    "freeze-worker": _signalled(signal.SIGSTOP),
    "terminate-worker": _signalled(signal.SIGTERM),
}
