"""Greedy maximum likelihood with a bursty ground: the default solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from perdure.blame.background import MOST_HAZARD, Ground, gain, hear
from perdure.blame.equivalence import representatives
from perdure.blame.failing_paths import Speaking
from perdure.blame.fit import HazardModel, Term, fit
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Floats, Window

_SHORTLIST = 24  # components a round that are tried exactly, by each of two rankings
_MOST_TERMS = 64
_HOT = (1.0, 3.0, 6.0)  # nats from which a path counts as hot when black holes are looked for
_MOST_HOT = 0.6  # of a component's paths; above, it is the component as a whole
_TRIED = 4  # black holes a round that are fitted
_LIKELIHOOD_95 = 1.92  # nats below the top at the ends of a 95 % interval
_CLOSE = 1e-3  # nats from such an end
_SURE = 60.0  # nats above its price from which a term is not doubted
_FAR = 60.0  # nats that a black hole may lack before anything is fitted to it
_HOPE = 8.0  # nats that a component may lack as long as the ground still explains its failures
_PROGRESS = 0.01  # nats of worth by which a change must better the model


@dataclass(frozen=True, slots=True)
class Greedy:
    """Binomial likelihood, a free rate per culprit, a fitted ground, black holes on a part of the paths.

    Claim: names every culprit whose log likelihood ratio is above its price, and nobody else, also where failures come
    in bursts, where culprits mask each other, and where only a part of a component's paths is concerned.

    The likelihood is that of `perdure.blame.background`, ``p_i = 1 - exp(-(b g_i + c / n_i + sum_{j in A} a_j
    x_ij))``. The set A grows by the component of the largest gain, as long as that is above ``log M_t + log T +
    surcharge`` (M_t components in its tier, T tiers); after each step all hazards and the ground are refitted and
    terms that no longer pay are dropped. A component of P paths that fails on K of them only pays ``P H(K / P)`` nats
    more, for saying which (H: entropy). Candidates are ranked by ``E log(E / mu) - (E - mu)`` and by the score test,
    then tried exactly.

    Do not use it where paths do not fail independently given their components: it would name what they share.

    Source: score test, EM and penalty as in a likelihood scan (M. Kulldorff, Commun. Stat. 26, 1997); Flock
    (CoNEXT'23) for greedy maximum likelihood; the ground, its reduction and the price of partial failure are ours.
    """

    surcharge: float = 6.0  # nats; e^-6 bounds the chance of one false blame a window by about 1 in 400
    partial_surcharge: float = 3.0  # nats on top, of a component that fails on some of its paths
    least_rate: float = 5e-4  # nobody is blamed for less
    name: str = "greedy"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        said = Speaking(window)
        if not len(said.n):
            return ()
        search = _Search(self, window, said)
        model = search.best()
        found = [(model.brings(place), place) for place in range(len(model.terms))]
        return tuple(_verdict(window, model, place, strength) for strength, place in sorted(found, reverse=True))


class _Search:
    """The search through one window."""

    def __init__(self, solver: Greedy, window: Window, said: Speaking) -> None:
        self.solver, self.window, self.said = solver, window, said
        names, tier = np.unique(window.tiers, return_inverse=True)
        self.price: Floats = np.log(np.bincount(tier))[tier] + np.log(len(names)) + solver.surcharge
        candidate = representatives(window) == np.arange(window.n_components)
        self.candidate = candidate & (np.diff(said.by_component.indptr) > 1)  # one path is not a pattern

        self._fitted: dict[frozenset[tuple[int, bytes]], HazardModel] = {}

    def best(self) -> HazardModel:
        """The model of the largest worth that was found."""
        said = self.said
        misbooked = 0.1 * len(said.n) / said.counts.sum()
        nobody = fit(said, (), np.zeros(0), Ground(said.overall, misbooked, 1.0))
        self._fitted[frozenset()] = nobody
        model = self._grow(nobody)
        for seen in (model, nobody):
            for term, hazard in self._partial(seen)[:_TRIED]:
                model = self._with_partial(model, term, hazard)
        return model

    def _with_partial(self, model: HazardModel, term: Term, hazard: float) -> HazardModel:
        """The better of the model and that with a black hole in it."""
        same = [place for place, other in enumerate(model.terms) if other.column == term.column]
        if any(model.terms[place].partial and np.array_equal(model.terms[place].rows, term.rows) for place in same):
            return model
        if self._unfitted(model, same, term, hazard) < model.worth - _FAR:
            return model
        tried = self._plus(self._without(model, same), term, hazard)
        if tried.worth + self._spared(tried) <= model.worth:
            return model
        tried = self._prune(tried)
        if tried.worth > model.worth + _PROGRESS:
            tried = self._grow(tried)
        return tried if tried.worth > model.worth + _PROGRESS else model

    def _unfitted(self, model: HazardModel, same: Sequence[int], term: Term, hazard: float) -> float:
        """What the model were worth with `term` in the place of `same`, all else as it is."""
        said, added, worth = self.said, model.added.copy(), model.worth
        for place in same:
            old = model.terms[place]
            added[old.rows] -= model.hazard[place]
            worth += model.hazard[place] * old.units + old.price
        added[term.rows] += hazard
        brought = gain(said.n, said.e, np.maximum(added, 0.0), model.ground) - model.base
        return float(worth + brought.sum() - hazard * term.units - term.price)

    def _grow(self, model: HazardModel) -> HazardModel:
        """Add whole components while they pay."""
        passed_over: list[int] = []
        while len(model.terms) < _MOST_TERMS:
            columns = self._shortlist(model, passed_over)
            if not len(columns):
                break
            hazard, brought = self._alone(model, columns)
            net = np.where(hazard < self.solver.least_rate, -np.inf, brought - self.price[columns])
            top = int(np.argmax(net))
            if net[top] <= -_HOPE:
                break
            column = int(columns[top])
            whole = Term(column, self.said.of(column), self.said.units[column], self.price[column])
            tried = self._prune(self._plus(model, whole, hazard[top]))
            if tried.worth > model.worth + _PROGRESS:
                model = tried
            else:
                passed_over.append(column)
        return model

    def _plus(self, model: HazardModel, term: Term, hazard: float) -> HazardModel:
        key = _key((*model.terms, term))
        if key not in self._fitted:
            self._fitted[key] = model.plus(term, hazard)
        return self._fitted[key]

    def _without(self, model: HazardModel, places: Sequence[int]) -> HazardModel:
        key = _key([term for place, term in enumerate(model.terms) if place not in places])
        if key not in self._fitted:
            self._fitted[key] = model.without(places)
        return self._fitted[key]

    def _spared(self, model: HazardModel) -> float:
        """The most that dropping terms can add to the worth: the prices of all that may be dropped."""
        return sum(term.price for place, term in enumerate(model.terms) if self._net(model, place) <= _SURE)

    def _prune(self, model: HazardModel) -> HazardModel:
        """Drop terms that do not pay, the weakest first."""
        while model.terms:
            net = [self._net(model, place) for place in range(len(model.terms))]
            for place in np.argsort(net, kind="stable")[:3]:
                if net[place] > _SURE:
                    return model
                tried = self._without(model, [place])
                if net[place] < 0 or tried.worth > model.worth:
                    model = tried
                    break
            else:
                return model
        return model

    def _net(self, model: HazardModel, place: int) -> float:
        holds = model.hazard[place] >= self.solver.least_rate and len(model.terms[place].rows) > 1
        return model.brings(place) if holds else -1.0

    def _shortlist(self, model: HazardModel, passed_over: list[int]) -> NDArray[np.intp]:
        """The components that may have the largest gain."""
        said, told = self.said, hear(self.said.n, self.said.e, model.added, model.ground)
        pull = said.incidence.T @ told.pull - said.units
        score = np.where(pull > 0, pull / np.sqrt(np.maximum(said.incidence.T @ told.grip, 1e-300)), 0)
        wanted = np.maximum(self._expected(model), 1e-9)
        had = np.maximum(said.failures, 1e-9)
        scan = np.where(had > wanted, had * np.log(had / wanted) - (had - wanted), 0)
        for ranking in (score, scan):
            ranking[~self.candidate] = 0
            ranking[[*(term.column for term in model.terms), *passed_over]] = 0
        best = np.union1d(_top(score), _top(scan))
        taken: NDArray[np.intp] = best[((score > 0) & (pull > 0))[best]]
        return taken

    def _expected(self, model: HazardModel) -> Floats:
        """(n_components,) failures on each component's paths under the model."""
        said, ground, window = self.said, model.ground, self.window
        wanted: Floats = ground.misbooked * said.paths - said.units * np.expm1(-ground.rate)
        if model.terms:
            hazard = np.zeros(window.n_paths)
            for term, more in zip(model.terms, model.hazard, strict=True):
                hazard[said.rows[term.rows] if term.partial else window.rows(term.column)] += more
            rows = np.flatnonzero(hazard)  # all others fail by the ground alone
            wanted -= window.incidence[rows].T @ (window.units[rows] * np.exp(-ground.rate) * np.expm1(-hazard[rows]))
        return wanted

    def _alone(self, model: HazardModel, columns: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """The best hazard of each component, added alone, and its gain."""
        said, many = self.said, len(columns)
        rows = np.concatenate([said.of(int(column)) for column in columns])
        place = np.repeat(np.arange(many), np.diff(said.by_component.indptr)[columns])
        n, e, added, units = said.n[rows], said.e[rows], model.added[rows], said.units[columns]
        hazard = np.minimum(0.7 * said.failures[columns] / units, 3.0)
        for _ in range(8):
            told = hear(n, e, added + hazard[place], model.ground)
            slope = np.bincount(place, told.pull, many) - units
            step = slope / np.maximum(np.bincount(place, told.grip, many), 1e-300)
            hazard = np.clip(hazard + step, hazard / 4, np.minimum(hazard * 4, MOST_HAZARD))
        brought = gain(n, e, added + hazard[place], model.ground) - model.base[rows]
        return hazard, np.bincount(place, brought, many) - units * hazard

    def _partial(self, model: HazardModel) -> list[tuple[Term, float]]:
        """Components that may fail on a part of their paths, the likeliest first, with a hazard to start from."""
        said = self.said
        own = -np.log1p(-np.minimum(said.e, said.n - 0.5) / said.n)
        heat = gain(said.n, said.e, model.added + own, model.ground) - model.base - said.n * own
        paths = np.maximum(said.paths, 1)
        worth = np.full(self.window.n_components, -np.inf)
        for level in _HOT:
            hot = (heat > level).astype(np.float64)
            many = said.incidence.T @ hot
            brought = said.incidence.T @ (heat * hot) - _spelled(many, paths) - self.price
            fits = self.candidate & (many > 1) & (many <= _MOST_HOT * paths)
            worth = np.maximum(worth, np.where(fits, brought - self.solver.partial_surcharge, -np.inf))
        order = np.argsort(-worth, kind="stable")[: _TRIED + 2]
        found = (self._hot_paths(model, int(column), heat) for column in order if worth[column] > 0)
        return [one for one in found if one is not None]

    def _hot_paths(self, model: HazardModel, column: int, heat: Floats) -> tuple[Term, float] | None:
        """Split a component's paths into hot and cold by their likelihood, from a first guess; None if that fails."""
        said, rows = self.said, self.said.of(column)
        n, e, paths = said.n[rows], said.e[rows], float(said.paths[column])
        hot = heat[rows] > _HOT[0]
        hazard = 0.0
        for _ in range(6):
            if hot.sum() < 2:
                return None
            hazard = -np.log1p(-min(e[hot].sum() / n[hot].sum(), 0.999))
            share = min(hot.sum() / paths, _MOST_HOT)
            brought = gain(n, e, model.added[rows] + hazard, model.ground) - model.base[rows] - n * hazard
            hot = brought > np.log((1 - share) / share)
        many = int(hot.sum())
        if many < 2 or many > _MOST_HOT * paths:
            return None
        price = (
            self.price[column] + self.solver.partial_surcharge + float(_spelled(np.float64(many), np.float64(paths)))
        )
        return Term(column, rows[hot], float(n[hot].sum()), price, partial=True), float(hazard)


def _key(terms: Iterable[Term]) -> frozenset[tuple[int, bytes]]:
    """What tells sets of terms apart, whatever their order."""
    return frozenset((term.column, term.rows.tobytes() if term.partial else b"") for term in terms)


def _top(ranking: Floats) -> NDArray[np.intp]:
    """The places of the largest positive values; of equal ones the first."""
    able = np.flatnonzero(ranking > 0)
    return able[np.argsort(-ranking[able], kind="stable")[:_SHORTLIST]]


def _spelled(hot: NDArray[np.float64] | np.float64, paths: NDArray[np.float64] | np.float64) -> Floats:
    """Nats that it takes to say which of the paths are hot."""
    share = np.minimum(hot / paths, 1.0)
    nats: Floats = paths * (entr(share) + entr(1 - share))
    return nats


def _verdict(window: Window, model: HazardModel, place: int, strength: float) -> Suspect:
    term = model.terms[place]
    rates = (float(-np.expm1(-model.hazard[place])), *_interval(model, place))
    hot = model.said.rows[term.rows] if term.partial else None
    return suspect(window, term.column, strength, rates=rates, hot=hot)


def _interval(model: HazardModel, place: int) -> tuple[float, float]:
    """Where the likelihood of one rate, all else held, is 1.92 nats below its top."""
    term, top = model.terms[place], float(model.hazard[place])
    n, e = model.said.n[term.rows], model.said.e[term.rows]
    others = model.added[term.rows] - top

    def lost(hazard: float) -> float:
        nats = (model.base[term.rows] - gain(n, e, others + hazard, model.ground)).sum() + (hazard - top) * term.units
        return float(nats) - _LIKELIHOOD_95

    return float(-np.expm1(-_root(lost, top, 0.0))), float(-np.expm1(-_root(lost, top, MOST_HAZARD)))


def _root(lost: Callable[[float], float], inside: float, outside: float) -> float:
    """Where `lost` crosses 0 between the two ends, to a part in 10^4; the outer end where it does not.

    Source: M. Dowell, P. Jarratt, BIT 11, 1971 (the Illinois rule).
    """
    low, high = lost(inside), lost(outside)
    if high <= 0:
        return outside
    kept = 0  # which end the last step left where it was: 1 the outer, -1 the inner
    for _ in range(60):
        middle = outside - high * (outside - inside) / (high - low)
        here = lost(middle)
        if abs(here) < _CLOSE or abs(outside - inside) < 1e-4 * abs(middle):
            return middle
        if here > 0:
            outside, high, low = middle, here, low / 2 if kept == -1 else low
            kept = -1
        else:
            inside, low, high = middle, here, high / 2 if kept == 1 else high
            kept = 1
    return (inside + outside) / 2
