"""The likeliest hazards of a given set of blamed components, and of the ground under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perdure.blame.background import MOST_HAZARD, SHAPES, Ground, PathEvidence, gain, hear, silence
from perdure.blame.failing_paths import Rows, Speaking
from perdure.blame.window import Floats

_ROUNDS, _GROUND_STEPS, _NEWTON_STEPS = 12, 3, 4
_SETTLED = 0.02  # nats that a round must still bring
_FEWEST = 0.1  # failures that the ground has at least, so that no logarithm is of 0
_MOST_ASTRAY = 0.1  # of all failures are taken for booked on a wrong path, at most
_ZERO = 1e-7


@dataclass(frozen=True, slots=True)
class Term:
    """One blamed component."""

    column: int
    rows: Rows  # failing paths (positions in `Speaking.rows`) on which it adds its hazard
    units: float  # of all paths on which it does
    price: float  # nats that it must bring
    partial: bool = False  # only a part of its paths is concerned


@dataclass(frozen=True)
class HazardModel:
    """Blamed components with their hazards, and the ground; the likelihood is up to a constant of the window."""

    said: Speaking
    terms: tuple[Term, ...]
    hazard: Floats  # (n_terms,) -log(1 - rate)
    ground: Ground
    likelihood: float

    @property
    def worth(self) -> float:
        return self.likelihood - sum(term.price for term in self.terms)

    @cached_property
    def added(self) -> Floats:
        """(f,) the hazard that blame adds on each failing path."""
        out = np.zeros(len(self.said.n))
        for term, hazard in zip(self.terms, self.hazard, strict=True):
            out[term.rows] += hazard
        return out

    @cached_property
    def base(self) -> Floats:
        """(f,) what each failing path brings."""
        return gain(self.said.n, self.said.e, self.added, self.ground)

    def brings(self, place: int) -> float:
        """The gain of one term with all else held, its price paid."""
        term, hazard = self.terms[place], self.hazard[place]
        n, e = self.said.n[term.rows], self.said.e[term.rows]
        without = gain(n, e, self.added[term.rows] - hazard, self.ground)
        return float((self.base[term.rows] - without).sum() - hazard * term.units - term.price)

    def without(self, places: Sequence[int]) -> HazardModel:
        keep = [place for place in range(len(self.terms)) if place not in places]
        return fit(self.said, tuple(self.terms[place] for place in keep), self.hazard[keep], self.ground)

    def plus(self, term: Term, hazard: float) -> HazardModel:
        return fit(self.said, (*self.terms, term), np.append(self.hazard, hazard), self.ground)


class _Groups:
    """Failing paths with the same n, e and blamed components count as one."""

    def __init__(self, said: Speaking, terms: tuple[Term, ...]) -> None:
        member = np.zeros((len(said.n), len(terms)), bool)
        for place, term in enumerate(terms):
            member[term.rows, place] = True
        key = said.pair
        if terms:
            _, pattern = np.unique(np.packbits(member, axis=1), axis=0, return_inverse=True)
            key = pattern.ravel() * said.n_pairs + said.pair
        _, first, count = np.unique(key, return_index=True, return_counts=True)
        self.n, self.e, self.count = said.n[first], said.e[first], count.astype(np.float64)
        self.member = member[first].astype(np.float64)
        self.units = np.array([term.units for term in terms])
        self.sizes, self.counts, self.most = said.sizes, said.counts, said.overall
        self.most_astray = _MOST_ASTRAY * said.e.sum() / said.counts.sum()

    def likelihood(self, hazard: Floats, ground: Ground) -> float:
        told = self.count @ gain(self.n, self.e, self.member @ hazard, ground)
        return float(silence(self.sizes, self.counts, ground) - self.units @ hazard + told)

    def settle(self, hazard: Floats, ground: Ground) -> Ground:
        """Steps of EM for the two rates of the ground."""
        added, all_units, k = self.member @ hazard, self.sizes * self.counts, ground.shape
        for _ in range(_GROUND_STEPS):
            told = hear(self.n, self.e, added, ground)
            wave, heard = k / (k + self.sizes * ground.rate), k / (k + self.n * ground.rate)
            quiet = all_units @ wave - self.count @ (self.n * heard)
            rate = ground.rate * (self.count @ told.drawn) / (self.count @ (self.n * told.wave) + quiet)
            astray = ground.misbooked * (self.count @ (told.pull / self.n)) / self.counts.sum()
            astray = float(np.clip(astray, 1e-9, max(1e-9, self.most_astray)))
            least = _FEWEST / all_units.sum()
            ground = Ground(float(np.clip(rate, least, max(least, self.most))), astray, k)
        return ground

    def reshape(self, hazard: Floats, ground: Ground, shapes: Sequence[float]) -> Ground:
        choices = [replace(ground, shape=shape) for shape in shapes]
        return max(choices, key=lambda choice: self.likelihood(hazard, choice))

    def climb(self, hazard: Floats, ground: Ground) -> tuple[Floats, float]:
        """Newton steps for the hazards, halted where one brings nothing; also the likelihood reached."""
        now, told = self._hear(hazard, ground)
        for _ in range(_NEWTON_STEPS if len(hazard) else 0):
            step = self._newton(hazard, told)
            for scale in (1.0, 0.25, 0.06, 0.015):
                bounds = np.minimum(hazard * 0.1, _ZERO), np.minimum(hazard * 5 + 1e-3, MOST_HAZARD)
                tried = np.clip(hazard + scale * step, *bounds)
                then, heard = self._hear(tried, ground)
                if then >= now:
                    break
            else:
                return hazard, now
            moved = np.abs(tried - hazard).max()
            hazard, now, told = tried, then, heard
            if moved < 1e-4 * hazard.max():
                break
        return hazard, now

    def _hear(self, hazard: Floats, ground: Ground) -> tuple[float, PathEvidence]:
        """The likelihood, and what failing paths say there."""
        told = hear(self.n, self.e, self.member @ hazard, ground)
        silent = silence(self.sizes, self.counts, ground) - self.units @ hazard
        return float(silent + self.count @ told.gain), told

    def _newton(self, hazard: Floats, told: PathEvidence) -> Floats:
        slope = self.member.T @ (self.count * told.pull) - self.units
        free = np.flatnonzero((hazard > _ZERO) | (slope > 0))
        among = self.member[:, free]
        curve = (among * (self.count * told.grip)[:, None]).T @ among
        curve[np.diag_indices(len(free))] *= 1 + 1e-6  # two terms may concern the same paths
        curve[np.diag_indices(len(free))] += 1e-9
        step = np.zeros(len(hazard))
        step[free] = np.linalg.solve(curve, slope[free])
        return step


def fit(said: Speaking, terms: tuple[Term, ...], hazard: Floats, ground: Ground) -> HazardModel:
    """Maximise the likelihood from where `hazard` and `ground` stand, hazards and ground in turn."""
    groups = _Groups(said, terms)
    before, shaped = -np.inf, False
    for number in range(_ROUNDS):
        ground = groups.settle(hazard, ground)
        if not shaped:
            at, was = SHAPES.index(ground.shape), ground.shape
            ground = groups.reshape(hazard, ground, SHAPES[max(0, at - 1) : at + 2] if number else SHAPES)
            shaped = number > 0 and ground.shape == was
        hazard, now = groups.climb(hazard, ground)
        if now - before < _SETTLED:
            if shaped:
                break
            shaped = False
        before = now
    return HazardModel(said, terms, hazard, ground, now)
