"""Ending a program with a word on what is to become of its job, also through torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn


def leave(exit_code: int, why: str) -> NoReturn:
    """End this process with 75 (run me again), 78 (never) or 93 (stop here), and say why.

    torchrun ends with 1 whatever its workers end with. It does pass a worker's code on in its error file, where the
    worker has written one of its own; ``sys.exit`` alone writes none, this does. Ends by `SystemExit`.
    """
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": why, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": {"message": why, "extraInfo": extra}}))
    sys.stderr.write(f"{why}\n")
    sys.exit(exit_code)
