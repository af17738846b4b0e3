"""What stands in for serving a cluster, in processes of a controller that are tried by themselves."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path

FOREVER_S = 600.0


def deaf(file: Path, state: Path, common: Mapping[str, object]) -> None:
    """Never ends by itself, whoever asks for it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (state / file.stem).touch()
    time.sleep(FOREVER_S)


def brief(file: Path, state: Path, common: Mapping[str, object]) -> None:
    """Ends at once, and leaves the instant at which it ran."""
    with (state / file.stem).open("a") as told:
        told.write(f"{time.monotonic()}\n")
