"""The regression that Deepview rests on has the optimum's marks, and is that of scikit-learn."""

import numpy as np
import pytest
from scipy import sparse

from perdure.blame.deepview import lasso


def problem(seed):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array((rng.random((80, 25)) < 0.2).astype(float))
    return X, np.maximum(rng.normal(0.1, 0.3, 80), 0) + X[:, [3]].toarray().ravel() * 0.5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.01, 0.5, 3.0])
def test_no_direction_is_downhill(seed, penalty):
    """Karush, Kuhn, Tucker: the slope is the penalty where b > 0, and no more than it elsewhere."""
    X, y = problem(seed)
    b = lasso(X, y, penalty)
    slope = X.T @ (y - X @ b)
    assert (b >= 0).all()
    np.testing.assert_allclose(slope[b > 0], penalty, atol=1e-7)
    assert (slope[b == 0] <= penalty + 1e-7).all()


def test_one_column_has_a_closed_form():
    X, y = sparse.csr_array(np.ones((4, 1))), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(lasso(X, y, 2.0), [(10 - 2) / 4])
    np.testing.assert_allclose(lasso(X, y, 11.0), [0.0])


@pytest.mark.parametrize("penalty", [0.05, 1.0])
def test_it_equals_scikit_learn(penalty):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn (extra ml) is the oracle here")
    X, y = problem(1)
    theirs = linear_model.Lasso(alpha=penalty / 80, positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000)
    np.testing.assert_allclose(lasso(X, y, penalty), theirs.fit(X.toarray(), y).coef_, atol=1e-6)
