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
from perdure.emulation.faults import read_faults
from perdure.emulation.known_profiles import profile_of, read_profiles
from perdure.emulation.settings import VARIABLE, EmulationSettings, as_variable
from perdure.errors import InputError, MissingExtra
from perdure.installation import to_install

ENDED_AT_LIMIT = 124
GRACE_S = 5.0
NAME_ONE = "Name a Python script, torchrun, or python -m and a module"


def run_program(command: Sequence[str], settings: EmulationSettings, limit_s: float) -> int:
    """Run it to its end; its exit code, as the shell gives it, or `ENDED_AT_LIMIT`. Raises `InputError`."""
    words = words_of(command)
    if find_spec("torch") is None:
        raise MissingExtra("perdure emulate run", "PyTorch is not installed", to_install("torch"))
    profile_of(settings.gpu, settings.model, 1, read_profiles(Path(settings.profiles)) if settings.profiles else None)
    if settings.share:
        _check_sharing(settings)
    read_faults(settings.faults, settings.gpus)
    for option, path in (("--report", settings.report), ("--kernel-log", settings.kernel_log)):
        if path and not Path(path).parent.is_dir():
            raise InputError(option, f"there is no folder {Path(path).parent}", "Make it, or name another file")
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


def _check_sharing(settings: EmulationSettings) -> None:
    """Raises `InputError` where what programs shall share is not a node's GPUs in real time."""
    if settings.virtual:
        raise InputError("--share", "programs share a GPU in real time", "Leave --time virtual away")
    if settings.gpus > 1 and not Path(settings.share).is_dir():
        raise InputError("--share", "one socket is one GPU", "Name the folder that `emulate device --gpus N` serves in")
    if settings.gpus > len(settings.numbers) > 1:
        what = f"{settings.gpus} GPUs are more than the {len(settings.numbers)} of this job"
        raise InputError("--gpus", what, "Leave it away")


def words_of(command: Sequence[str]) -> list[str]:
    """What Python runs for a command: a module of this package, and the words after it.

    Raises `InputError` for a program that is not there, or is not Python.
    """
    words = list(command[1:] if Path(command[0]).name.startswith("python") else command)
    if not words:
        raise InputError("perdure emulate run", "no program is named", "Name a script, such as train.py")
    if Path(words[0]).name == "torchrun":
        return ["perdure.emulation.launched", *words[1:]]
    if words[0] == "-m":
        return ["perdure.emulation.program", *words]
    if not os.path.isfile(words[0]):
        raise InputError(words[0], "there is no such script", NAME_ONE)
    with Path(words[0]).open("rb") as file:
        if b"\0" in file.read(4096):
            raise InputError(words[0], "it is no Python script", NAME_ONE)
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
