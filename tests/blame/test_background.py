"""The likelihood of the background against sums and integrals done the long way."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

from perdure.blame.background import Background, gain, path_evidence, shared_likelihood


def by_integral(n: int, e: int, added: float, background: Background) -> Any:
    """log E_g[(exp(L) - 1)^e exp(-n L)] without the quadrature."""

    def at(g: Any) -> Any:
        hazard = background.rate * g + background.misbooked / n + added
        return gamma.pdf(g, background.shape, scale=1 / background.shape) * np.expm1(hazard) ** e * np.exp(-n * hazard)

    return np.log(sum(quad(at, low, high, limit=200)[0] for low, high in ((0, 0.1), (0.1, 1), (1, 5), (5, 30))))


@pytest.mark.parametrize("shape", [1.0, 2.0, 10.0])
@pytest.mark.parametrize(
    ("n", "e", "added"), [(10, 1, 0.0), (40, 3, 0.0), (40, 5, 0.05), (300, 8, 0.01), (20, 20, 1.0)]
)
def test_it_is_the_integral(shape: float, n: int, e: int, added: float) -> None:
    background = Background(0.003, 0.01, shape)
    got = gain(np.array([float(n)]), np.array([float(e)]), np.array([added]), background)[0]
    got += shared_likelihood(np.array([float(n)]), np.array([1]), background) - n * added
    assert got == pytest.approx(by_integral(n, e, added, background), abs=1e-3)


def test_the_slope_is_that_of_the_gain() -> None:
    n, e, added = np.array([10.0, 50.0]), np.array([1.0, 9.0]), np.array([0.02, 0.1])
    background, h = Background(0.01, 0.001, 0.6), 1e-6
    slope = (gain(n, e, added + h, background) - gain(n, e, added - h, background)) / (2 * h)
    np.testing.assert_allclose(path_evidence(n, e, added, background).slope, slope, rtol=1e-5)
