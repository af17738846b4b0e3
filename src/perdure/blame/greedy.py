"""Greedy maximum likelihood with a bursty background: the default solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from perdure.blame.background import MOST_HAZARD, Background, gain, path_evidence
from perdure.blame.equivalence import representatives
from perdure.blame.failing_paths import FailingPaths
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
_HOPE = 8.0  # nats that a component may lack as long as the background still explains its failures
_PROGRESS = 0.01  # nats of worth by which a change must better the model


@dataclass(frozen=True, slots=True)
class Greedy:
    """Binomial likelihood, a free rate per culprit, a fitted background, black holes on a part of the paths.

    Claim: names every culprit whose log likelihood ratio is above its price, and nobody else, also where failures come
    in bursts, where culprits mask each other, and where only a part of a component's paths is concerned.

    The likelihood is that of `perdure.blame.background`, ``p_i = 1 - exp(-(b g_i + c / n_i + sum_{j in A} a_j
    x_ij))``. The set A grows by the component of the largest gain, as long as that is above ``log M_t + log T +
    surcharge`` (M_t components in its tier, T tiers); after each step all hazards and the background are refitted and
    terms that no longer pay are dropped. A component of P paths that fails on K of them only pays ``P H(K / P)`` nats
    more, for saying which (H: entropy). Candidates are ranked by ``E log(E / mu) - (E - mu)`` and by the score test,
    then tried exactly.

    The price is what it takes to name one component of T tiers, first the tier and then the component: if nobody is to
    blame, the sum over all components of ``exp(-price)`` is ``exp(-surcharge)``, whatever their number. Strength is the
    gain in nats beyond the price. A component that fails on one path alone is never named: one path is no pattern.

    A round costs a few sparse products and one exact trial of at most 48 candidates, all over the failing paths; there
    are as many rounds as culprits, 64 at most. The same window gives the same verdict: nothing is drawn.

    Do not use it where paths do not fail independently given their components: it would name what they share.

    Source: score test, EM and penalty as in a likelihood scan (M. Kulldorff, Commun. Stat. 26, 1997); Flock
    (CoNEXT'23) for greedy maximum likelihood; the background, its reduction and the price of partial failure are ours.

    >>> from perdure.blame.window import window
    >>> pairs = [(row, 4 + column) for row in range(4) for column in range(4)]  # row 1 fails, at one unit in ten
    >>> starts, crossed = np.arange(17) * 2, np.ravel(pairs)
    >>> one = Greedy().solve(window(starts, crossed, np.full(16, 100), [10 * (row == 1) for row, _ in pairs]))[0]
    >>> one.component, one.kind, round(one.rate, 2)
    (1, 'gray', 0.1)
    """

    surcharge: float = 6.0  # nats; e^-6 bounds the chance of one false blame a window by about 1 in 400
    partial_surcharge: float = 3.0  # nats on top, of a component that fails on some of its paths
    least_rate: float = 5e-4  # nobody is blamed for less
    name: str = "greedy"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects by strength in nats, the largest first; none where no path failed."""
        failing = FailingPaths(window)
        if not len(failing.n):
            return ()
        search = _Search(self, window, failing)
        model = search.best()
        found = [(model.brings(place), place) for place in range(len(model.terms))]
        return tuple(_verdict(window, model, place, strength) for strength, place in sorted(found, reverse=True))


class _Search:
    """The search through one window: forward steps with deletion, then black holes.

    `price` (n_components,) is in nats, `candidate` says which components may be named: one of each equivalence class,
    with two failing paths at least. Models are kept by their set of terms, for pruning comes back to sets that were
    fitted before; a model of a set is the first fit of it, wherever that began.
    """

    def __init__(self, solver: Greedy, window: Window, failing: FailingPaths) -> None:
        self.solver, self.window, self.failing = solver, window, failing
        names, tier = np.unique(window.tiers, return_inverse=True)
        self.price: Floats = np.log(np.bincount(tier))[tier] + np.log(len(names)) + solver.surcharge
        candidate = representatives(window) == np.arange(window.n_components)
        self.candidate = candidate & (np.diff(failing.by_component.indptr) > 1)  # one path is not a pattern

        self._fitted: dict[frozenset[tuple[int, bytes]], HazardModel] = {}

    def best(self) -> HazardModel:
        """The model of the largest worth that was found.

        Whole components first. Then black holes, looked for on top of that model and on top of none: a whole component
        may have been blamed for the failures of a black hole, which then shows only where nobody is blamed yet.
        """
        failing = self.failing
        misbooked = 0.1 * len(failing.n) / failing.counts.sum()
        nobody = fit(failing, (), np.zeros(0), Background(failing.overall, misbooked, 1.0))
        self._fitted[frozenset()] = nobody
        model = self._grow(nobody)
        for seen in (model, nobody):
            for term, hazard in self._partial(seen)[:_TRIED]:
                model = self._with_partial(model, term, hazard)
        return model

    def _with_partial(self, model: HazardModel, term: Term, hazard: float) -> HazardModel:
        """The better of the model and the one with a black hole in it, which takes the place of the same component as a
        whole.

        Two tests spare the fit: the worth with all else held is far too low, or pruning could not save prices enough.
        """
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
        """What the model would be worth with `term` in the place of `same`, all else as it is; a refit adds to that."""
        failing, added, worth = self.failing, model.added.copy(), model.worth
        for place in same:
            old = model.terms[place]
            added[old.rows] -= model.hazard[place]
            worth += model.hazard[place] * old.units + old.price
        added[term.rows] += hazard
        brought = gain(failing.n, failing.e, np.maximum(added, 0.0), model.background) - model.base
        return float(worth + brought.sum() - hazard * term.units - term.price)

    def _grow(self, model: HazardModel) -> HazardModel:
        """Add whole components while they pay.

        A candidate is fitted even if it lacks up to 8 nats, for with it the background falls and may pay the
        difference: failures of a broken component are the background's as long as nobody is blamed. One that does not
        better the model after the refit is not tried again in this pass.
        """
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
            whole = Term(column, self.failing.of(column), self.failing.units[column], self.price[column])
            tried = self._prune(self._plus(model, whole, hazard[top]))
            if tried.worth > model.worth + _PROGRESS:
                model = tried
            else:
                passed_over.append(column)
        return model

    def _plus(self, model: HazardModel, term: Term, hazard: float) -> HazardModel:
        """The model with one more term, from the fits kept."""
        key = _key((*model.terms, term))
        if key not in self._fitted:
            self._fitted[key] = model.plus(term, hazard)
        return self._fitted[key]

    def _without(self, model: HazardModel, places: Sequence[int]) -> HazardModel:
        """The model without the terms at these places, from the fits kept."""
        key = _key([term for place, term in enumerate(model.terms) if place not in places])
        if key not in self._fitted:
            self._fitted[key] = model.without(places)
        return self._fitted[key]

    def _spared(self, model: HazardModel) -> float:
        """The most that dropping terms can add to the worth: the prices of all that may be dropped."""
        return sum(term.price for place, term in enumerate(model.terms) if self._net(model, place) <= _SURE)

    def _prune(self, model: HazardModel) -> HazardModel:
        """Drop terms that do not pay, the weakest first.

        Needed because a term that was best at its step may be explained away by a later pair: two gray storage clusters
        look like the spine above both until both are named. Tries the three weakest a round, and none that is worth
        over 60 nats.
        """
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
        """What a term is worth, its price paid; -1 for a rate below the least, or for a single failing path."""
        holds = model.hazard[place] >= self.solver.least_rate and len(model.terms[place].rows) > 1
        return model.brings(place) if holds else -1.0

    def _shortlist(self, model: HazardModel, passed_over: list[int]) -> NDArray[np.intp]:
        """The components that may have the largest gain, ascending, 48 at most.

        By two rankings, for each misses what the other sees: the score test is the gain for a small hazard, the scan
        statistic compares all failures of a component with those expected, and holds for large rates.
        """
        failing, evidence = self.failing, path_evidence(self.failing.n, self.failing.e, model.added, model.background)
        slope = failing.incidence.T @ evidence.slope - failing.units
        score = np.where(slope > 0, slope / np.sqrt(np.maximum(failing.incidence.T @ evidence.curvature, 1e-300)), 0)
        expected = np.maximum(self._expected(model), 1e-9)
        observed = np.maximum(failing.failures, 1e-9)
        scan = np.where(observed > expected, observed * np.log(observed / expected) - (observed - expected), 0)
        for ranking in (score, scan):
            ranking[~self.candidate] = 0
            ranking[[*(term.column for term in model.terms), *passed_over]] = 0
        best = np.union1d(_top(score), _top(scan))
        taken: NDArray[np.intp] = best[((score > 0) & (slope > 0))[best]]
        return taken

    def _expected(self, model: HazardModel) -> Floats:
        """(n_components,) failures on each component's paths under the model, g at its mean.

        Paths without blame are totals; only the paths of blamed components are summed one by one.
        """
        failing, background, window = self.failing, model.background, self.window
        expected: Floats = background.misbooked * failing.paths - failing.units * np.expm1(-background.rate)
        if model.terms:
            hazard = np.zeros(window.n_paths)
            for term, more in zip(model.terms, model.hazard, strict=True):
                hazard[failing.rows[term.rows] if term.partial else window.rows(term.column)] += more
            rows = np.flatnonzero(hazard)  # all others fail by the background alone
            expected -= window.incidence[rows].T @ (
                window.units[rows] * np.exp(-background.rate) * np.expm1(-hazard[rows])
            )
        return expected

    def _alone(self, model: HazardModel, columns: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """The best hazard of each component, added alone, and its gain in nats: (n_columns,) each.

        One-dimensional Newton for all candidates at once, eight steps, each within a factor of four. All else is held.
        """
        failing, many = self.failing, len(columns)
        rows = np.concatenate([failing.of(int(column)) for column in columns])
        place = np.repeat(np.arange(many), np.diff(failing.by_component.indptr)[columns])
        n, e, added, units = failing.n[rows], failing.e[rows], model.added[rows], failing.units[columns]
        hazard = np.minimum(0.7 * failing.failures[columns] / units, 3.0)
        for _ in range(8):
            evidence = path_evidence(n, e, added + hazard[place], model.background)
            slope = np.bincount(place, evidence.slope, many) - units
            step = slope / np.maximum(np.bincount(place, evidence.curvature, many), 1e-300)
            hazard = np.clip(hazard + step, hazard / 4, np.minimum(hazard * 4, MOST_HAZARD))
        brought = gain(n, e, added + hazard[place], model.background) - model.base[rows]
        return hazard, np.bincount(place, brought, many) - units * hazard

    def _partial(self, model: HazardModel) -> list[tuple[Term, float]]:
        """Components that may fail on a part of their paths, the likeliest first, with a hazard to start from.

        `heat` is what a path would bring at its own best rate, and bounds what any component can bring there. At three
        levels of heat, the hot paths of each component are summed and the price of naming them taken off; a component
        whose sum is positive and at most 60 % of whose paths are hot is split exactly.
        """
        failing = self.failing
        own = -np.log1p(-np.minimum(failing.e, failing.n - 0.5) / failing.n)
        heat = gain(failing.n, failing.e, model.added + own, model.background) - model.base - failing.n * own
        paths = np.maximum(failing.paths, 1)
        worth = np.full(self.window.n_components, -np.inf)
        for level in _HOT:
            hot = (heat > level).astype(np.float64)
            many = failing.incidence.T @ hot
            brought = failing.incidence.T @ (heat * hot) - _spelled(many, paths) - self.price
            fits = self.candidate & (many > 1) & (many <= _MOST_HOT * paths)
            worth = np.maximum(worth, np.where(fits, brought - self.solver.partial_surcharge, -np.inf))
        order = np.argsort(-worth, kind="stable")[: _TRIED + 2]
        found = (self._hot_paths(model, int(column), heat) for column in order if worth[column] > 0)
        return [one for one in found if one is not None]

    def _hot_paths(self, model: HazardModel, column: int, heat: Floats) -> tuple[Term, float] | None:
        """Split a component's paths into hot and cold, from a first guess; None where under two or too many are hot.

        Six rounds of hard EM for a mixture of two classes: the rate of the hot paths, then the paths for which that
        rate is likelier than none by the odds of being cold.
        """
        failing, rows = self.failing, self.failing.of(column)
        n, e, paths = failing.n[rows], failing.e[rows], float(failing.paths[column])
        hot = heat[rows] > _HOT[0]
        hazard = 0.0
        for _ in range(6):
            if hot.sum() < 2:
                return None
            hazard = -np.log1p(-min(e[hot].sum() / n[hot].sum(), 0.999))
            share = min(hot.sum() / paths, _MOST_HOT)
            brought = gain(n, e, model.added[rows] + hazard, model.background) - model.base[rows] - n * hazard
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
    """Nats that it takes to say which of the paths are hot: ``P H(hot / P)``, 0 for none and for all."""
    share = np.minimum(hot / paths, 1.0)
    nats: Floats = paths * (entr(share) + entr(1 - share))
    return nats


def _verdict(window: Window, model: HazardModel, place: int, strength: float) -> Suspect:
    """A term as a suspect, its hazard as a rate."""
    term = model.terms[place]
    rates = (float(-np.expm1(-model.hazard[place])), *_interval(model, place))
    hot = model.failing.rows[term.rows] if term.partial else None
    return suspect(window, term.column, strength, rates=rates, hot=hot)


def _interval(model: HazardModel, place: int) -> tuple[float, float]:
    """Where the likelihood of one rate, all else held, is 1.92 nats below its top: half the 95 % point of chi square
    with one degree of freedom.

    All else held, it is too short where two suspects share their paths.
    """
    term, top = model.terms[place], float(model.hazard[place])
    n, e = model.failing.n[term.rows], model.failing.e[term.rows]
    others = model.added[term.rows] - top

    def lost(hazard: float) -> float:
        nats = (model.base[term.rows] - gain(n, e, others + hazard, model.background)).sum() + (
            hazard - top
        ) * term.units
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
