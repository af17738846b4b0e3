"""Laws of blame: another site beside changes nobody's, an interval is the one that its likelihood gives, days weigh."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from perdure.blame import localise
from perdure.blame.builders.attempts import AttemptRow, with_places
from perdure.blame.registry import SOLVERS
from perdure.blame.window import Window, window
from perdure.studies.colocation import Days, compare
from tests.blame.test_solvers import grid

HALF_CHI_SQUARE = 1.92  # half the 95 % point with one degree of freedom


def beside(one: Window, other: Window, more: int = 1000) -> Window:
    """Both in one window; the paths of one cross no component of the other."""
    starts = np.concatenate([one.incidence.indptr, other.incidence.indptr[1:] + one.incidence.indptr[-1]])
    crossed = [one.component_ids[one.incidence.indices], other.component_ids[other.incidence.indices] + more]
    units, failures = (np.concatenate([getattr(each, name) for each in (one, other)]) for name in ("units", "failures"))
    return window(starts, np.concatenate(crossed), units, failures)


@pytest.mark.parametrize("solver", SOLVERS)
def test_another_site_beside_changes_nobodys_blame(solver: str) -> None:
    here, there = grid(rates={2: 0.6, 9: 0.5}), grid(rates={5: 0.9})
    together = {found.component: found for found in localise(beside(here, there), solver)}
    assert set(together) == {2, 9, 1005}
    for more, alone in ((0, here), (1000, there)):
        for found in localise(alone, solver):
            again = together[found.component + more]
            assert again.rate == pytest.approx(found.rate, abs=0.02)
            assert (again.units, again.kind, again.equivalent) == (found.units, found.kind, found.equivalent)


@pytest.mark.parametrize("rates", [{3: 0.5}, {3: 0.5, 9: 0.3}])
def test_the_interval_is_that_of_the_likelihood_with_all_else_held(rates: dict[int, float]) -> None:
    found = next(each for each in localise(grid(rates=rates), "greedy") if each.component == 3)
    n = np.full(6, 40.0)
    e = np.array([round(40 * (1 - (1 - rates[3]) * (1 - rates.get(store, 0)))) for store in range(8, 14)])
    others = np.array([-np.log1p(-rates.get(store, 0)) for store in range(8, 14)])

    def nats(hazard: Any) -> float:
        return float((e * np.log(-np.expm1(-(hazard + others))) - (n - e) * (hazard + others)).sum())

    top = -np.log1p(-found.rate)
    low, high = (
        -np.expm1(-brentq(lambda hazard: nats(top) - nats(hazard) - HALF_CHI_SQUARE, *ends))
        for ends in ((1e-6, top), (top, 5.0))
    )
    assert (found.rate_low, found.rate_high) == pytest.approx((low, high), abs=0.01)


def test_a_day_weighs_by_its_units() -> None:
    """Forty large days agree; what forty say on which hardly anything was used is louder, and this and that."""
    near, far = np.array([100_000] * 40 + [20] * 40), np.array([100_000] * 40 + [20] * 40)
    failed_near, failed_far = np.array([100] * 40 + [10, 0] * 20), np.array([130] * 40 + [0, 10] * 20)
    days = Days(tuple(map(str, range(80))), 2, 3, near, failed_near, far, failed_far)
    assert compare(days, np.random.default_rng(0)).p < 0.01
    assert compare(Days(days.names, 2, 3, far, failed_far, near, failed_near), np.random.default_rng(0)).p < 0.01


ENDS = st.sampled_from([(False, False), (True, False), (True, True)])  # passed, failed, failed for lack of something
seen = st.lists(
    st.tuples(st.sampled_from(("train", "eval")), st.sampled_from(("n1", "n2", "n3")), ENDS, st.booleans()), max_size=16
)


@given(seen)
@example(
    [
        ("train", "n1", (False, False), True),
        ("train", "n2", (False, False), False),
        ("train", "n1", (True, True), True),
    ]
)
def test_what_ones_code_finds_elsewhere_says_nothing_of_anothers_of_that_name(
    ends: list[tuple[str, str, tuple[bool, bool], bool]],
) -> None:
    """Nor of one's own code of another name."""
    rows = [
        AttemptRow(float(at), "ada" if is_adas else "bob", job, (node,), failed, failed, lacked)
        for at, (job, node, (failed, lacked), is_adas) in enumerate(ends)
    ]
    told = with_places(rows)
    for code in {(row.user, row.job) for row in rows}:
        alone = [row for row in rows if (row.user, row.job) == code]
        assert [row for row in told if (row.user, row.job) == code] == with_places(alone)
