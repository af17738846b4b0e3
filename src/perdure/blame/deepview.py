"""Deepview: sparse regression of the log success rates on the components, then a test of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtrit

from perdure.blame.equivalence import representatives
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Floats, Window
from perdure.errors import InputError

_SWEEPS = 10_000
_EXACT, _ROUGH = 1e-10, 1e-5  # the largest move of a coefficient, of the largest of all, at which sweeps end
_NOTHING = 1e-6  # a coefficient below this share of the largest is rounding
_MOST_ACTIVE = 400
_ENTERING = 50  # components at once that may join the active ones

_Sweep = Callable[[Floats, Floats, float, Floats, float, int], bool]


def lasso(
    incidence: sparse.csr_array,
    target: Floats,
    penalty: float,
    weights: Floats | None = None,
    tolerance: float = _EXACT,
) -> Floats:
    """Minimise ``sum_i w_i (y_i - x_i b)^2 + 2 penalty sum(b)`` over ``b >= 0``; the weights are 1 if not given.

    Parameters
    ----------
    incidence : (n_paths, n_components) 0 and 1.
    target : (n_paths,) y, 0 or more: for `Deepview` the loss ``-log(1 - e / n)``.
    penalty : in the unit of ``w y``; from ``max(X.T (w y))`` upwards all of b is 0.
    tolerance : sweeps end where no coefficient moves by more than this share of the largest.

    Returns (n_components,) b, in the unit of y. At the optimum the slope ``x_j.T w (y - X b)`` is the penalty where b_j
    > 0 and at most the penalty elsewhere; columns are admitted until that holds. Of equal columns one takes the whole
    coefficient. Raises `InputError` if 10,000 sweeps do not settle it.

    >>> one_column = sparse.csr_array(np.ones((2, 1)))
    >>> lasso(one_column, np.array([0.5, 0.3]), 0.2).round(6)  # (0.5 + 0.3 - 0.2) / 2
    array([0.3])
    """
    return _Regression(incidence, target, np.ones(len(target)) if weights is None else weights).solve(
        penalty, tolerance
    )


class _Regression:
    """One Lasso, solved for smaller and smaller penalties, each from where the last one ended.

    Coordinate descent with the products of the active columns at hand: a sweep costs ``n_active^2``, not the entries of
    X. A column outside them joins where its slope is above the penalty, up to 50 at once, the steepest first; once none
    does, the optimality conditions hold for all columns. Any order of penalties is right, a falling one is fast.

    Invariants: ``b`` is 0 outside `active`; ``_gram[p, q]`` is ``x_p.T w x_q`` of the active columns in their order.

    Source: J. Friedman, T. Hastie, R. Tibshirani, J. Stat. Software 33, 2010 (covariance updates).
    """

    def __init__(self, incidence: sparse.csr_array, target: Floats, weights: Floats) -> None:
        self.X, self.by_column = incidence, incidence.tocsc()
        self.y, self.weights = target, weights
        self.active: NDArray[np.intp] = np.zeros(0, np.intp)
        self.b: Floats = np.zeros(incidence.shape[1])
        self._gram: Floats = np.zeros((0, 0))
        self._moment: Floats = incidence.T @ (weights * target)

    @property
    def most(self) -> float:
        """The least penalty at which nothing is active."""
        return float(self._moment.max())

    def solve(self, penalty: float, tolerance: float) -> Floats:
        """(n_components,) b at a penalty."""
        while True:
            a = self.active
            self.b[a] = _descend(self._gram, self._moment[a], penalty, self.b[a], tolerance)
            slope = self.X.T @ (self.weights * (self.y - self.X @ self.b))
            slope[a] = -np.inf
            entering = np.flatnonzero(slope > penalty * (1 + tolerance) + tolerance)
            if not len(entering):
                return self.b.copy()
            self._admit(entering[np.argsort(-slope[entering], kind="stable")[:_ENTERING]])

    def _admit(self, entering: NDArray[np.intp]) -> None:
        """Append columns to the active ones and extend their products; the old block is kept."""
        old, self.active = len(self.active), np.append(self.active, entering)
        gram = np.zeros((len(self.active),) * 2)
        gram[:old, :old] = self._gram
        new = self.by_column[:, entering]
        new.data = new.data * self.weights[new.indices]
        gram[:, old:] = (self.by_column[:, self.active].T @ new).toarray()
        gram[old:, :] = gram[:, old:].T
        self._gram = gram


def _descend(gram: Floats, moment: Floats, penalty: float, b: Floats, tolerance: float) -> Floats:
    """Sweep in place until b settles. Raises `InputError` if it does not."""
    if _sweep()(gram, moment, penalty, b, tolerance, _SWEEPS):
        return b
    raise InputError("deepview", f"still moving after {_SWEEPS} sweeps", "Use --solver greedy for this window")


@cache
def _sweep() -> _Sweep:
    """The descent, compiled where numba is installed (extra `sim`), else as plain Python."""
    if find_spec("numba") is None:
        return _plain_sweep
    import numba

    try:
        return cast("_Sweep", numba.njit(cache=True)(_plain_sweep))
    except RuntimeError:  # no folder that a cache can be written to
        return cast("_Sweep", numba.njit(_plain_sweep))


def _plain_sweep(gram: Floats, moment: Floats, penalty: float, b: Floats, tolerance: float, sweeps: int) -> bool:
    """Move each coefficient to its best until none moves by more than `tolerance` of the largest; False if sweeps run
    out.

    `slope` is kept at ``moment - gram @ b`` through every move, so a coefficient that stays costs one comparison.
    Written in the part of Python that numba compiles.
    """
    slope = moment - gram @ b
    for _ in range(sweeps):
        largest, top = 0.0, 1e-300
        for j in range(len(b)):
            new = max(0.0, b[j] + (slope[j] - penalty) / gram[j, j])
            if new != b[j]:
                slope -= gram[j] * (new - b[j])
                largest = max(largest, abs(new - b[j]))
                b[j] = new
            top = max(top, new)
        if largest <= tolerance * top:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Deepview:
    """Lasso of ``y_i = log(1 - e_i / n_i)`` on the components, beta <= 0; blamed where beta is far below the mean.

    Claim: few components explain the failures, each with one effect on all of its paths. Finds failures of storage,
    network and ToRs alike where paths have units enough.

    ``beta = argmin ||y - X beta||^2 + 2 lambda ||beta||_1`` over ``beta <= 0``; lambda by cross-validation over the
    paths with the one-standard-error rule. Every beta_j < 0 is refitted without penalty and tested one-sided,
    ``t = (beta_j - mean(beta)) / se_j``, at `level` over the number of components. Where ``e = n``, e is taken as
    ``n - 0.5``. `weighted` counts a path by its units instead of once.

    Do not use it with tens of thousands of components, with few units a path, or for black holes: an unweighted
    square trusts one unit as much as 300, so it blames the innocent there.

    Source: Q. Zhang et al., "Deepview", NSDI 2018. Folds, penalties, the one-standard-error rule, the division of the
    level and the weights are ours; the path of penalties ends where 400 components are active.
    """

    folds: int = 5
    penalties: int = 25
    level: float = 0.01  # of the test
    weighted: bool = False
    name: str = "deepview"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects by t, the largest first.

        Of components that cross the same paths the first alone is a column: equal columns have no coefficients of their
        own.
        """
        used = np.flatnonzero(window.units > 0)
        n, e = window.units[used], np.minimum(window.failures[used], window.units[used] - 0.5)
        loss = -np.log1p(-e / n)
        if not loss.any():
            return ()
        distinct = np.unique(representatives(window))
        X = window.incidence[used][:, distinct]
        weights = n / n.mean() if self.weighted else np.ones(len(n))
        active = np.flatnonzero(self._chosen(X, loss, weights) > 0)
        found = [(strength, distinct[active[k]]) for k, strength in self._tested(X, loss, weights, active)]
        return tuple(suspect(window, int(column), strength) for strength, column in sorted(found, reverse=True))

    def _chosen(self, X: sparse.csr_array, y: Floats, w: Floats) -> Floats:
        """b at the largest penalty whose error is within one standard error of the least."""
        whole = _Regression(X, y, w)
        ladder = whole.most * np.geomspace(1, 1e-3, self.penalties)
        fold = np.arange(len(y)) % self.folds
        parts = [fold == k for k in range(min(self.folds, len(y)))]
        trained = [(_Regression(X[~part], y[~part], w[~part]), float((~part).mean())) for part in parts]
        tests = [(X[part], y[part], w[part]) for part in parts]
        errors: list[NDArray[np.float64]] = []
        for penalty in ladder:
            found = [fold.solve(penalty * share, _ROUGH) for fold, share in trained]
            errors.append(np.array([_error(*test, b) for test, b in zip(tests, found, strict=True)]))
            least = int(np.argmin([error.mean() for error in errors]))
            if max(np.count_nonzero(b) for b in found) > _MOST_ACTIVE:
                break
        best = errors[least]
        bound = best.mean() + best.std() / np.sqrt(max(1, len(best) - 1))
        last = next(k for k, error in enumerate(errors) if error.mean() <= bound)
        return [whole.solve(penalty, _ROUGH) for penalty in ladder[: last + 1]][-1]

    def _tested(self, X: sparse.csr_array, y: Floats, w: Floats, active: NDArray[np.intp]) -> list[tuple[int, float]]:
        """Which of the active components pass the test, and their t: (place among the active, t).

        Ordinary (weighted) least squares on the active columns. The mean is over all components, of which the inactive
        count as 0, so a component is compared with a healthy network and not with the other suspects. The bound divides
        `level` by the number of components (Bonferroni): a fixed 1 % over hundreds of components blames several of them
        by chance.
        """
        among, free = X[:, active], len(y) - len(active)
        if not len(active) or free <= 0:
            return []
        inverse = np.linalg.pinv((among.T @ (among * w[:, None])).toarray())
        beta = inverse @ (among.T @ (w * y))  # -beta of the paper
        spread = np.sqrt(np.maximum(np.diag(inverse) * (w @ (y - among @ beta) ** 2) / free, 1e-300))
        t = (beta - beta.sum() / X.shape[1]) / spread
        bound = -stdtrit(free, self.level / X.shape[1])
        return [(int(k), float(t[k])) for k in np.flatnonzero((t > bound) & (beta > _NOTHING * beta.max()))]


def _error(X: sparse.csr_array, y: Floats, w: Floats, b: Floats) -> float:
    """Weighted mean square of the residuals, for paths that the coefficients were not fitted to."""
    return float(np.average((y - X @ b) ** 2, weights=w))
