"""Starts a program with emulated GPUs, and ends it at its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from perdure.cli.output import print_line
from perdure.emulation.faults import read_fault
from perdure.emulation.known_profiles import profile_of, read_profiles
from perdure.emulation.settings import VARIABLE, EmulationSettings, as_variable
from perdure.errors import InputError, MissingExtra
from perdure.installation import to_install

ENDED_AT_LIMIT = 124
GRACE_S = 5.0


def run_program(command: Sequence[str], settings: EmulationSettings, limit_s: float) -> int:
    """Run it to its end; its exit code, as the shell gives it, or `ENDED_AT_LIMIT`. Raises `InputError`."""
    words = words_of(command)
    if find_spec("torch") is None:
        raise MissingExtra("perdure emulate run", "PyTorch is not installed", to_install("torch"))
    profile_of(settings.gpu, settings.model, 1, read_profiles(Path(settings.profiles)) if settings.profiles else None)
    for each in settings.faults:
        read_fault(each)
    environment = {**os.environ, VARIABLE: as_variable(settings)}
    started = subprocess.Popen([sys.executable, "-P", "-m", *words], env=environment, start_new_session=True)
    try:
        code = started.wait(limit_s)
    except subprocess.TimeoutExpired:
        _end(started, signal.SIGTERM)
        print_line(f"perdure emulate: the program was ended after {limit_s:g} s; --limit-s says how long it may run.")
        return ENDED_AT_LIMIT
    except KeyboardInterrupt:
        _end(started, signal.SIGINT)
        raise
    return 128 - code if code < 0 else code


def words_of(command: Sequence[str]) -> list[str]:
    """What Python runs for a command: a module of this package, and the words after it.

    Raises `InputError` for a program that is not there, or is none of Python.
    """
    words = list(command[1:] if Path(command[0]).name.startswith("python") else command)
    if not words:
        raise InputError("perdure emulate run", "no program is named", "Name a script, such as train.py")
    if Path(words[0]).name == "torchrun":
        return ["perdure.emulation.launched", *words[1:]]
    if words[0] == "-m":
        return ["perdure.emulation.program", *words]
    if not Path(words[0]).is_file():
        raise InputError(words[0], "there is no such script", "Name a Python script, torchrun, or -m and a module")
    return ["perdure.emulation.program", *words]


def _end(started: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signum)
    with suppress(subprocess.TimeoutExpired):
        started.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
