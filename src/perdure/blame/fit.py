"""The likeliest hazards of a given set of blamed components, and of the background under them.

The search (`greedy`) chooses the set; this module knows no prices but those that terms carry. All likelihoods are in
nats, up to the binomial coefficients, which no model changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perdure.blame.background import (
    MOST_HAZARD,
    SHAPES,
    Background,
    PathEvidence,
    gain,
    path_evidence,
    shared_likelihood,
)
from perdure.blame.failing_paths import FailingPaths, Rows
from perdure.blame.window import Floats

_ROUNDS, _BACKGROUND_STEPS, _NEWTON_STEPS = 12, 3, 4
_SETTLED = 0.02  # nats that a round must still bring
_FEWEST = 0.1  # failures that the background has at least, so that no logarithm is of 0
_MOST_ASTRAY = 0.1  # of all failures are taken for booked on a wrong path, at most
_ZERO = 1e-7


@dataclass(frozen=True, slots=True)
class Term:
    """One blamed component.

    Whole: it adds its hazard to all of its paths. Partial (a black hole): to the hot ones alone, and `units` are
    theirs. The units of clean paths count too: ``-hazard * units`` is what blame costs on paths that did not fail.
    """

    column: int
    rows: Rows  # failing paths (positions in `FailingPaths.rows`) on which it adds its hazard
    units: float  # of all paths on which it does
    price: float  # nats that it must bring
    partial: bool = False  # only a part of its paths is concerned


@dataclass(frozen=True)
class HazardModel:
    """Blamed components with their hazards, and the background; the likelihood is up to a constant of the window.

    A value: `plus` and `without` return new models, fitted from where this one ended. ``hazard = -log(1 - rate)``, so
    that the hazards of several components on one path add up.
    """

    failing: FailingPaths
    terms: tuple[Term, ...]
    hazard: Floats  # (n_terms,) -log(1 - rate)
    background: Background
    likelihood: float

    @property
    def worth(self) -> float:
        """The likelihood less the prices of the terms, in nats: what the search maximises."""
        return self.likelihood - sum(term.price for term in self.terms)

    @cached_property
    def added(self) -> Floats:
        """(f,) the hazard that blame adds on each failing path."""
        out = np.zeros(len(self.failing.n))
        for term, hazard in zip(self.terms, self.hazard, strict=True):
            out[term.rows] += hazard
        return out

    @cached_property
    def base(self) -> Floats:
        """(f,) the gain of each failing path under this model; differences to it are the gains of changes."""
        return gain(self.failing.n, self.failing.e, self.added, self.background)

    def brings(self, place: int) -> float:
        """What one term is worth with all else held, its price paid, in nats; below 0 it does not pay.

        An upper bound of what the model would lose without it: after a refit (`without`) other terms and the background
        take over some of its failures. It costs one look at the failing paths of the term.
        """
        term, hazard = self.terms[place], self.hazard[place]
        n, e = self.failing.n[term.rows], self.failing.e[term.rows]
        without = gain(n, e, self.added[term.rows] - hazard, self.background)
        return float((self.base[term.rows] - without).sum() - hazard * term.units - term.price)

    def without(self, places: Sequence[int]) -> HazardModel:
        """The model refitted without the terms at these places."""
        keep = [place for place in range(len(self.terms)) if place not in places]
        return fit(self.failing, tuple(self.terms[place] for place in keep), self.hazard[keep], self.background)

    def plus(self, term: Term, hazard: float) -> HazardModel:
        """The model refitted with one more term, its hazard begun at `hazard`."""
        return fit(self.failing, (*self.terms, term), np.append(self.hazard, hazard), self.background)


class _Groups:
    """Failing paths with the same n, e and blamed components count as one.

    Exact, for the likelihood of a path depends on nothing else; with few blamed components and small counts there are
    far fewer groups than paths. `member` (n_groups, n_terms) says which terms a group crosses,
    `count` (n_groups,) how many paths it stands for.
    """

    def __init__(self, failing: FailingPaths, terms: tuple[Term, ...]) -> None:
        member = np.zeros((len(failing.n), len(terms)), bool)
        for place, term in enumerate(terms):
            member[term.rows, place] = True
        key = failing.pair
        if terms:
            _, pattern = np.unique(np.packbits(member, axis=1), axis=0, return_inverse=True)
            key = pattern.ravel() * failing.n_pairs + failing.pair
        _, first, count = np.unique(key, return_index=True, return_counts=True)
        self.n, self.e, self.count = failing.n[first], failing.e[first], count.astype(np.float64)
        self.member = member[first].astype(np.float64)
        self.units = np.array([term.units for term in terms])
        self.sizes, self.counts, self.most = failing.sizes, failing.counts, failing.overall
        self.most_astray = _MOST_ASTRAY * failing.e.sum() / failing.counts.sum()

    def likelihood(self, hazard: Floats, background: Background) -> float:
        """Of all paths, in nats: what all share, less blame on clean units, and the gain of the failing ones."""
        from_failing = self.count @ gain(self.n, self.e, self.member @ hazard, background)
        return float(shared_likelihood(self.sizes, self.counts, background) - self.units @ hazard + from_failing)

    def refit_background(self, hazard: Floats, background: Background) -> Background:
        """Three steps of EM for the two rates of the background, at fixed hazards and shape.

        Each rate is multiplied by the failures that it explains over those that it predicts, so it is stationary where
        the derivative of the likelihood is 0. The mean of g given no failure is ``k / (k + n b)``; clean paths are
        summed by their sizes. The rate stays between a tenth of a failure and the overall share of failed units,
        misbooked failures below a tenth of all.
        """
        added, all_units, k = self.member @ hazard, self.sizes * self.counts, background.shape
        for _ in range(_BACKGROUND_STEPS):
            evidence = path_evidence(self.n, self.e, added, background)
            mean_clean, mean_failing = k / (k + self.sizes * background.rate), k / (k + self.n * background.rate)
            from_clean = all_units @ mean_clean - self.count @ (self.n * mean_failing)
            rate = (
                background.rate
                * (self.count @ evidence.slope_by_g)
                / (self.count @ (self.n * evidence.mean_g) + from_clean)
            )
            astray = background.misbooked * (self.count @ (evidence.slope / self.n)) / self.counts.sum()
            astray = float(np.clip(astray, 1e-9, max(1e-9, self.most_astray)))
            least = _FEWEST / all_units.sum()
            background = Background(float(np.clip(rate, least, max(least, self.most))), astray, k)
        return background

    def choose_shape(self, hazard: Floats, background: Background, shapes: Sequence[float]) -> Background:
        """The likeliest of a few shapes: on a grid, for the likelihood is flat in the shape and each value needs nodes
        of its own.
        """
        choices = [replace(background, shape=shape) for shape in shapes]
        return max(choices, key=lambda choice: self.likelihood(hazard, choice))

    def refit_hazards(self, hazard: Floats, background: Background) -> tuple[Floats, float]:
        """Newton steps for the hazards, halted where one brings nothing; also the likelihood reached.

        A step is shortened up to three times, and given up if the likelihood still falls. A hazard moves at most to
        five times itself plus 0.001, and down to 1e-7 or a tenth of itself, whichever is less: it stays above 0.
        """
        now, evidence = self._evaluate(hazard, background)
        for _ in range(_NEWTON_STEPS if len(hazard) else 0):
            step = self._newton(hazard, evidence)
            for scale in (1.0, 0.25, 0.06, 0.015):
                bounds = np.minimum(hazard * 0.1, _ZERO), np.minimum(hazard * 5 + 1e-3, MOST_HAZARD)
                tried = np.clip(hazard + scale * step, *bounds)
                then, evidence_then = self._evaluate(tried, background)
                if then >= now:
                    break
            else:
                return hazard, now
            moved = np.abs(tried - hazard).max()
            hazard, now, evidence = tried, then, evidence_then
            if moved < 1e-4 * hazard.max():
                break
        return hazard, now

    def _evaluate(self, hazard: Floats, background: Background) -> tuple[float, PathEvidence]:
        """The likelihood, and what failing paths say there."""
        evidence = path_evidence(self.n, self.e, self.member @ hazard, background)
        from_all = shared_likelihood(self.sizes, self.counts, background) - self.units @ hazard
        return float(from_all + self.count @ evidence.gain), evidence

    def _newton(self, hazard: Floats, evidence: PathEvidence) -> Floats:
        """(n_terms,) the Newton step of the hazards that are free to move: all but those at 0 that would fall further.

        A ridge of 1e-6 of the diagonal keeps the curvature invertible where two terms cross the same failing paths.
        """
        slope = self.member.T @ (self.count * evidence.slope) - self.units
        free = np.flatnonzero((hazard > _ZERO) | (slope > 0))
        among = self.member[:, free]
        curve = (among * (self.count * evidence.curvature)[:, None]).T @ among
        curve[np.diag_indices(len(free))] *= 1 + 1e-6  # two terms may concern the same paths
        curve[np.diag_indices(len(free))] += 1e-9
        step = np.zeros(len(hazard))
        step[free] = np.linalg.solve(curve, slope[free])
        return step


def fit(failing: FailingPaths, terms: tuple[Term, ...], hazard: Floats, background: Background) -> HazardModel:
    """Maximise the likelihood from the given hazards and background, hazards and background in turn.

    `hazard` is (n_terms,). All shapes are tried in the first round, the neighbours of the last one until it stays. Ends
    where a round brings less than 0.02 nats, or after 12. The likelihood need not be concave: the result is a local
    optimum near the start.
    """
    groups = _Groups(failing, terms)
    before, shaped = -np.inf, False
    for number in range(_ROUNDS):
        background = groups.refit_background(hazard, background)
        if not shaped:
            at, was = SHAPES.index(background.shape), background.shape
            background = groups.choose_shape(hazard, background, SHAPES[max(0, at - 1) : at + 2] if number else SHAPES)
            shaped = number > 0 and background.shape == was
        hazard, now = groups.refit_hazards(hazard, background)
        if now - before < _SETTLED:
            if shaped:
                break
            shaped = False
        before = now
    return HazardModel(failing, terms, hazard, background, now)
