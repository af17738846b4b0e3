"""The process that simulates, seen from the service: started, listened to, bounded, and ended."""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ValidationError

from perdure.service.whatif.comparison import ORDER, ComparisonRequest, Progress, Trouble

log = logging.getLogger("perdure")

CANCEL_POLL_S = 0.2  # a cancellation takes effect within this time
LEAVING_S = 10.0  # that a process may take to end once it has said its last
MAX_LINE = 1 << 16
SAID = "stderr"  # its file in the folder
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class ProcessMessage(BaseModel):
    """A line of what the process says: how far it has come, or why it gives up."""

    progress: Progress | None = None
    trouble: Trouble | None = None


class Halted(Exception):
    """The process was ended because somebody asked for it."""


def carry_out(
    order: ComparisonRequest, folder: Path, tell: Callable[[Progress], None], halt: Callable[[], bool]
) -> Trouble | None:
    """Have a simulation done, its answers in `folder`; None where they are there, else why not.

    `halt` is asked every now and then whether to end it. Raises `Halted` then, and `OSError` where no process can be
    started.
    """
    with (folder / SAID).open("wb") as said, _started(folder, said) as process:
        try:
            trouble = _listen(process, order, tell, halt)
        finally:
            process.kill()
    if trouble is None and process.returncode == 0:
        return None
    return trouble or _dead(process.returncode, folder)


def _started(folder: Path, said: IO[bytes]) -> subprocess.Popen[bytes]:
    # -P: what lies in the folder is never imported.
    command = [sys.executable, "-P", "-m", "perdure.service.whatif.worker"]
    env = {**os.environ, **_THREADS, "MPLBACKEND": "agg", "TMPDIR": str(folder)}
    return subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
    )


def _listen(
    process: subprocess.Popen[bytes],
    order: ComparisonRequest,
    tell: Callable[[Progress], None],
    halt: Callable[[], bool],
) -> Trouble | None:
    assert process.stdin is not None
    until = time.monotonic() + order.time_limit_s
    try:
        process.stdin.write(ORDER.encode(order).encode() + b"\n")
        process.stdin.flush()  # left open: its end is how the process learns that the service is gone
    except BrokenPipeError:
        return None  # it is dead already: its exit code tells
    trouble = None
    for line in _lines(process, halt):
        if time.monotonic() > until:
            what = f"not done within {order.time_limit_s:.0f} s"
            return Trouble(where="time", what=what, fix="Compare fewer policies, or let whatif.time_limit_s be raised")
        message = _understood(line)
        trouble = message.trouble or trouble
        if message.progress is not None:
            tell(message.progress)
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVING_S)
    return trouble


def _understood(line: bytes) -> ProcessMessage:
    """What a line says; nothing where some library has printed it."""
    try:
        return ProcessMessage.model_validate_json(line) if line else ProcessMessage()
    except ValidationError:
        return ProcessMessage()


def _lines(process: subprocess.Popen[bytes], halt: Callable[[], bool]) -> Iterator[bytes]:
    """What the process says, line by line, and an empty line whenever it has been silent for a while."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(rest) < MAX_LINE:
            if halt():
                raise Halted
            if not ready.select(CANCEL_POLL_S):
                yield b""
                continue
            piece = os.read(process.stdout.fileno(), MAX_LINE)
            if not piece:
                return
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole


def _dead(code: int, folder: Path) -> Trouble:
    """What to say of a process that ended without a word of its own."""
    said = (folder / SAID).read_bytes()[-2000:].decode("utf-8", "replace")
    log.error("what-if: the process ended with %s: %s", code, said)
    fix = "Perhaps memory ran out: ask for less, let whatif.memory_mib be raised, or see the service's own log"
    return Trouble(where="simulation", what=f"its process ended unexpectedly ({code})", fix=fix)
