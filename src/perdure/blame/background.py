"""The background: failures that no component is to blame for, and the likelihood of a path that has them.

Units of path i fail with hazard ``L = b g_i + c / n_i + a_i``: ``b`` is the background rate of a unit, ``g_i`` a gamma
variable of mean 1 and shape ``k`` (small: bursty), ``c`` the failures booked on a path by mistake whatever its size,
and ``a_i`` what blamed components add. ``e_i ~ Binomial(n_i, 1 - exp(-L))``, and g_i is integrated out.

Write the binomial as ``(exp(L) - 1)^e exp(-n L)``: failures are only in the first factor. So a path without any adds
``-k log(1 + n b / k) - c - n a``, which is linear in a: it enters by its units alone, and everything that is
searched over needs the failing paths only. They are few, hence the speed.

``exp(-n b g)`` times the gamma law of g is again a gamma law, of shape k and rate ``k + n b``. The integral of
``(exp(L) - 1)^e`` over it is a Gauss-Laguerre sum, exact for polynomials of degree ``2 NODES - 1``: for up to 23
failures of small probability, where ``exp(L) - 1`` is close to L.

Source: binomial with competing hazards as in Deepview (NSDI'18); gamma background, misbooking and reduction are ours.
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
class Background:
    """The rates at which paths fail with no component to blame.

    Invariants that `fit` keeps: ``rate > 0``, ``misbooked >= 1e-9``, `shape` in `SHAPES`. The variance of g is
    ``1 / shape``: at 0.1 two paths of three have less than a tenth of the mean rate, and a few have
    many times it.
    """

    rate: float  # b, per unit
    misbooked: float  # c, failures per path
    shape: float  # k, one of SHAPES


@dataclass(frozen=True, slots=True)
class PathEvidence:
    """The log likelihood of failing paths and its derivatives by the hazard L, each (n,), without the common factor.

    Expectations are over g given the failures of the path; ``p = 1 - exp(-L)`` depends on g. The gain lacks the linear
    term ``-n a`` and what all paths share (`shared_likelihood`): a caller that sums a likelihood adds them once, for
    all paths together.
    """

    gain: Floats  # log sum_q w_q (exp(L_q) - 1)^e
    slope: Floats  # E[e / p]: its derivative by L
    curvature: Floats  # E[e (1 - p) / p^2]: curvature, the spread over g left out
    slope_by_g: Floats  # E[g e / p]
    mean_g: Floats  # E[g]


@lru_cache(maxsize=len(SHAPES))
def _nodes(shape: float) -> tuple[Floats, Floats]:
    """Nodes and log weights of the generalised Gauss-Laguerre rule for a shape, (NODES,) each; weights sum to 1."""
    at, weight = roots_genlaguerre(NODES, shape - 1)
    return at, np.log(weight / weight.sum())


def path_evidence(n: Floats, e: Floats, added: Floats, background: Background) -> PathEvidence:
    """The evidence of paths with `e` > 0 failures of `n` units, where blamed components add the hazard `added`.

    All arrays are (n,); time and memory are ``12 n``. `added` may be 0, not negative. Hazards are cut to
    ``[1e-12, 30]``, so that a path all of whose units failed has a finite likelihood.

    The curvature is that of ``log(exp(L) - 1)`` at fixed g: it leaves out the variance of the slope over g, which would
    lessen it. So it is never negative, and Newton steps with it are shorter than exact ones.

    >>> at = path_evidence(np.array([40.0]), np.array([4.0]), np.array([0.1]), Background(1e-4, 1e-6, 1.0))
    >>> print(at.slope.round())  # 4 failures expected, 4 seen: the slope is n, and adding hazard brings nothing
    [42.]
    """
    g, odds, share, gained = _law(n, e, added, background)
    inverse = np.reciprocal(odds, out=odds)
    slope = share * (1 + inverse)  # 1 / p = 1 + 1 / (exp(L) - 1)
    inverse *= slope
    return PathEvidence(
        gained, e * slope.sum(axis=0), e * inverse.sum(axis=0), e * (slope * g).sum(axis=0), (share * g).sum(axis=0)
    )


def gain(n: Floats, e: Floats, added: Floats, background: Background) -> Floats:
    """`PathEvidence.gain` alone, in nats, for rankings and line searches, which need no derivative."""
    return _law(n, e, added, background)[-1]


def _law(n: Floats, e: Floats, added: Floats, background: Background) -> tuple[Floats, Floats, Floats, Floats]:
    """(NODES, n) values of g, of exp(L) - 1, and their weights given the failures; (n,) the gain.

    Weights are normalised in logarithms, by the largest: ``(exp(L) - 1)^e`` underflows for a hundred failures of a
    small hazard. Arrays are reused in place, for `Greedy` calls this for every candidate.
    """
    at, log_weight = _nodes(background.shape)
    g = at[:, None] / (background.shape + n * background.rate)
    hazard = background.rate * g
    hazard += np.minimum(np.maximum(added + background.misbooked / n, _LEAST), MOST_HAZARD)
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


def shared_likelihood(sizes: Floats, counts: NDArray[np.intp], background: Background) -> float:
    """The part of the log likelihood, in nats, that every path has, failing or not, but for blamed hazards.

    ``sizes`` are the distinct numbers of units and ``counts`` how many used paths have each, so that the cost is that
    of the distinct sizes and not of the paths.
    """
    k = background.shape
    return float(-(counts * (k * np.log1p(sizes * background.rate / k))).sum() - background.misbooked * counts.sum())
