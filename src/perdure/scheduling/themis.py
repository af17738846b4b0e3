"""Themis's auction: GPUs to apps by their bids, and what each app leaves behind so that honest bids are best.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, section 5; the mechanism is
that of R. Cole, V. Gkatzelis and G. Goel, "Mechanism design for fair division", EC 2013. Solving it exactly by dynamic
programming, for GPUs that are all alike, is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from perdure.errors import InputError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Award:
    """What an auction gives, each (n_apps,).

    `fair` maximises the product of all values (proportional fairness); `keeps` is the fraction of it that the app may
    keep, in (0, 1], the less the more its presence costs the others; `gpus` is that, rounded down. What is left goes to
    apps outside the auction.
    """

    fair: Counts
    keeps: Floats
    gpus: Counts


def finish_time_ratio(
    shared_s: Floats, work_left_gpu_s: Floats, gpus: Floats, slowdown: Floats, ideal_s: Floats
) -> Floats:
    """Themis's rho: seconds until the end as things are, over `ideal_s` with the fair share; inf without GPUs.

    `slowdown` in (0, 1] is what the placement leaves of the speed.

    >>> given = (np.array([value]) for value in (600.0, 4000.0, 4.0, 0.8, 4000.0))
    >>> finish_time_ratio(*given).tolist()
    [0.4625]
    """
    with np.errstate(divide="ignore"):
        return np.asarray((shared_s + work_left_gpu_s / (gpus * slowdown)) / ideal_s, float)


def partial_allocation(bids: Floats) -> Award:
    """The auction of as many GPUs as the bids' columns tell, less one.

    `bids[i, g]` is what `g` GPUs are worth to app i, 1 / rho; it must not fall with more GPUs. Exact: the best product
    of the first apps, and of the last ones, is kept for each number of GPUs, so that all payments come from one pass
    each way. Among equals, an earlier app gets less. Raises `InputError` for a bid that falls, or is not a number.
    """
    _check(bids)
    with np.errstate(divide="ignore"):
        value = np.log(bids)
    apps, most = bids.shape[0], bids.shape[1] - 1
    before, after = np.zeros((apps + 1, most + 1)), np.zeros((apps + 1, most + 1))
    for app in range(apps):
        before[app + 1] = _combined(before[app], value[app])
    for app in reversed(range(apps)):
        after[app] = _combined(after[app + 1], value[app])
    fair, left = np.zeros(apps, np.int64), most
    for app in range(apps):
        fair[app] = int(np.argmax(value[app, : left + 1] + after[app + 1, left::-1]))
        left -= int(fair[app])
    own = value[np.arange(apps), fair]
    others = np.array([_others(own, app) for app in range(apps)])
    without = np.array([(before[app] + after[app + 1, ::-1]).max() for app in range(apps)])
    with np.errstate(invalid="ignore"):
        keeps = np.where(np.isneginf(without), 1.0, np.minimum(np.exp(others - without), 1.0))
    return Award(fair, keeps, np.floor(keeps * fair + 1e-9).astype(np.int64))


def _combined(best: Floats, value: Floats) -> Floats:
    """The best sum of two for at most each number of GPUs, shared between them."""
    size = len(best)
    padded = np.concatenate([np.full(size - 1, -np.inf), best])
    left = sliding_window_view(padded, size)[::-1]  # row g: the best of all but g GPUs, for each number
    return np.asarray((left + value[:, None]).max(axis=0), float)


def _others(own: Floats, app: int) -> float:
    return float(np.delete(own, app).sum())


def _check(bids: Floats) -> None:
    wrong = ~np.isfinite(bids) | (bids < 0)
    wrong[:, 1:] |= bids[:, 1:] < bids[:, :-1]
    if wrong.any():
        app, gpus = np.argwhere(wrong)[0]
        said = f"it says {bids[app, gpus]:g} for {gpus} GPUs, after {bids[app, max(gpus - 1, 0)]:g} for one less"
        raise InputError(f"bid of app {app}", said, "More GPUs must be worth at least as much, and 0 or more")
