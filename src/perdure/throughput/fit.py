"""Fits the throughput model to measured steps of one application on one GPU type, with intervals.

Source: the loss, the bounds and the priors are those of A. Qiao et al., "Pollux", OSDI 2021 (its public code); the
gradient in closed form and the intervals are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import stdtrit  # the quantile of Student's t: scipy.stats takes a second to load

from perdure.errors import PerdureError
from perdure.throughput.speed import PARAMETERS, Floats, Numbers, SpeedModel

Counts = NDArray[np.int64] | Floats

LOWEST = 1e-8  # seconds: what stands for a time that was never seen
START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
ACROSS_OVER_INSIDE = 1.1  # until it is measured, synchronising across nodes takes this much more than within one
UNSEEN_LOG_SD = 1.0  # the spread of a parameter that nothing measured, as a factor e


class ProfileError(PerdureError, ValueError):
    """Measured steps that no model can be fitted to."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured steps of one application on one GPU type, as columns of one length (n_steps,).

    `gradient_s` is the time of a pass without synchronising, `step_s` of a whole step without accumulation.
    """

    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    local_batch: Floats
    gradient_s: Floats
    step_s: Floats

    def __post_init__(self) -> None:
        columns = {name: np.asarray(getattr(self, name)) for name in self.__slots__}
        if len({len(column) for column in columns.values()}) > 1 or not len(self.step_s):
            raise ProfileError("profile", "its columns are empty or differ in length", "Give each step all five values")
        for name, column in columns.items():
            wrong = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
            if len(wrong):
                raise ProfileError(f"profile, step {wrong[0]}", f"{name} is {column[wrong[0]]}", "Leave this step out")


@dataclass(frozen=True, slots=True)
class SpeedFit:
    """A fitted model and how well it is known.

    `seen` says of each parameter, in the order of `PARAMETERS`, whether any step bears on it; `covariance` is of the
    logarithms of the parameters, and `spread` is the standard deviation of a measured step from the model (log).
    """

    model: SpeedModel
    seen: NDArray[np.bool_]
    covariance: Floats
    spread: float
    freedom: int  # steps beyond the parameters that they determine

    def interval(
        self, nodes: Numbers, gpus: Numbers, local_batch: Numbers, level: float = 0.9
    ) -> tuple[Floats, Floats]:
        """The seconds between which a step measured there lies, in `level` of cases if the model holds.

        By linearisation in logarithms. Wide where the fit knows nothing, as across nodes when all steps were in one.
        """
        nodes, gpus, local_batch = np.broadcast_arrays(nodes, gpus, local_batch)
        theta = _vector(self.model)
        slopes = _log_step_slopes(theta, nodes.ravel(), gpus.ravel(), local_batch.ravel().astype(float))
        variance = np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes) + self.spread**2
        half = stdtrit(self.freedom, 0.5 + level / 2) * np.sqrt(variance).reshape(nodes.shape)
        middle = self.model.step_s(nodes, gpus, local_batch)
        return middle * np.exp(-half), middle * np.exp(half)


def fit(steps: StepTimes) -> SpeedFit:
    """The model that the measured steps tell, by least root mean squared logarithmic error.

    What no step bears on is pinned: without several batches, half of the pass's time is taken to be fixed; without
    steps across nodes, these are taken to be a tenth slower than within one.
    """
    seen, start = _seen(steps), START.copy()
    start[~seen] = LOWEST
    start[6] = START[6]
    if not seen[1]:
        start[0] = steps.gradient_s.mean() / 2
        start[1] = START[1]
    free = seen | np.array([False, True] + 5 * [False])
    free[0] = seen[1]
    bounds = [(LOWEST, None) if free[i] else (start[i], start[i]) for i in range(6)] + [(1.0, 10.0)]
    alike = _AlikeSteps.of(steps)
    found = minimize(_loss, start, args=(alike,), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
    theta = np.asarray(found.x, float)
    if not seen[2]:
        theta[2:4] = np.maximum(theta[2:4], ACROSS_OVER_INSIDE * theta[4:6])
    return _with_intervals(theta, seen, steps)


def _seen(steps: StepTimes) -> NDArray[np.bool_]:
    across, inside = steps.nodes > 1, (steps.nodes == 1) & (steps.gpus > 1)
    batches = len(np.unique(steps.local_batch)) > 1
    more_across, more_inside = (across & (steps.gpus > 2)).any(), (inside & (steps.gpus > 2)).any()
    together = across.any() or inside.any()
    return np.array([True, batches, across.any(), more_across, inside.any(), more_inside, together])


@dataclass(frozen=True, slots=True)
class _AlikeSteps:
    """Steps that no model tells apart, as one (n_alike,): their count and geometric means.

    `scatter` is the sum of squared logarithms around these, of gradients and of steps: no model makes it smaller.
    """

    slopes: Floats
    local_batch: Floats
    gradient_s: Floats
    step_s: Floats
    count: Floats
    scatter: tuple[float, float]

    @classmethod
    def of(cls, steps: StepTimes) -> _AlikeSteps:
        slopes = _sync_slopes(steps.nodes, steps.gpus)
        told = np.column_stack([slopes, steps.local_batch])
        _, first, place, count = np.unique(told, axis=0, return_index=True, return_inverse=True, return_counts=True)
        if len(first) == len(told):
            ones = np.ones(len(told))
            return cls(slopes, steps.local_batch, steps.gradient_s, steps.step_s, ones, (0.0, 0.0))
        logs = [np.log(seconds) for seconds in (steps.gradient_s, steps.step_s)]
        means = [np.bincount(place.ravel(), each) / count for each in logs]
        parts = [float(np.sum((each - mean[place.ravel()]) ** 2)) for each, mean in zip(logs, means, strict=True)]
        gradient_s, step_s = (np.exp(mean) for mean in means)
        scatter = (parts[0], parts[1])
        return cls(slopes[first], steps.local_batch[first], gradient_s, step_s, count.astype(float), scatter)


def _sync_slopes(nodes: Counts, gpus: Counts) -> Floats:
    """The slopes of synchronisation in its four parameters (n_steps, 4)."""
    beyond = np.maximum(gpus - 2, 0)
    across, inside = (gpus > 1) & (nodes > 1), (gpus > 1) & (nodes == 1)
    return np.stack([across, across * beyond, inside, inside * beyond], axis=1).astype(float)


def _times(theta: Floats, slopes: Floats, local_batch: Floats) -> tuple[Floats, Floats, Floats]:
    """Gradient, synchronisation and step seconds."""
    gradient = theta[0] + theta[1] * local_batch
    sync = slopes @ theta[2:6]
    gamma, longer = theta[6], np.maximum(gradient, sync)
    step = longer * ((gradient / longer) ** gamma + (sync / longer) ** gamma) ** (1 / gamma)
    return gradient, sync, step


def _step_slopes(
    theta: Floats, gradient: Floats, sync: Floats, step: Floats, slopes: Floats, local_batch: Floats
) -> Floats:
    """d log(step) / d parameter, shape (n_steps, 7)."""
    gamma, together = theta[6], sync > 0
    of_gradient, of_sync = gradient / step, np.where(together, sync / step, 0.0)
    found = np.empty((len(step), len(PARAMETERS)))
    found[:, 0] = of_gradient ** (gamma - 1) / step
    found[:, 1] = found[:, 0] * local_batch
    by_sync = np.where(together, of_sync ** (gamma - 1), 0.0) / step
    found[:, 2:6] = by_sync[:, None] * slopes
    powers = of_gradient**gamma, of_sync**gamma  # they add up to 1
    found[:, 6] = (powers[0] * np.log(of_gradient) + powers[1] * np.log(np.where(together, of_sync, 1.0))) / gamma
    return found


def _log_step_slopes(theta: Floats, nodes: Counts, gpus: Counts, local_batch: Floats) -> Floats:
    """d log(step) / d log(parameter), shape (n_steps, 7)."""
    slopes = _sync_slopes(nodes, gpus)
    gradient, sync, step = _times(theta, slopes, local_batch)
    return _step_slopes(theta, gradient, sync, step, slopes, local_batch) * theta


def _loss(theta: Floats, steps: _AlikeSteps) -> tuple[float, Floats]:
    """The loss and its gradient."""
    gradient, sync, step = _times(theta, steps.slopes, steps.local_batch)
    of_gradient, of_step = np.log(gradient / steps.gradient_s), np.log(step / steps.step_s)
    weighted = steps.count * of_gradient, steps.count * of_step
    count, tiny = float(steps.count.sum()), 1e-12  # keeps the root's slope finite at a perfect fit
    pairs = zip(weighted, (of_gradient, of_step), steps.scatter, strict=True)
    rms = [sqrt((float((each * log).sum()) + scatter) / count + tiny) for each, log, scatter in pairs]
    ratios = theta[3] / theta[2], theta[5] / theta[4]
    loss = rms[0] + rms[1] + 1e-3 * (theta[6] - 1) ** 2 + 1e-2 * (ratios[0] ** 2 + ratios[1] ** 2)
    by_step = _step_slopes(theta, gradient, sync, step, steps.slopes, steps.local_batch)
    slope = (weighted[1] / (count * rms[1])) @ by_step
    by_gradient = weighted[0] / (count * rms[0]) / gradient
    slope[0] += by_gradient.sum()
    slope[1] += by_gradient @ steps.local_batch
    for alpha, ratio in ((2, ratios[0]), (4, ratios[1])):
        slope[alpha] -= 2e-2 * ratio**2 / theta[alpha]
        slope[alpha + 1] += 2e-2 * ratio / theta[alpha]
    slope[6] += 2e-3 * (theta[6] - 1)
    return float(loss), slope


def _with_intervals(theta: Floats, seen: NDArray[np.bool_], steps: StepTimes) -> SpeedFit:
    """Gauss-Newton covariance in logarithms; what was not seen has a spread of its own."""
    slopes = _sync_slopes(steps.nodes, steps.gpus)
    gradient, sync, step = _times(theta, slopes, steps.local_batch)
    of_gradient, of_step = np.log(gradient / steps.gradient_s), np.log(step / steps.step_s)
    by_step = _step_slopes(theta, gradient, sync, step, slopes, steps.local_batch) * theta
    by_gradient = np.zeros_like(by_step)
    by_gradient[:, 0], by_gradient[:, 1] = theta[0] / gradient, theta[1] * steps.local_batch / gradient
    freedom = max(len(step) - int(seen.sum()), 1)
    spread = max(float(np.sqrt(np.sum(of_step**2) / freedom)), 1e-3)
    gradient_spread = max(float(np.sqrt(np.sum(of_gradient**2) / freedom)), 1e-3)
    information = by_step.T @ by_step / spread**2 + by_gradient.T @ by_gradient / gradient_spread**2
    covariance = np.asarray(np.linalg.inv(information + np.eye(len(PARAMETERS)) / UNSEEN_LOG_SD**2), float)
    return SpeedFit(SpeedModel(*theta.tolist()), seen, covariance, spread, freedom)


def _vector(model: SpeedModel) -> Floats:
    return np.array([getattr(model, name) for name in PARAMETERS], float)
