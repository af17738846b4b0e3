"""``perdure speed --model-file train.py:Model``: a model's layers as its own program says them, in another process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.throughput.layers import Layers

LIMIT_S = 120.0
_MOST_BYTES = 8 << 20
_GIVEN = re.compile(r"(.+):([A-Za-z_][A-Za-z_0-9]*)", re.DOTALL)
_SHAPE = re.compile(r"(?:int:)?[1-9][0-9]{0,6}(?:,[1-9][0-9]{0,6}){0,5}")


Numbers = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class _WrittenLayers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the other process wrote."""

    layers: Annotated[list[tuple[Numbers, Numbers, Numbers]], msgspec.Meta(max_length=100_000)] = []
    error: str = ""


def layers_in(given: str, shape: str = "", limit_s: float = LIMIT_S) -> Layers:
    """The layers of the model that ``FILE:CLASS`` makes when called without arguments.

    Raises `InputError` where it makes none, within the time or at all, or PyTorch is not installed.
    """
    found = _GIVEN.fullmatch(given)
    if found is None:
        raise InputError("--model-file", f"{given[:80]!r} is not FILE:CLASS", "Name the class too: train.py:Model")
    path, name = found[1], found[2]
    if not Path(path).is_file():
        raise InputError(path, "is no file", "Name the program that has the model: train.py:Model")
    if shape and not _SHAPE.fullmatch(shape):
        raise InputError(
            "--input", f"{shape[:80]!r} is no shape", "Give one example's: 3,224,224, or int:128 for words"
        )
    if find_spec("torch") is None:
        what = "PyTorch is not installed here"
        raise InputError("--model-file", what, "Install it into Perdure's environment, or choose a --model")
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        out = Path(folder) / "layers.json"
        answer = _run([path, name, shape, str(out)], given, limit_s)
        if not out.is_file() or out.stat().st_size > _MOST_BYTES:
            raise InputError(given, f"its program ended with {answer}", "Make it importable: training under __main__")
        return _read(out.read_bytes(), given)


def _run(arguments: list[str], given: str, limit_s: float) -> str:
    command = [sys.executable, "-m", "perdure.cli.model_layers", *arguments]
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = running.wait(limit_s)
    except subprocess.TimeoutExpired as err:
        what = f"it still runs after {limit_s:g} s"
        raise InputError(given, what, "Make it importable: training under if __name__ == '__main__'") from err
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # and what it started
        running.wait()
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _read(data: bytes, given: str) -> Layers:
    import numpy as np

    from perdure.throughput.layers import Layers

    try:
        answer = msgspec.json.decode(data, type=_WrittenLayers)
    except msgspec.DecodeError as err:
        raise InputError(given, f"its layers cannot be read ({err})", "Try again") from err
    if answer.error:
        fix = "The class is called without arguments, and with one example: see --input"
        raise InputError(given, answer.error, fix)
    if not any(row[0] for row in answer.layers):
        raise InputError(given, "the model has no parameters that are trained", "Name the class of the whole model")
    parameters, flops, written = np.array(answer.layers, float).T
    return Layers(given, parameters, flops, written)
