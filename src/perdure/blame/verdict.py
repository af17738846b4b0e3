"""Verdicts: how sure a solver is of one component, how bad it is, and by which paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from perdure.blame.equivalence import alike
from perdure.blame.window import Window

Kind = Literal["hard", "gray", "partial"]
HARD = 0.15  # from this failure rate on a component is down rather than gray
_PATHS = 5  # of evidence
_TAIL = 0.025


@dataclass(frozen=True, slots=True)
class Suspect:
    """A component to blame. Ids are those of the window."""

    component: int
    tier: str
    equivalent: tuple[int, ...]  # components that cross the same paths: no observation tells them apart
    kind: Kind
    rate: float  # of the units that cross it (partial: on the paths concerned), this share fails by its fault
    rate_low: float  # 95 % interval
    rate_high: float
    units: int  # failed on its paths (partial: on those concerned)
    strength: float  # in the unit of the solver; the larger the surer
    paths_for: tuple[int, ...]  # up to 5, those with the most failures first
    paths_against: tuple[int, ...]  # up to 5 without failures, those with the most units first


def kind_of(rate: float) -> Kind:
    """``hard`` from a failure rate of 15 % on, else ``gray``."""
    return "hard" if rate >= HARD else "gray"


def suspect(
    window: Window,
    column: int,
    strength: float,
    *,
    rates: tuple[float, float, float] | None = None,
    hot: NDArray[np.integer] | None = None,
) -> Suspect:
    """The verdict on a column.

    `rates` are rate, low and high; if not given, the share of failed units and its Clopper-Pearson interval, which does
    not subtract the background or other suspects on the same paths. `hot` are the path rows concerned, of a component
    that fails on a part of its paths only; clean paths are counted against it nevertheless.

    >>> from perdure.blame.window import window
    >>> found = suspect(window([0, 1, 2], [7, 7], [10, 40], [5, 0]), 0, strength=3.0)
    >>> found.component, found.rate, round(found.rate_high, 2), found.paths_for, found.paths_against
    (7, 0.1, 0.22, (0,), (1,))
    """
    rows = window.rows(column)
    concerned = rows if hot is None else hot
    n, e = int(window.units[concerned].sum()), int(window.failures[concerned].sum())
    rate, low, high = rates or (e / n, *_interval(e, n))
    worst = concerned[np.argsort(-window.failures[concerned], kind="stable")[:_PATHS]]
    clean = rows[(window.failures[rows] == 0) & (window.units[rows] > 0)]
    clean = clean[np.argsort(-window.units[clean], kind="stable")[:_PATHS]]
    component, *others = (int(window.component_ids[c]) for c in alike(window, column))
    return Suspect(
        component, str(window.tiers[column]), tuple(others), "partial" if hot is not None else kind_of(rate),
        rate, low, high, e, strength,
        tuple(window.path_ids[worst[window.failures[worst] > 0]].tolist()),
        tuple(window.path_ids[clean].tolist()),
    )  # fmt: skip


def _interval(e: int, n: int) -> tuple[float, float]:
    """The 95 % interval of Clopper and Pearson for e of n, by quantiles of the beta law."""
    low = 0.0 if e == 0 else float(betaincinv(e, n - e + 1, _TAIL))
    return low, 1.0 if e == n else float(betaincinv(e + 1, n - e, 1 - _TAIL))
