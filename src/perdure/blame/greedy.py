"""Greedy maximum likelihood."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from numpy.typing import NDArray

from perdure.blame.ground import MOST_HAZARD, SHAPES, Ground, gain, hear, silence
from perdure.blame.window import Floats, Window

SHORTLIST = 40


class Speaking:
    """What a window says once paths without failures are folded into totals."""

    def __init__(self, window: Window) -> None:
        self.rows = np.flatnonzero(window.failures > 0)
        self.n, self.e = window.units[self.rows], window.failures[self.rows]
        self.incidence = window.incidence[self.rows]
        self.by_component = self.incidence.tocsc()
        self.units = window.totals(window.units)
        self.paths = window.totals((window.units > 0).astype(np.float64))
        self.failures = self.incidence.T @ self.e
        self.sizes, self.counts = np.unique(window.units[window.units > 0], return_counts=True)
        (self.pair_n, self.pair_e), self.pair = np.unique(np.stack([self.n, self.e]), axis=1, return_inverse=True)
        self.pair = self.pair.ravel()

    def of(self, column: int) -> NDArray[np.int32]:
        by = self.by_component
        return by.indices[by.indptr[column] : by.indptr[column + 1]]


@dataclass(frozen=True, slots=True)
class Term:
    column: int
    rows: NDArray  # failing rows that it explains
    units: float
    price: float
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    terms: tuple[Term, ...]
    hazard: Floats
    ground: Ground
    likelihood: float

    @property
    def worth(self) -> float:
        return self.likelihood - sum(t.price for t in self.terms)


def fit(said: Speaking, terms: tuple[Term, ...], start: Floats, ground: Ground) -> Model:
    m = len(terms)
    member = np.zeros((len(said.n), m), bool)
    for t, term in enumerate(terms):
        member[term.rows, t] = True
    if m:
        mix = member @ np.random.default_rng(0).random(m)
        _, pattern = np.unique(mix, return_inverse=True)
        key = pattern * len(said.pair_n) + said.pair
    else:
        key = said.pair
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    n, e, X = said.n[first], said.e[first], member[first].astype(float)
    N = np.array([t.units for t in terms])
    a = start.copy()
    size, many = said.sizes, said.counts
    paths, failing = many.sum(), len(said.n)
    P_n = size * many

    def total(a, ground):
        return silence(size, many, ground) - N @ a + count @ gain(n, e, X @ a, ground)

    previous = -np.inf
    for rnd in range(12):
        added = X @ a
        for _ in range(3):
            told = hear(n, e, added, ground)
            k = ground.shape
            quiet = (P_n * k / (k + size * ground.rate)).sum() - count @ (n * k / (k + n * ground.rate))
            rate = ground.rate * (count @ told.drawn) / (count @ (n * told.wave) + quiet)
            mis = ground.misbooked * (count @ (told.pull / n)) / paths
            ground = Ground(max(rate, 0.1 / P_n.sum()), min(max(mis, 1e-9), 1.0), k)
        at = SHAPES.index(ground.shape)
        near = [SHAPES[i] for i in range(max(0, at - 1), min(len(SHAPES), at + 2))] if rnd else SHAPES
        ground = max((replace(ground, shape=k) for k in near), key=lambda g: total(a, g))
        for _ in range(4 if m else 0):
            told = hear(n, e, X @ a, ground)
            slope = X.T @ (count * told.pull) - N
            curve = (X * (count * told.grip)[:, None]).T @ X
            free = (a > 1e-7) | (slope > 0)
            step = np.zeros(m)
            f = np.flatnonzero(free)
            if len(f):
                H = curve[np.ix_(f, f)]
                H[np.diag_indices(len(f))] *= 1 + 1e-6
                H[np.diag_indices(len(f))] += 1e-9
                step[f] = np.linalg.solve(H, slope[f])
            base = total(a, ground)
            scale = 1.0
            while scale > 1e-3:
                new = np.clip(a + scale * step, np.minimum(a * 0.1, 1e-7), np.minimum(a * 5 + 1e-3, MOST_HAZARD))
                if total(new, ground) >= base:
                    break
                scale /= 4
            else:
                break
            done = np.abs(new - a).max() < 1e-4 * a.max()
            a = new
            if done:
                break
        now = total(a, ground)
        if now - previous < 0.02:
            break
        previous = now
    return Model(terms, a, ground, now)


def added_to_rows(said, model):
    out = np.zeros(len(said.n))
    for t, a in zip(model.terms, model.hazard):
        out[t.rows] += a
    return out


def single(said, added, ground, base, columns):
    """Best hazard and gain for each of columns."""
    starts = said.by_component.indptr
    rows = np.concatenate([said.of(j) for j in columns]) if len(columns) else np.zeros(0, int)
    lengths = (starts[1:] - starts[:-1])[columns]
    seg = np.repeat(np.arange(len(columns)), lengths)
    n, e, have = said.n[rows], said.e[rows], added[rows]
    N = said.units[columns]
    a = np.bincount(seg, e, len(columns)) / N * 0.7
    a = np.minimum(a, 3.0)
    for _ in range(8):
        told = hear(n, e, have + a[seg], ground)
        slope = np.bincount(seg, told.pull, len(columns)) - N
        curve = np.bincount(seg, told.grip, len(columns))
        a = np.clip(a + slope / np.maximum(curve, 1e-300), a / 4, np.minimum(a * 4, MOST_HAZARD))
    got = np.bincount(seg, gain(n, e, have + a[seg], ground) - base[rows], len(columns)) - N * a
    return a, got


def entropy(x):
    x = np.clip(x, 1e-12, 1 - 1e-12)
    return -x * np.log(x) - (1 - x) * np.log(1 - x)


@dataclass(frozen=True)
class Greedy:
    surcharge: float = 6.0
    extra_partial: float = 3.0
    least: float = 5e-4

    def prices(self, window):
        names, tier = np.unique(window.tiers, return_inverse=True)
        return np.log(np.bincount(tier))[tier] + np.log(len(names)) + self.surcharge

    def search(self, window, verbose=False):
        said = Speaking(window)
        if not len(said.n):
            return said, None
        price = self.prices(window)
        total = window.units.sum()
        ground = Ground(said.e.sum() / total, 0.1 * len(said.n) / window.n_paths, 1.0)
        model = fit(said, (), np.zeros(0), ground)
        null = model
        model = self.grow(window, said, price, model, verbose)
        for start in (model, null):
            for term, a in self.partials(window, said, price, start)[:6]:
                if any(t.column == term.column and t.partial for t in model.terms):
                    continue
                keep = [i for i, t in enumerate(model.terms) if t.column != term.column]
                trial = fit(said, tuple(model.terms[i] for i in keep) + (term,), np.append(model.hazard[keep], a), model.ground)
                trial = self.prune(said, trial)
                if trial.worth > model.worth + 0.5:
                    trial = self.grow(window, said, price, trial, verbose)
                if verbose: print('   partial try', term.column, len(term.rows), term.price, trial.worth - model.worth)
                if trial.worth > model.worth + 0.5:
                    model = trial
        return said, model

    def grow(self, window, said, price, model, verbose=False):
        banned = set()
        for _ in range(64):
            added = added_to_rows(said, model)
            told_base = gain(said.n, said.e, added, model.ground)
            hazard = np.full(window.n_paths, model.ground.rate)
            for t, a in zip(model.terms, model.hazard):
                hazard[said.rows[t.rows] if t.partial else window.rows(t.column)] += a
            mu = window.totals(-window.units * np.expm1(-hazard) + model.ground.misbooked)
            E = said.failures
            with np.errstate(divide="ignore", invalid="ignore"):
                rank = np.where(E > mu, E * np.log(np.maximum(E, 1e-9) / np.maximum(mu, 1e-9)) - (E - mu), 0)
            have = [t.column for t in model.terms]
            rank[have] = 0
            rank[list(banned)] = 0
            rank = rank - price
            best = np.argsort(-rank, kind="stable")[:SHORTLIST]
            best = np.sort(best[rank[best] > 0])
            if not len(best):
                return model
            a, got = single(said, added, model.ground, told_base, best)
            net = got - price[best]
            net[a < self.least] = -1
            i = int(np.argmax(net))
            if net[i] <= 0:
                return model
            j = int(best[i])
            term = Term(j, said.of(j), said.units[j], price[j])
            trial = fit(said, (*model.terms, term), np.append(model.hazard, a[i]), model.ground)
            trial = self.prune(said, trial)
            if verbose: print('   add', j, window.tiers[j], 'a %.4f'%a[i], 'net %.1f'%net[i], 'worth', trial.worth - model.worth, trial.ground, [t.column for t in trial.terms])
            if trial.worth <= model.worth + 0.01:
                banned.add(j)
                continue
            model = trial
        return model

    def prune(self, said, model):
        while model.terms:
            added = added_to_rows(said, model)
            base = gain(said.n, said.e, added, model.ground)
            drop = []
            for t, a in zip(model.terms, model.hazard):
                g = (base[t.rows] - gain(said.n[t.rows], said.e[t.rows], added[t.rows] - a, model.ground))
                drop.append(g.sum() - a * t.units - t.price if a >= self.least and len(t.rows) > 1 else -1.0)
            order = np.argsort(drop, kind="stable")
            for i in (x for x in order[:3] if drop[x] < 60):
                keep = [x for x in range(len(model.terms)) if x != i]
                trial = fit(said, tuple(model.terms[x] for x in keep), model.hazard[keep], model.ground)
                if drop[i] < 0 or trial.worth > model.worth:
                    model = trial
                    break
            else:
                return model
        return model

    def partials(self, window, said, price, model):
        added = added_to_rows(said, model)
        own = -np.log1p(-np.minimum(said.e, said.n - 0.5) / said.n)
        base = gain(said.n, said.e, added, model.ground)
        s = gain(said.n, said.e, added + own, model.ground) - base - said.n * own
        s = np.maximum(s, 0)
        best = np.full(window.n_components, -np.inf)
        for level in (1.0, 3.0, 6.0):
            hot = s > level
            S, K = said.incidence.T @ (s * hot), said.incidence.T @ hot.astype(float)
            P = np.maximum(said.paths, 1)
            worth = S - P * entropy(K / P) - price - self.extra_partial
            worth[(K < 2) | (K > 0.6 * P)] = -np.inf
            best = np.maximum(best, worth)
        out = []
        for j in np.argsort(-best, kind="stable")[:8]:
            if best[j] <= 0:
                break
            rows = said.of(j)
            P = said.paths[j]
            pick = rows[s[rows] > 1.0]
            for _ in range(6):
                if len(pick) < 2:
                    break
                h = -np.log1p(-min(said.e[pick].sum() / said.n[pick].sum(), 0.999))
                g = gain(said.n[rows], said.e[rows], added[rows] + h, model.ground) - base[rows] - said.n[rows] * h
                pi = np.clip(len(pick) / P, 1e-6, 0.6)
                new = rows[g > np.log((1 - pi) / pi)]
                if len(new) == len(pick):
                    break
                pick = new
            if len(pick) < 2 or len(pick) > 0.6 * P:
                continue
            cost = P * entropy(len(pick) / P) + price[j] + self.extra_partial
            out.append((Term(int(j), pick, said.n[pick].sum(), cost, True), h))
        return out
