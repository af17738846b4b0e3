"""Steps of one program by layout, fitted to a few measured ones: nodes, GPUs of a node and batch each have their say.

With `each` GPUs on the fullest of `nodes` nodes and `gpus` in all, a step of `batch` examples a GPU takes

    passes = (fixed + example * batch) * correction(batch) * (1 + crowding * (each - 1))
    sync   = inside * (1 + inside_each * (each - 2)), where a node has several GPUs, and where there are several nodes
             + across * (1 + across_each * (each - 1) + across_node * (nodes - 2))
    step   = (passes ** overlap + sync ** overlap) ** (1 / overlap)

It is the model of A. Qiao et al., "Pollux", OSDI 2021, section 3.2, with four changes that measured steps ask for:
GPUs of one node share its link and its CPUs (`each`), gradients are added up within nodes and then between them (two
terms), passes are no straight line in the batch (`correction`), and other programs of a site may tell what this one
has not shown (`Prior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.speed import Floats, Numbers

SHARED = ("crowding", "inside_each", "across_over_inside", "across_each", "across_node", "overlap")
"""What programs of one site have in common, in the order of `Prior`."""

Flags = NDArray[np.bool_]

_OWN = 3  # fixed, example, inside: each program's own


@dataclass(frozen=True, slots=True)
class SeenSteps:
    """Measured steps of one program on one GPU type, as columns of one length (n_steps,).

    `waiting_s` is how much of a step its GPUs wait for gradients after their backward pass, as a profiler tells; NaN
    where it was not measured.
    """

    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    local_batch: Floats
    step_s: Floats
    waiting_s: Floats | None = None

    def where(self, which: NDArray[np.bool_]) -> SeenSteps:
        """Some of them."""
        waiting = None if self.waiting_s is None else self.waiting_s[which]
        return SeenSteps(self.nodes[which], self.gpus[which], self.local_batch[which], self.step_s[which], waiting)


@dataclass(frozen=True, slots=True)
class LayoutSpeed:
    """Parameters as logarithms, in this order: three of the program's own, those of `SHARED`, and `correction`.

    `overlap` is 1 + 9 / (1 + exp(-x)), between 1 (one after the other) and 10 (the longer of both).
    """

    theta: Floats  # (9 + n_batches,)
    batches: Floats  # logarithms of the batches that were seen (n_batches,), rising

    def passes_s(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> Floats:
        """Seconds of forward and backward pass."""
        fixed, example = np.exp(self.theta[:2])
        crowding = np.exp(self.theta[_OWN])
        corrected = np.exp(np.interp(np.log(batch), self.batches, self.theta[_OWN + len(SHARED) :]))
        more = fullest(nodes, gpus) - 1
        return np.asarray((fixed + np.multiply(example, batch)) * corrected * (1 + crowding * more), float)

    def sync_s(self, nodes: Numbers, gpus: Numbers) -> Floats:
        """Seconds of adding up gradients, if nothing hid them."""
        inside = np.exp(self.theta[2])
        inside_each, over, each, node = np.exp(self.theta[_OWN + 1 : _OWN + 5])
        more = fullest(nodes, gpus) - 1
        within = np.where(more > 0, 1 + inside_each * (more - 1), 0.0)
        between = np.where(np.greater(nodes, 1), over * (1 + each * more + node * np.subtract(nodes, 2)), 0.0)
        return np.asarray(inside * (within + between), float)

    def step_s(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> Floats:
        """Seconds of a step."""
        passes, sync = self.passes_s(nodes, gpus, batch), self.sync_s(nodes, gpus)
        overlap = 1 + 9 / (1 + np.exp(-self.theta[_OWN + len(SHARED) - 1]))
        longer = np.maximum(passes, sync)
        both = (passes / longer) ** overlap + (sync / longer) ** overlap
        return np.asarray(longer * both ** (1 / overlap), float)

    def waiting_s(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> Floats:
        """Seconds of a step in which GPUs wait for gradients: what the backward pass does not hide."""
        return self.step_s(nodes, gpus, batch) - self.passes_s(nodes, gpus, batch)


def fullest(nodes: Numbers, gpus: Numbers) -> Floats:
    """GPUs of the fullest node, if they are spread evenly.

    >>> fullest(np.array([1, 3]), np.array([4, 8])).tolist()
    [4.0, 3.0]
    """
    return np.asarray(np.ceil(np.divide(gpus, nodes)), float)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of `SHARED` before a program is seen: means and standard deviations of the logarithms (6,)."""

    mean: Floats
    spread: Floats
    inside_s: float | None = None  # of this very program, seconds, if its layers and links say so
    inside_spread: float = 0.5  # of its logarithm


