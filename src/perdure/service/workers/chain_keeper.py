"""Keeps the chains of the user that the service runs as, with that user's rights, while Perdure may act.

Each turn is one ``perdure keep --once`` in a process of its own. A chain that somebody keeps already is left alone:
whoever drives one holds its lock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from perdure.errors import ClusterBusy
from perdure.service.workers.kill_switch import STOP_FILE

EVERY_S = 60.0
LIMIT_S = 900.0  # that one turn may take: several forecasts
_COMMAND = (sys.executable, "-P", "-m", "perdure", "keep", "--once")


class ChainKeeper:
    """Nothing is submitted in shadow mode, or while the kill switch is on."""

    def __init__(self, state: Path, *, armed: bool, run: Callable[[], None] | None = None) -> None:
        self._stop_file, self._armed, self._run = state / STOP_FILE, armed, run or keep_once

    def turn(self) -> None:
        """Do what is to be done for all chains now. Raises `ClusterBusy`."""
        if self._armed and not self._stop_file.exists():
            self._run()


def keep_once() -> None:
    """Raises `ClusterBusy` where the command fails, or takes too long."""
    fix = "Run `perdure keep --once` as the service's user; it is tried again in a minute"
    try:
        subprocess.run(
            _COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as err:
        raise ClusterBusy("chains", f"a round took longer than {LIMIT_S:.0f} seconds", fix) from err
    except subprocess.CalledProcessError as err:
        lines = err.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ClusterBusy("chains", lines[-1][:300] if lines else f"exit code {err.returncode}", fix) from err
