"""``perdure speed --model-file``: the layers of a model of one's own, read in another process.

``train.py:Model`` is a class of a PyTorch program, ``net.onnx`` an ONNX file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from perdure.errors import InputError
from perdure.installation import need

if TYPE_CHECKING:
    from perdure.throughput.layers import Layers

LIMIT_S = 120.0
_MOST_BYTES = 8 << 20
_MOST_LAYERS = 100_000
_GIVEN = re.compile(r"(.+):([A-Za-z_][A-Za-z_0-9]*)", re.DOTALL)
_SHAPE = re.compile(r"(?:int:)?[1-9][0-9]{0,6}(?:,[1-9][0-9]{0,6}){0,5}")


Numbers = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class _WrittenLayers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the other process wrote."""

    layers: Annotated[list[tuple[Numbers, Numbers, Numbers]], msgspec.Meta(max_length=_MOST_LAYERS)] = []
    batch: Annotated[int, msgspec.Meta(ge=0)] | None = None
    error: str = ""
    fix: str = ""


def layers_in(given: str, shape: str = "", limit_s: float = LIMIT_S) -> Layers:
    """The layers of the model that ``FILE:CLASS`` makes when called without arguments, or of ``FILE.onnx``.

    Raises `InputError` where there are none, within the time or at all, or what reads them is not installed.
    """
    if shape and not _SHAPE.fullmatch(shape):
        raise InputError(
            "--input", f"{shape[:80]!r} is no shape", "Give one example's: 3,224,224, or int:128 for words"
        )
    if given.lower().endswith(".onnx"):
        need("onnx", "perdure speed --model-file")
        _check_file(given, "Name the ONNX file: net.onnx")
        command = ["-P", "-m", "perdure.cli.onnx_layers", given, shape]  # whatever lies in this directory
        return _layers_by(command, given, limit_s, "Export it again")
    found = _GIVEN.fullmatch(given)
    if found is None:
        what = f"{given[:80]!r} is neither FILE:CLASS nor FILE.onnx"
        raise InputError("--model-file", what, "Name the class too: train.py:Model")
    path, name = found[1], found[2]
    _check_file(path, "Name the program that has the model: train.py:Model")
    need("torch", "perdure speed --model-file")
    command = ["-m", "perdure.cli.model_layers", path, name, shape]
    return _layers_by(command, given, limit_s, "Make it importable: training under if __name__ == '__main__'")


def _check_file(path: str, fix: str) -> None:
    if not os.path.isfile(path):
        raise InputError(path, "is no file", fix)


def _layers_by(command: Sequence[str], given: str, limit_s: float, fix: str) -> Layers:
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        out = Path(folder) / "layers.json"
        answer = _run([*command, str(out)], given, limit_s, fix)
        if not out.is_file() or out.stat().st_size > _MOST_BYTES:
            raise InputError(given, f"reading it ended with {answer}", fix)
        return _read(out.read_bytes(), given)


def _run(arguments: Sequence[str], given: str, limit_s: float, fix: str) -> str:
    command = [sys.executable, *arguments]
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = running.wait(limit_s)
    except subprocess.TimeoutExpired as err:
        raise InputError(given, f"it still runs after {limit_s:g} s", fix) from err
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
        raise InputError(
            given, f"its layers cannot be read ({err})", f"Name a model of {_MOST_LAYERS:,} layers at most"
        ) from err
    if answer.error:
        usual = "The class is called without arguments, and with one example: see --input"
        raise InputError(given, answer.error, answer.fix or usual)
    if not any(row[0] for row in answer.layers):
        raise InputError(given, "the model has no parameters that are trained", "Name the whole model")
    parameters, flops, written = np.array(answer.layers, float).T
    return Layers(given, parameters, flops, written, answer.batch)
