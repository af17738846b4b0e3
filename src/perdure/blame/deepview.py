"""Deepview: sparse regression of the log success rates on the components, then a test of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import t as student

from perdure.blame.equivalence import representatives
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Floats, Window
from perdure.errors import InputError

_SWEEPS = 10_000
_EXACT, _ROUGH = 1e-10, 1e-5  # the largest move of a coefficient, of the largest of all, at which sweeps end
_NOTHING = 1e-6  # a coefficient below this share of the largest is rounding
_MOST_ACTIVE = 400


def lasso(
    incidence: sparse.csr_array,
    target: Floats,
    penalty: float,
    start: Floats | None = None,
    tolerance: float = _EXACT,
) -> Floats:
    """Minimise ``||y - X b||^2 + 2 penalty sum(b)`` over ``b >= 0`` by coordinate descent on an active set.

    Returns (n_components,) b. Of components alike one takes it all. Raises `InputError` if the sweeps run out.

    Source: J. Friedman, T. Hastie, R. Tibshirani, J. Stat. Software 33, 2010 (covariance updates).
    """
    X, y = incidence, target
    b = np.zeros(X.shape[1]) if start is None else start.copy()
    square = X.T @ np.ones(len(y))  # of 0/1 columns
    while True:
        slope = X.T @ (y - X @ b)
        entering = np.flatnonzero((b == 0) & (slope > penalty * (1 + tolerance) + tolerance) & (square > 0))
        active = np.union1d(np.flatnonzero(b), entering[np.argsort(-slope[entering], kind="stable")[:50]])
        if not len(entering) and start is not None:
            return b
        among = X[:, active]
        b[active] = _descend((among.T @ among).toarray(), among.T @ y, penalty, b[active], tolerance)
        start = b


def _descend(gram: Floats, moment: Floats, penalty: float, b: Floats, tolerance: float) -> Floats:
    slope = moment - gram @ b
    for _ in range(_SWEEPS):
        largest = 0.0
        for j in range(len(b)):
            new = max(0.0, b[j] + (slope[j] - penalty) / gram[j, j])
            if new != b[j]:
                slope -= gram[j] * (new - b[j])
                largest, b[j] = max(largest, abs(new - b[j])), new
        if largest <= tolerance * max(b.max(initial=0.0), 1e-300):
            return b
    raise InputError("deepview", f"still moving after {_SWEEPS} sweeps", "Use --solver greedy for this window")


@dataclass(frozen=True, slots=True)
class Deepview:
    """Lasso of ``y_i = log(1 - e_i / n_i)`` on the components, beta <= 0; blamed where beta is far below the mean.

    Claim: few components explain the failures, each with one effect on all of its paths. Finds failures of storage,
    network and ToRs alike where paths have units enough.

    ``beta = argmin ||y - X beta||^2 + 2 lambda ||beta||_1`` over ``beta <= 0``; lambda by cross-validation over the
    paths with the one-standard-error rule. Every beta_j < 0 is refitted without penalty and tested one-sided,
    ``t = (beta_j - mean(beta)) / se_j``. Where ``e = n``, e is taken as ``n - 0.5``.

    Do not use it with tens of thousands of components, with few units a path, or for black holes: an unweighted
    square trusts one unit as much as 300, so it blames the innocent there.

    Source: Q. Zhang et al., "Deepview", NSDI 2018. Folds, penalties and the one-standard-error rule are ours; the
    path of penalties ends where 400 components are active.
    """

    folds: int = 5
    penalties: int = 25
    level: float = 0.01  # of the test
    name: str = "deepview"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        used = np.flatnonzero(window.units > 0)
        n, e = window.units[used], np.minimum(window.failures[used], window.units[used] - 0.5)
        loss = -np.log1p(-e / n)
        if not loss.any():
            return ()
        distinct = np.unique(representatives(window))
        X = window.incidence[used][:, distinct]
        penalty = self._penalty(X, loss)
        active = np.flatnonzero(lasso(X, loss, penalty, tolerance=_ROUGH) > 0)
        found = [(strength, distinct[active[k]]) for k, strength in self._tested(X, loss, active)]
        return tuple(suspect(window, int(column), strength) for strength, column in sorted(found, reverse=True))

    def _penalty(self, X: sparse.csr_array, y: Floats) -> float:
        """The largest penalty whose error is within one standard error of the least."""
        ladder = float((X.T @ y).max()) * np.geomspace(1, 1e-3, self.penalties)
        fold = np.arange(len(y)) % self.folds
        parts = [(X[fold != k], y[fold != k], X[fold == k], y[fold == k]) for k in range(self.folds)]
        b = [np.zeros(X.shape[1]) for _ in parts]
        errors: list[NDArray[np.float64]] = []
        for penalty in ladder:
            b = [lasso(train, z, penalty, was, _ROUGH) for (train, z, _, _), was in zip(parts, b, strict=True)]
            rows = [np.mean((z - test @ one) ** 2) for (_, _, test, z), one in zip(parts, b, strict=True) if len(z)]
            errors.append(np.array(rows))
            least = int(np.argmin([error.mean() for error in errors]))
            if max(np.count_nonzero(one) for one in b) > _MOST_ACTIVE:
                break
        best = errors[least]
        bound = best.mean() + best.std() / np.sqrt(max(1, len(best) - 1))
        return float(ladder[next(k for k, error in enumerate(errors) if error.mean() <= bound)])

    def _tested(self, X: sparse.csr_array, y: Floats, active: NDArray[np.intp]) -> list[tuple[int, float]]:
        """Which of the active components fail the test, with how much: (place, t)."""
        among, free = X[:, active], len(y) - len(active)
        if not len(active) or free <= 0:
            return []
        inverse = np.linalg.pinv((among.T @ among).toarray())
        beta = inverse @ (among.T @ y)  # -beta of the paper
        spread = np.sqrt(np.maximum(np.diag(inverse) * ((y - among @ beta) ** 2).sum() / free, 1e-300))
        t = (beta - beta.sum() / X.shape[1]) / spread
        bound = student.ppf(1 - self.level, free)
        return [(int(k), float(t[k])) for k in np.flatnonzero((t > bound) & (beta > _NOTHING * beta.max()))]
