"""The regression that Deepview rests on has the optimum's marks, and is that of scikit-learn."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from perdure.blame import deepview
from perdure.blame.deepview import lasso


def problem(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = sparse.csr_array((rng.random((80, 25)) < 0.2).astype(float))
    return X, np.maximum(rng.normal(0.1, 0.3, 80), 0) + X[:, [3]].toarray().ravel() * 0.5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.01, 0.5, 3.0])
def test_no_direction_is_downhill(seed: int, penalty: float) -> None:
    """Karush, Kuhn, Tucker: the slope is the penalty where b > 0, and no more than it elsewhere."""
    X, y = problem(seed)
    b = lasso(X, y, penalty)
    slope = X.T @ (y - X @ b)
    assert (b >= 0).all()
    np.testing.assert_allclose(slope[b > 0], penalty, atol=1e-7)
    assert (slope[b == 0] <= penalty + 1e-7).all()


def test_a_weight_of_two_is_a_path_given_twice() -> None:
    X, y = problem(2)
    twice = sparse.vstack([X, X[:40]]).tocsr()
    weights = np.repeat([2.0, 1.0], 40)
    np.testing.assert_allclose(lasso(X, y, 0.3, weights), lasso(twice, np.append(y, y[:40]), 0.3), atol=1e-8)


def test_compiled_or_not_the_descent_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem(3)
    found = lasso(X, y, 0.1)
    monkeypatch.setattr(deepview, "_sweep", lambda: deepview._plain_sweep)
    np.testing.assert_allclose(lasso(X, y, 0.1), found, atol=1e-12)


def test_one_column_has_a_closed_form() -> None:
    X, y = sparse.csr_array(np.ones((4, 1))), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(lasso(X, y, 2.0), [(10 - 2) / 4])
    np.testing.assert_allclose(lasso(X, y, 11.0), [0.0])


@pytest.mark.parametrize("penalty", [0.05, 1.0])
def test_it_equals_scikit_learn(penalty: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn (extra ml) is the oracle here")
    X, y = problem(1)
    theirs = linear_model.Lasso(alpha=penalty / 80, positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000)
    np.testing.assert_allclose(lasso(X, y, penalty), theirs.fit(X.toarray(), y).coef_, atol=1e-6)
