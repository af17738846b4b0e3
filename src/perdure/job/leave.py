"""Ending a program with a word on what to do with its job, also through torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json
from perdure.job.identity import FENCE_JOB, job_of

LEAVE_FILE = "PERDURE_LEAVE_FILE"
SCHEMA = "perdure.leave/1"
RECENT_S = 60.0  # an older note does not count: the program ran on


def leave(exit_code: int, why: str) -> NoReturn:
    """End this process with 75 (run me again), 78 (never) or 93 (stop here), and say why.

    torchrun ends with 1 whatever its workers end with, and loses their messages where it was itself asked to end. So
    code and reason are also written to a file for ``perdure exec``. Raises `SystemExit`.
    """
    path = os.environ.get(LEAVE_FILE)
    if path and os.environ.get(FENCE_JOB) == job_of(os.environ):
        with suppress(OSError):
            write_json(Path(path), {"schema": SCHEMA, "exit_code": exit_code, "time_s": time.time(), "why": why[:500]})
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": why, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": {"message": why, "extraInfo": extra}}))
    sys.stderr.write(f"{why}\n")
    sys.exit(exit_code)


def code_left(path: Path, ended_s: float) -> int:
    """The exit code that a process of the program noted in the `RECENT_S` before the program ended; 0 without one."""
    with suppress(OSError, InputError):
        fields = Fields(str(path), read_json(path, SCHEMA))
        return fields.whole("exit_code") if ended_s - fields.number("time_s") < RECENT_S else 0
    return 0
