"""What a training step takes on a GPU, and what memory it needs, by model and batch.

A table holds measured rows; between two batches times and memory lie on a straight line, and beyond the last on the one
through the last two, marked as extrapolated. Where no table tells, `estimated` makes a profile from the layers of a
well-known model and the GPU's data sheet (`throughput/compute`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.throughput.compute import BYTES_OF_NUMBER, GPUS, passes_on
from perdure.throughput.layers import KNOWN_MODELS, layers_of
from perdure.throughput.speed import Floats

MIB = 1 << 20

MEMORY_MIB: Mapping[str, int] = MappingProxyType(
    {
        "k80": 11441, "m40": 11448, "p100": 16280, "t4": 15360, "v100": 32510, "rtx6000": 24220, "rtx2080ti": 11019,
        "a10": 23028, "a100": 40536, "a100-80g": 81920, "l4": 23034, "l40s": 46068, "h100": 81559, "h200": 143771,
    }
)  # fmt: skip
"""What nvidia-smi tells of each GPU's memory, in MiB; of a K80 one of its two."""

CONTEXT_MIB = 500.0
"""What a process takes of a GPU before its first tensor, where a profile counts tensors alone."""

IMAGE_BYTES = 3 * 224 * 224 * BYTES_OF_NUMBER
"""An example of the tables' models of images: what `transfer_s` was measured with."""

COLUMNS = ("forward_s", "backward_s", "optimiser_s", "transfer_s", "peak_mib", "persistent_mib")


class ProfileOrigin(StrEnum):
    """Where a profile's numbers come from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class GpuStep:
    """One training step of `batch` examples on one GPU: seconds of its parts, MiB of its memory."""

    gpu: str
    model: str
    batch: int
    forward_s: float
    backward_s: float
    optimiser_s: float
    transfer_s: float  # the batch from the host, pinned
    peak_mib: float  # highest within a step, with what the driver takes
    persistent_mib: float  # between steps
    capacity_mib: float
    origin: ProfileOrigin

    @property
    def step_s(self) -> float:
        """Forward and backward pass and the optimiser, on data that lie on the GPU."""
        return self.forward_s + self.backward_s + self.optimiser_s

    @property
    def fits(self) -> bool:
        """Whether the GPU has as much memory as a step needs."""
        return self.peak_mib <= self.capacity_mib


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Profiles as columns of one length (n_rows,), sorted by GPU, model and batch."""

    source: str
    gpu: NDArray[np.str_]
    model: NDArray[np.str_]
    batch: NDArray[np.int64]
    values: Floats  # (n_rows, 6): `COLUMNS`
    holes: int = 0  # rows left out, since a number is missing in them

    @classmethod
    def of(
        cls, source: str, gpu: Sequence[str], model: Sequence[str], batch: Sequence[int], values: Floats
    ) -> ProfileTable:
        """Sort rows, and leave out those that have a hole.

        Raises `InputError` where no row is left, or two have the same GPU, model and batch.
        """
        values = np.column_stack([values[:, :5], np.maximum(values[:, 5], 0.0)])  # straight lines may end below 0
        whole = np.isfinite(values).all(axis=1) & (values[:, :2] > 0).all(axis=1) & (values >= 0).all(axis=1)
        names, models, batches = np.asarray(gpu, str), np.asarray(model, str), np.asarray(batch, np.int64)
        whole &= batches > 0
        if not whole.any():
            raise InputError(source, "no row has all of its numbers", "Give a table of profiles without holes")
        names, models, batches, kept = names[whole], models[whole], batches[whole], values[whole]
        order = np.lexsort((batches, models, names))
        names, models, batches = names[order], models[order], batches[order]
        same = (names[1:] == names[:-1]) & (models[1:] == models[:-1]) & (batches[1:] == batches[:-1])
        if same.any():
            i = int(np.flatnonzero(same)[0])
            what = f"{names[i]}, {models[i]}, batch {batches[i]} is there twice"
            raise InputError(source, what, "Keep one row for each GPU, model and batch")
        return cls(source, names, models, batches, kept[order], int((~whole).sum()))

    @property
    def gpus(self) -> list[str]:
        return sorted(set(self.gpu.tolist()))

    def models(self, gpu: str) -> list[str]:
        return sorted(set(self.model[self.gpu == gpu].tolist()))

    def profile(self, gpu: str, model: str, batch: int) -> GpuStep:
        """A step of `batch` examples; `gpu` may be short for one name of the table, as a100 for A100-SXM4-40GB.

        Raises `InputError` for a GPU or a model that the table does not have, with those that are most like it.
        """
        name = found_gpu(gpu, self.gpus)
        if model not in self.models(name):
            raise unknown("--model", model, self.models(name))
        rows = np.flatnonzero((self.gpu == name) & (self.model == model))
        values, origin = at_batch(self.batch[rows], self.values[rows], batch)
        forward, backward, optimiser, transfer, peak, persistent = (float(each) for each in values)
        return GpuStep(
            name, model, batch, forward, backward, optimiser, transfer, peak, persistent, capacity_mib(name), origin
        )


