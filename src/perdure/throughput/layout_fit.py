"""Fits `layout_speed` to measured steps, and with what other programs of the site have shown where these are few."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from perdure.throughput.fit import ProfileError
from perdure.throughput.layout_speed import USUAL, LayoutFit, LayoutSpeed, Prior, SeenSteps
from perdure.throughput.speed import Floats

_ERROR, _WAITING_ERROR = 0.1, 0.2  # relative errors of a step, and of its waiting, beyond these count little
_OWN_SPREAD, _CORRECTION_SPREAD = 20.0, 2.0
_START_SYNC = 0.2  # of a step
_LEAST_WAITING = 1e-6  # of a step: logarithms stay finite
_MOST_TRIES = 80


def fit_layouts(seen: SeenSteps, prior: Prior = USUAL) -> LayoutFit:
    """The likeliest model: least relative errors of steps, far outliers counting little, and close to `prior`.

    Errors of waiting count beside them where several GPUs have it measured: steps alone cannot tell it where
    computing becomes quicker or slower with the number of GPUs.

    Without a prior of the site, steps on many GPUs count more than those on few: they tell more of
    yet more GPUs. Raises `ProfileError` where there is no step, or a value is no positive number.
    """
    _check(seen)
    batches = np.unique(np.log(seen.local_batch))
    start = np.concatenate([_own_start(seen), prior.mean, np.zeros(len(batches))])
    own = np.full(3, _OWN_SPREAD)
    if prior.inside_s is not None:
        start[2], own[2] = np.log(prior.inside_s), prior.inside_spread
    spread = np.concatenate([own, prior.spread, np.full(len(batches), _CORRECTION_SPREAD)])
    weight = (np.sqrt(seen.gpus / seen.gpus.max()) if prior is USUAL else np.ones(len(seen.gpus))) / _ERROR
    waited = None if seen.waiting_s is None else seen.where((seen.gpus > 1) & (seen.waiting_s > 0))

    def residuals(theta: Floats, robust: bool) -> Floats:
        told = LayoutSpeed(theta, batches).step_s(seen.nodes, seen.gpus, seen.local_batch)
        off = np.log(told / seen.step_s) * weight
        if waited is not None:
            off = np.concatenate([off, _waiting_errors(LayoutSpeed(theta, batches), waited)])
        if robust:
            off = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([off, (theta - start) / spread])

    tries = [least_squares(residuals, start, args=(False,), max_nfev=_MOST_TRIES).x, start]
    ends = [least_squares(residuals, each, args=(True,), max_nfev=_MOST_TRIES) for each in tries]
    theta = np.asarray(min(ends, key=lambda end: float(end.cost)).x, float)
    model = LayoutSpeed(theta, batches)
    off = np.log(model.step_s(seen.nodes, seen.gpus, seen.local_batch) / seen.step_s)
    free = max(len(off) - 3, 1)
    return LayoutFit(model, seen, float(np.sqrt(np.sum(off**2) / free)))


def _waiting_errors(model: LayoutSpeed, waited: SeenSteps) -> Floats:
    told = np.maximum(model.waiting_s(waited.nodes, waited.gpus, waited.local_batch), _LEAST_WAITING * waited.step_s)
    return np.asarray(np.log(told / np.asarray(waited.waiting_s)) / _WAITING_ERROR)


def _own_start(seen: SeenSteps) -> Floats:
    few = seen.gpus == seen.gpus.min()
    step, batch = seen.step_s[few], seen.local_batch[few]
    per_example = float(step @ batch / (batch @ batch))
    return np.log([step.mean() / 2, per_example / 2, _START_SYNC * float(np.median(seen.step_s))])


def _check(seen: SeenSteps) -> None:
    columns = {name: np.asarray(getattr(seen, name)) for name in ("nodes", "gpus", "local_batch", "step_s")}
    if len({len(column) for column in columns.values()}) > 1 or not len(seen.step_s):
        raise ProfileError("steps", "their columns are empty or differ in length", "Give each step all four values")
    for name, column in columns.items():
        wrong = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
        if len(wrong):
            raise ProfileError(f"steps, row {wrong[0]}", f"{name} is {column[wrong[0]]}", "Leave this step out")
