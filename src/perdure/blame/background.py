"""The ground: failures that no component is to blame for, and the likelihood of a path that has them.

Units of path i fail with hazard ``L = b g_i + c / n_i + a_i``: ``b`` is the ground rate of a unit, ``g_i`` a gamma
variable of mean 1 and shape ``k`` (small: bursty), ``c`` the failures booked on a path by mistake whatever its size,
and ``a_i`` what blamed components add. ``e_i ~ Binomial(n_i, 1 - exp(-L))``, and g_i is integrated out.

Failures stand only in the factor ``(exp(L) - 1)^e``. So a path without any adds
``-k log(1 + n b / k) - c - n a``, which is linear in a: it speaks through its units alone, and everything that is
searched over needs the failing paths only. The integral over g is a Gauss-Laguerre sum in g's law given no failure,
exact for up to ``2 NODES - 1`` failures of small probability.

Source: binomial with competing hazards as in Deepview (NSDI'18); gamma ground, misbooking and reduction are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_genlaguerre

from perdure.blame.window import Floats

NODES = 12
SHAPES = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 4.0, 10.0, 100.0)  # of the gamma law; 100 is as good as none
MOST_HAZARD = 30.0  # all fail
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Ground:
    """What fails with nobody to blame."""

    rate: float  # b, per unit
    misbooked: float  # c, failures per path
    shape: float  # k, one of SHAPES


@dataclass(frozen=True, slots=True)
class PathEvidence:
    """What failing paths say under a model, each (n,)."""

    gain: Floats  # log sum_q w_q (exp(L_q) - 1)^e
    pull: Floats  # E[e / p]: its derivative by L
    grip: Floats  # E[e (1 - p) / p^2]: curvature, the spread over g left out
    drawn: Floats  # E[g e / p]
    wave: Floats  # E[g]


@lru_cache(maxsize=len(SHAPES))
def _nodes(shape: float) -> tuple[Floats, Floats]:
    at, weight = roots_genlaguerre(NODES, shape - 1)
    return at, np.log(weight / weight.sum())


def hear(n: Floats, e: Floats, added: Floats, ground: Ground) -> PathEvidence:
    """What paths with `e` > 0 failures of `n` units say where blamed components add the hazard `added`."""
    g, odds, share, gained = _law(n, e, added, ground)
    inverse = np.reciprocal(odds, out=odds)
    pull = share * (1 + inverse)  # 1 / p = 1 + 1 / (exp(L) - 1)
    inverse *= pull
    return PathEvidence(
        gained, e * pull.sum(axis=0), e * inverse.sum(axis=0), e * (pull * g).sum(axis=0), (share * g).sum(axis=0)
    )


def gain(n: Floats, e: Floats, added: Floats, ground: Ground) -> Floats:
    """`Told.gain` alone."""
    return _law(n, e, added, ground)[-1]


def _law(n: Floats, e: Floats, added: Floats, ground: Ground) -> tuple[Floats, Floats, Floats, Floats]:
    """(NODES, n) values of g, of exp(L) - 1, and their weights given the failures; (n,) the gain."""
    at, log_weight = _nodes(ground.shape)
    g = at[:, None] / (ground.shape + n * ground.rate)
    hazard = ground.rate * g
    hazard += np.minimum(np.maximum(added + ground.misbooked / n, _LEAST), MOST_HAZARD)
    odds = np.expm1(hazard, out=hazard)
    share = np.log(odds)
    share *= e
    share += log_weight[:, None]
    top = share.max(axis=0)
    share -= top
    np.exp(share, out=share)
    total = share.sum(axis=0)
    share /= total
    return g, odds, share, top + np.log(total)


def silence(sizes: Floats, counts: NDArray[np.intp], ground: Ground) -> float:
    """The part of the log likelihood that every path has, failing or not: `counts` paths of `sizes` units each."""
    k = ground.shape
    return float(-(counts * (k * np.log1p(sizes * ground.rate / k))).sum() - ground.misbooked * counts.sum())
