"""A trained planner as the bytes of a file: arrays of numbers, and for which links and from what it was trained.

Nothing in it is run or unpickled, and it decides without the library that trained it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perdure.errors import ConfigError, InputError
from perdure.succession.planners.features import WIDTH
from perdure.succession.planners.registry import planner_named
from perdure.succession.protocol import Planner, Trainable
from perdure.triage.classifiers.model_file import MAX_PART_BYTES, array_bytes, array_of, pack, unpack

KIND, VERSION = "planner of successors", 1
FIX = "Train one again: perdure study successors --save DIR"
_ABOUT, _NUMBERS = "about.json", "numbers.npy"


class TrainedFor(Struct, frozen=True):
    """For which links a planner was trained, and from what."""

    gpus: int  # of a link
    limit_s: float  # walltime of a link
    step_s: float  # between its looks at the queue
    source: str  # a trace, or a cluster's own past
    cases: int


class _About(Struct, frozen=True):
    planner: str
    training: TrainedFor
    width: int  # of what it sees of the queue
    shapes: dict[str, tuple[int, ...]]  # of its arrays, which lie one behind the other


@dataclass(frozen=True, slots=True)
class TrainedPlanner:
    """A planner that decides, and what it was trained for."""

    planner: Planner
    training: TrainedFor


def packed(planner: Planner, training: TrainedFor) -> bytes:
    """The bytes of a file. Raises `InputError` for a planner that has learned nothing."""
    arrays = planner.arrays() if isinstance(planner, Trainable) else {}
    if not arrays:
        raise InputError(f"planner {planner.name}", "has learned nothing from this trace", "Give it a longer trace")
    about = _About(planner.name, training, WIDTH, {name: array.shape for name, array in arrays.items()})
    numbers = np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays.values()])
    return pack(KIND, VERSION, {_ABOUT: msgspec.json.encode(about), _NUMBERS: array_bytes(numbers)})


def unpacked(data: bytes, source: str) -> TrainedPlanner:
    """The planner that `packed` was given. Raises `InputError` for any other file, naming `source`."""
    if len(data) > MAX_PART_BYTES:
        raise InputError(source, f"it is larger than {MAX_PART_BYTES} bytes", FIX)
    try:
        parts = unpack(data, source, KIND, VERSION, (_ABOUT, _NUMBERS))
    except InputError as err:
        raise InputError(source, "it is not a trained planner of this version, or is damaged", FIX) from err
    try:
        about = msgspec.json.decode(parts[_ABOUT], type=_About)
        if about.width != WIDTH:
            raise ValueError("another version of Perdure saw other things of the queue")
        planner = planner_named(about.planner)
        if not isinstance(planner, Trainable):
            raise TypeError("its planner learns nothing")
        return TrainedPlanner(planner.with_arrays(_arrays(array_of(parts[_NUMBERS]), about)), about.training)
    except (msgspec.MsgspecError, ConfigError, ValueError, LookupError, TypeError, EOFError) as err:
        raise InputError(source, f"what it holds is not a trained planner ({err})".replace("\n", " "), FIX) from err


def _arrays(numbers: NDArray[np.float64], about: _About) -> dict[str, NDArray[np.float64]]:
    sizes = [math.prod(shape) for shape in about.shapes.values()]
    if numbers.dtype != np.float64 or numbers.shape != (sum(sizes),) or not np.isfinite(numbers).all():
        raise ValueError("its numbers are not those that it tells of")
    cuts = np.cumsum(sizes)[:-1]
    parts = np.split(numbers, cuts)
    return {name: part.reshape(shape) for (name, shape), part in zip(about.shapes.items(), parts, strict=True)}
