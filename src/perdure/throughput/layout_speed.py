"""Steps of one program by layout, fitted to a few measured ones: nodes, GPUs of a node and batch each have their say.

With `each` GPUs on the fullest of `nodes` nodes and `gpus` in all, a step of `batch` examples a GPU takes

    passes = (fixed + example * batch) * correction(batch) * (1 + crowding * (each - 1))
    sync   = 0 on one GPU; inside * (1 + inside_each * (each - 1)) on one node, and on several
             across * (1 + across_each * (each - 1) + across_node * (nodes - 1) + across_gpu * (gpus - 1))
    step   = (passes ** overlap + sync ** overlap) ** (1 / overlap)

It is the model of A. Qiao et al., "Pollux", OSDI 2021, section 3.2, with three changes that measured steps ask for:
GPUs of one node share its link and its CPUs (`each`), passes are no straight line in the batch (`correction`), and
other programs of a site may tell what this one has not shown (`Prior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.speed import Floats, Numbers

SHARED = ("crowding", "inside_each", "across_over_inside", "across_each", "across_node", "across_gpu", "overlap")
"""What programs of one site have in common, in the order of `Prior`."""

_OWN = 3  # fixed, example, inside: each program's own


@dataclass(frozen=True, slots=True)
class SeenSteps:
    """Measured steps of one program on one GPU type, as columns of one length (n_steps,)."""

    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    local_batch: Floats
    step_s: Floats

    def where(self, which: NDArray[np.bool_]) -> SeenSteps:
        """Some of them."""
        return SeenSteps(self.nodes[which], self.gpus[which], self.local_batch[which], self.step_s[which])


@dataclass(frozen=True, slots=True)
class LayoutSpeed:
    """Parameters as logarithms, in this order: three of the program's own, those of `SHARED`, and `correction`.

    `overlap` is 1 + 9 / (1 + exp(-x)), between 1 (one after the other) and 10 (the longer of both).
    """

    theta: Floats  # (10 + n_batches,)
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
        inside_each, over, each, node, gpu = np.exp(self.theta[_OWN + 1 : _OWN + 6])
        more = fullest(nodes, gpus) - 1
        across = over * (1 + each * more + node * np.subtract(nodes, 1) + gpu * np.subtract(gpus, 1))
        shape = np.where(np.equal(nodes, 1), 1 + inside_each * more, across)
        return np.asarray(np.where(np.equal(gpus, 1), 0.0, inside * shape), float)

    def step_s(self, nodes: Numbers, gpus: Numbers, batch: Numbers) -> Floats:
        """Seconds of a step."""
        passes, sync = self.passes_s(nodes, gpus, batch), self.sync_s(nodes, gpus)
        overlap = 1 + 9 / (1 + np.exp(-self.theta[_OWN + len(SHARED) - 1]))
        longer = np.maximum(passes, sync)
        both = (passes / longer) ** overlap + (sync / longer) ** overlap
        return np.asarray(longer * both ** (1 / overlap), float)


def fullest(nodes: Numbers, gpus: Numbers) -> Floats:
    """GPUs of the fullest node, if they are spread evenly.

    >>> fullest(np.array([1, 3]), np.array([4, 8])).tolist()
    [4.0, 3.0]
    """
    return np.asarray(np.ceil(np.divide(gpus, nodes)), float)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of `SHARED` before a program is seen: means and standard deviations of the logarithms (7,)."""

    mean: Floats
    spread: Floats


USUAL = Prior(
    np.array([np.log(0.02), np.log(0.25), 0.0, np.log(0.25), np.log(0.25), np.log(0.08), -1.0]), np.full(7, 20.0)
)
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
        """The seconds between which 80 % of true steps lie.

        By `BETWEEN` and `BEYOND`, which say how many times `spread` errors were for other programs: conformal, with no
        assumption about their shape. Beyond is a kind of layout that was not seen, or more GPUs or a larger batch.
        """
        middle = self.model.step_s(nodes, gpus, batch)
        across = np.greater(nodes, 1)
        kinds = np.where(across, bool((self.seen.nodes > 1).any()), bool((self.seen.nodes == 1).any()))
        inside = np.logical_or(np.less_equal(gpus, 1), kinds) & np.less_equal(gpus, self.seen.gpus.max())
        inside &= np.less_equal(batch, self.seen.local_batch.max() * (1 + 1e-9))
        factor = np.exp(np.where(inside, BETWEEN, BEYOND) * max(self.spread, LEAST_ERROR))
        return middle / factor, middle * factor


LEAST_ERROR = 0.02  # steps of one program differ by so much from run to run
BETWEEN, BEYOND = 1.17, 1.44
"""Below so many times the spread of their own fit lie 80 % of the errors of Sia's applications: a third of the rows
held out, and more GPUs than seen. `benchmarks/training_speed.md` says how often they hold for an application left out.
"""