USUAL = Prior(np.array([np.log(0.02), np.log(0.2), 0.0, np.log(0.25), np.log(0.25), -1.0]), np.full(6, 20.0))
"""Hardly anything: what no step bears on stays there."""

_LEAST_SPREAD = 0.3
_NORMAL = 1.4826  # standard deviations in a median absolute deviation


def prior_of(others: list[LayoutSpeed]) -> Prior:
    """What programs of one site have in common: the median of each parameter, and how far they differ."""
    rows = np.array([each.theta[_OWN : _OWN + len(SHARED)] for each in others])
    mean = np.median(rows, axis=0)
    apart = _NORMAL * np.median(np.abs(rows - mean), axis=0)
    return Prior(mean, np.maximum(apart, _LEAST_SPREAD))


@dataclass(frozen=True, slots=True)
class LayoutFit:
    """A fitted model, and how far the steps that it was fitted to are from it (standard deviation, logarithms)."""

    model: LayoutSpeed
    seen: SeenSteps
    spread: float

    def interval(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> tuple[Floats, Floats]:
        """The seconds between which 80 % of true steps lie, by how far such predictions were off for other programs.

        It assumes no shape of errors, and nothing of steps that were never seen but that they are like those of Sia's
        applications.
        """
        middle = self.model.step_s(nodes, gpus, batch)
        kind, within, fewer = self.seen_like(nodes, gpus, batch)
        count = len(self.seen.step_s)
        if count > FEW:
            known = np.where(within & fewer, BETWEEN, BEYOND) * max(self.spread, LEAST_ERROR)
        else:
            known = np.where(within, FEW_BETWEEN, np.interp(count, *FEW_OTHER_BATCH))
        half = np.where(kind, known, np.where(within, UNSEEN, UNSEEN_OTHER_BATCH))
        measured = self._measured(nodes, gpus, batch)
        off = np.abs(
            np.log(self.model.step_s(self.seen.nodes, self.seen.gpus, self.seen.local_batch) / self.seen.step_s)
        )
        apart = np.where(measured, off, 0.0).max(axis=-1)  # runs of one layout may contradict each other
        factor = np.exp(np.where(measured.any(axis=-1), np.maximum(np.minimum(half, MEASURED), apart), half))
        return middle / factor, middle * factor

    def known_by(self, nodes: int, gpus: int, batch: float) -> str:
        """What a prediction rests on, in words."""
        kind, within, fewer = self.seen_like(nodes, gpus, batch)
        if not kind:
            return f"assumption: never seen on several {'nodes' if nodes > 1 else 'GPUs of a node'}"
        if not within:
            return "extrapolation to another batch"
        if self._measured(nodes, gpus, batch).any():
            return "measurement"
        return "steps seen" if fewer else "extrapolation to more GPUs"

    def _measured(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> Flags:
        """Which steps seen are of these very layouts and batches: (..., n_steps)."""
        asked = (np.asarray(value)[..., None] for value in (nodes, gpus, batch))
        seen = (self.seen.nodes, self.seen.gpus, self.seen.local_batch)
        return np.asarray(np.all([a == b for a, b in zip(asked, seen, strict=True)], axis=0))

    def seen_like(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> tuple[Flags, Flags, Flags]:
        """Whether such layouts were seen (one GPU, one node, several), the batch is within, and GPUs are no more."""
        seen = self.seen
        across, inside = bool((seen.nodes > 1).any()), bool(((seen.nodes == 1) & (seen.gpus > 1)).any())
        kind = np.where(np.greater(nodes, 1), across, np.logical_or(np.less_equal(gpus, 1), inside))
        within = np.greater_equal(batch, seen.local_batch.min()) & np.less_equal(batch, seen.local_batch.max())
        return kind, np.asarray(within), np.asarray(np.less_equal(gpus, seen.gpus.max()))


MEASURED = 0.06  # 80 % of runs of one layout, its nodes in another order, are closer than this
LEAST_ERROR = 0.02  # steps of one program differ by so much from run to run
BETWEEN, BEYOND = 1.20, 1.27
"""Below so many times the spread of their own fit lie 80 % of the errors (logarithms) of Sia's applications: a third of
the rows held out, and more GPUs than seen.
"""

FEW = 6
FEW_BETWEEN, FEW_OTHER_BATCH = 0.20, ((1.0, 2.0, 3.0, 4.0, 6.0), (0.60, 0.60, 0.44, 0.40, 0.40))
UNSEEN, UNSEEN_OTHER_BATCH = 0.70, 0.85
"""Up to so many steps seen, and for kinds of layouts that were not: the errors themselves. All from
`python -m benchmarks.training_layouts`.
"""
