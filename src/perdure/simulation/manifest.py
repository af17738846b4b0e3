"""What a comparison was made of, so that the same figures come again: options, versions, hashes of the inputs."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perdure import __version__
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.validation import read
from perdure.simulation.difference import DRAWS, LEVEL

_FIX = "Name a figures.json that perdure whatif --out wrote"
_UNREADABLE = "Name a file that you may read"
_MISSING = "Put it back, or go to the folder in which the comparison was made: its paths count from there"
_CHUNK_BYTES = 1 << 20

Options = Mapping[str, Any]  # names of options, with lists, texts, numbers and flags, as the command line takes them


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that was read."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that the figures depend on. With the same inputs and version the same figures come again, byte for byte."""

    version: str
    python: str
    numpy: str
    command: str  # that asks for the same comparison
    options: Options
    inputs: tuple[InputFile, ...]
    cluster: Mapping[str, Any]  # GPUs, and how many nodes have this many of them
    seeds: tuple[int, ...]
    draws: Mapping[str, Any]  # of days, for the intervals

    @classmethod
    def of(cls, options: Options, inputs: Sequence[Path], cluster: Cluster) -> Manifest:
        """Of what was asked for. Raises `InputError` for a file that cannot be read."""
        known = {name: value for name, value in options.items() if value is not None}
        nodes, counts = np.unique(cluster.gpus, return_counts=True)
        return cls(
            __version__,
            platform.python_version(),
            np.__version__,
            _command(known),
            known,
            tuple(map(_hashed, inputs)),
            {"gpus": cluster.total_gpus, "nodes": dict(zip(map(str, nodes.tolist()), counts.tolist(), strict=True))},
            tuple(range(known.get("seeds", 1))),
            {"seed": 0, "number": DRAWS, "level": LEVEL},
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_manifest(path: Path) -> Options:
    """The options of the comparison that a file of figures is of.

    Raises `InputError` for a file that has none, and where an input or Perdure itself is another one.
    """
    try:
        manifest = json.loads(path.read_text("utf-8"))["manifest"]
        options, inputs, version = manifest["options"], manifest["inputs"], str(manifest["version"])
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", _FIX) from err
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise InputError(str(path), "it holds no manifest of a comparison", _FIX) from err
    if version != __version__:
        raise InputError(
            str(path), f"its figures are of Perdure {version}, and this is {__version__}", "Install that one"
        )
    for each in read(list[InputFile], inputs, f"{path}: manifest.inputs"):
        if _hashed(Path(each.path), _MISSING).sha256 != each.sha256:
            raise InputError(each.path, f"it has changed since {path} was written", "Put the former file back")
    return read(dict[str, Any], options, f"{path}: manifest.options")  # type: ignore[no-any-return]


def _hashed(path: Path, fix: str = _UNREADABLE) -> InputFile:
    seen, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK_BYTES):
                seen.update(part)
                size += len(part)
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", fix) from err
    return InputFile(str(path), size, seen.hexdigest())


def _command(options: Options) -> str:
    """As a shell takes it; arguments first."""
    words = ["perdure", "whatif", *options.get("traces", ())]
    for name, value in options.items():
        if name == "traces" or value is False:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)