def at_batch(batches: NDArray[np.int64], values: Floats, batch: int) -> tuple[Floats, ProfileOrigin]:
    """Values (n_columns,) at a batch, from those at `batches` (n,), sorted; never less than at the nearest below 0."""
    at = int(np.searchsorted(batches, batch))
    if at < len(batches) and batches[at] == batch:
        return values[at], ProfileOrigin.MEASURED
    if len(batches) == 1:
        return values[0] * batch / batches[0], ProfileOrigin.EXTRAPOLATED
    right = min(max(at, 1), len(batches) - 1)
    share = (batch - batches[right - 1]) / (batches[right] - batches[right - 1])
    line = values[right - 1] + share * (values[right] - values[right - 1])
    inside = 0 < at < len(batches)
    least = np.zeros_like(line) if inside else values[0 if at == 0 else -1] * min(1.0, batch / batches[0])
    return np.maximum(line, least), ProfileOrigin.INTERPOLATED if inside else ProfileOrigin.EXTRAPOLATED


def capacity_mib(gpu: str) -> float:
    """The memory of a GPU by its own or a longer name. Raises `InputError` where no known GPU is in it."""
    try:
        return float(MEMORY_MIB[known_name(gpu)])
    except InputError as err:
        what = f"the memory of {gpu[:80]!r} is not known"
        raise InputError("--gpu", what, f"Name a GPU that has one of these in it: {', '.join(MEMORY_MIB)}") from err


def known_name(gpu: str) -> str:
    """The short name of a GPU: of NVIDIA_A100-SXM4-40GB it is a100. Raises `InputError` where none is in it."""
    inside = [name for name in MEMORY_MIB if _letters(name) in _runs(gpu)]
    if "a100" in inside and "80gb" in _runs(gpu):
        return "a100-80g"
    if not inside:
        raise unknown("--gpu", gpu, MEMORY_MIB)
    return max(inside, key=len)


def found_gpu(gpu: str, names: Sequence[str]) -> str:
    """The name of a table that a user means; the first of several such by name.

    >>> found_gpu("a100", ["NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"])
    'NVIDIA_A100-SXM4-40GB'
    """
    if gpu in names:
        return gpu
    wanted = _letters(gpu)
    like = [name for name in names if wanted in _runs(name)]
    if not like:
        raise unknown("--gpu", gpu, names if len(names) < 20 else MEMORY_MIB)
    return min(like, key=lambda name: (len(name), name))


FEW = 8
"""So many names are all told."""


def unknown(option: str, given: str, names: Iterable[str]) -> InputError:
    """A name that is not known, and the known ones that are most like it."""
    known = sorted(set(names))
    like = known if len(known) < FEW else get_close_matches(given, known, 3, 0.5) or known[:12]
    more = ", ..." if like == known[:12] and len(known) > 12 else ""
    return InputError(option, f"{given[:80]!r} is not known", f"Use one of: {', '.join(like)}{more}")


def estimated(gpu: str, model: str, batch: int) -> GpuStep:
    """A profile that nobody measured: layers against the data sheet for time, weights and activations for memory.

    Memory: weights with their optimiser's state (2.7 times the weights with momentum, 3.15 with Adam), gradients, and a
    share of what layers write, fitted to steps measured on one H100 (``benchmarks/gpu_profiles``).
    """
    if gpu not in GPUS:
        raise unknown("--gpu", gpu, GPUS)
    if model not in KNOWN_MODELS:
        raise unknown("--model", model, KNOWN_MODELS)
    layers = layers_of(model)
    passes = passes_on(layers, GPUS[gpu], batch)
    weights = layers.total_parameters * BYTES_OF_NUMBER / MIB
    held, written = next(each for start, each in _MEMORY if model.startswith(start))
    persistent = CONTEXT_MIB + held * weights
    peak = persistent + weights + written * float(layers.activations.sum()) * BYTES_OF_NUMBER * batch / MIB
    moved_s = 4 * held * weights * MIB / (GPUS[gpu].bandwidth * 0.7)  # read and written, at 70 % of the memory's speed
    return GpuStep(
        gpu, model, batch, float(passes.forward.sum()), float(passes.backward.sum()), moved_s,
        2e-5 + batch * IMAGE_BYTES / 10e9, peak, persistent, capacity_mib(gpu), ProfileOrigin.ESTIMATED,
    )  # fmt: skip


_MEMORY = (
    ("bert", (3.2, 0.95)),
    ("gpt", (3.1, 0.40)),
    ("", (2.7, 0.75)),
)  # times the weights; share of what is written


def _letters(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


def _runs(name: str) -> set[str]:
    """Every run of words of a name, written as one: of Quadro_RTX_6000 among others rtx6000."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
