"""When the jobs of a drawn trace come: by day and week, in bursts of all, of a virtual cluster, of a user.

Philly's arrivals are the default. `fit` reads those of any trace by the method of moments, so that a drawn trace of any
length or load comes as a site's own jobs do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import JobTable

_DAY_S = 86_400.0
_WEEKDAYS = 5
_FIRST_WEEKDAY = 3  # the first day of the epoch was a Thursday; Monday is 0
_LEAST_DAYS = 2
_LEAST_JOBS_A_DAY = 5.0  # of a virtual cluster whose days are compared


@dataclass(frozen=True, slots=True)
class Bursts:
    """How unevenly jobs come: spreads (of the logarithm) of the rate between slots and between days."""

    jobs_a_slot: float
    slots: float
    days: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The rhythm in which jobs come.

    `narrow` and `wide` are the bursts of jobs on one GPU, often sweeps, and on several. `day_night` is the rate of the
    busiest hour over that of the quietest, which is `quietest_h`. `weekend` is the rate on Saturday and Sunday over
    that of the other days; a trace of unknown date begins on a Monday. `vc_days` is the spread of the logarithm of a
    virtual cluster's own rate between days. `sweep` is how many jobs a user submits in a row, in the mean, among those
    of the user's virtual cluster.
    """

    narrow: Bursts = Bursts(4.0, 1.75, 0.6)
    wide: Bursts = Bursts(2.0, 1.2, 0.3)
    day_night: float = 3.3
    quietest_h: float = 4.0
    weekend: float = 1.0
    vc_days: float = 0.0
    sweep: float = 1.0

    def __str__(self) -> str:
        return (
            f"busiest hour {self.day_night:.1f} times the quietest ({round(self.quietest_h) % 24}:00), weekend "
            f"{self.weekend:.2f} of a weekday, a user's sweep {self.sweep:.1f} jobs; spread of the rate of jobs on one "
            f"GPU {self.narrow.slots:.2f} within and {self.narrow.days:.2f} between days, on several "
            f"{self.wide.slots:.2f} and {self.wide.days:.2f}, of a virtual cluster {self.vc_days:.2f} between days"
        )


PHILLY = Arrivals()


def draw_submits(
    narrow: NDArray[np.bool_], vc: NDArray[np.intp], span_s: float, arrivals: Arrivals, rng: Generator
) -> NDArray[np.float64]:
    """When each job is submitted, in whole seconds within `span_s`; the jobs of one kind are in the order of rows."""
    submit_s = np.empty(len(vc))
    own = np.ones((0, 0))
    if arrivals.vc_days and len(vc):
        own = rng.lognormal(0.0, arrivals.vc_days, (vc.max() + 1, int(span_s // _DAY_S) + 1))
    for rows, bursts in ((np.flatnonzero(narrow), arrivals.narrow), (np.flatnonzero(~narrow), arrivals.wide)):
        edges, rate = _rates(len(rows), span_s, bursts, arrivals, rng)
        if not len(own):
            submit_s[rows] = _placed(len(rows), edges, rate, rng)
            continue
        day = (edges[:-1] // _DAY_S).astype(np.intp)
        for each in np.unique(vc[rows]):
            of_vc = rows[vc[rows] == each]
            submit_s[of_vc] = _placed(len(of_vc), edges, rate * own[each][day], rng)
    return submit_s


def in_sweeps(
    user: NDArray[np.intp], vc: NDArray[np.intp], submit_s: NDArray[np.float64], mean: float, rng: Generator
) -> NDArray[np.intp]:
    """Users such that one submits `mean` jobs in a row of the virtual cluster, with the same shares in the long run."""
    if mean <= 1:
        return user
    order = np.lexsort((submit_s, vc))
    goes_on = rng.random(len(order)) < 1 - 1 / mean
    goes_on[1:] &= vc[order][1:] == vc[order][:-1]
    goes_on[0] = False
    first = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(order))))
    drawn = np.empty_like(user)
    drawn[order] = user[order][first]
    return drawn


def _rates(
    n_jobs: int, span_s: float, bursts: Bursts, arrivals: Arrivals, rng: Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edges of short slots, and the rate in each: a Poisson process whose rate follows day and week, and jumps."""
    slots = max(1, int(np.ceil(n_jobs / bursts.jobs_a_slot)))
    edges = np.linspace(0.0, span_s, slots + 1)
    day = (edges[:-1] // _DAY_S).astype(np.intp)
    of_days = rng.lognormal(0.0, bursts.days, int(span_s // _DAY_S) + 1)[day]
    of_week = np.where(day % 7 < _WEEKDAYS, 1.0, arrivals.weekend)
    return edges, _of_day(edges[:-1], arrivals) * of_days * of_week * rng.lognormal(0.0, bursts.slots, slots)


def _of_day(at_s: NDArray[np.floating[Any]], arrivals: Arrivals) -> NDArray[np.float64]:
    swing = (arrivals.day_night - 1) / (arrivals.day_night + 1)
    rate: NDArray[np.float64] = 1 - swing * np.cos(2 * np.pi * (at_s / _DAY_S % 1 - arrivals.quietest_h / 24))
    return rate


def _placed(n_jobs: int, edges: NDArray[np.float64], rate: NDArray[np.float64], rng: Generator) -> NDArray[np.float64]:
    came = np.concatenate([[0.0], np.cumsum(rate)])
    submit_s: NDArray[np.float64] = np.floor(np.interp(np.sort(rng.random(n_jobs)) * came[-1], came, edges))
    return submit_s


def fit(table: JobTable) -> Arrivals:
    """The rhythm of a trace's arrivals, counted over its whole days.

    The swing of the day is the first harmonic of the hourly counts; spreads are the excess of the variance of counts
    over that of a Poisson process, of slots within a day, of days, and of a virtual cluster's share between days. The
    weekend needs 14 days. Where few virtual clusters hold most jobs, their own spread is read too small, since they
    move the whole that they are compared with. A kind of jobs (on one GPU, on several) with too few jobs keeps
    Philly's bursts.

    Raises `InputError` for a trace of less than two days.
    """
    since_s = table.began_s % _DAY_S
    at_s = table.submit_s + since_s
    days = int((table.submit_s[-1] + since_s) // _DAY_S) if len(table) else 0
    at_s = at_s - (_DAY_S if since_s else 0.0)  # the first day is whole only where the trace begins at midnight
    days -= bool(since_s)
    if days < _LEAST_DAYS:
        what = f"the trace holds {max(0, days)} whole days"
        raise InputError("trace generate", what, f"Fit arrivals to a trace of at least {_LEAST_DAYS} days")
    whole = (at_s >= 0) & (at_s < days * _DAY_S)
    at_s, narrow = at_s[whole], table.gpus[whole] == 1
    vc = np.unique(table.vc[whole], return_inverse=True)[1]
    user = np.unique(table.user[whole], return_inverse=True)[1]
    found = replace(_fit_day(at_s), weekend=_fit_weekend(at_s, days, _first_weekday(table)))
    week = np.where((np.arange(days) + _first_weekday(table)) % 7 < _WEEKDAYS, 1.0, found.weekend)
    return replace(
        found,
        narrow=_fit_bursts(at_s[narrow], week, found, PHILLY.narrow),
        wide=_fit_bursts(at_s[~narrow], week, found, PHILLY.wide),
        vc_days=_fit_vc_days(at_s, vc, days),
        sweep=_fit_sweep(user, vc),
    )


def _first_weekday(table: JobTable) -> int:
    """Of the first whole day; Monday where the date is unknown."""
    if not table.began_s:
        return 0
    return int(np.ceil(table.began_s / _DAY_S) + _FIRST_WEEKDAY) % 7


def _fit_day(at_s: NDArray[np.float64]) -> Arrivals:
    turn = np.exp(-2j * np.pi * (at_s / _DAY_S)).mean()  # minus half the swing, turned to the quietest hour
    swing = min(0.98, 2 * abs(turn))
    quietest_h = -np.angle(-turn) / (2 * np.pi) * 24 % 24
    return replace(PHILLY, day_night=float((1 + swing) / (1 - swing)), quietest_h=float(quietest_h))


def _fit_weekend(at_s: NDArray[np.float64], days: int, first_weekday: int) -> float:
    if days < 14:
        return 1.0
    counts = np.bincount((at_s // _DAY_S).astype(np.intp), minlength=days)
    free = (np.arange(days) + first_weekday) % 7 >= _WEEKDAYS
    return float(counts[free].mean() / max(counts[~free].mean(), 1e-9))


def _fit_bursts(at_s: NDArray[np.float64], week: NDArray[np.float64], arrivals: Arrivals, default: Bursts) -> Bursts:
    if len(at_s) < 10 * len(week):
        return default
    days = len(week)
    slots_a_day = max(1, round(len(at_s) / days / default.jobs_a_slot))
    slot_s = _DAY_S / slots_a_day
    counts = np.bincount((at_s // slot_s).astype(np.intp), minlength=days * slots_a_day).reshape(days, slots_a_day)
    of_day = _of_day((np.arange(slots_a_day) + 0.5) * slot_s, arrivals)
    expected = counts.sum(1, keepdims=True) * of_day / of_day.sum()
    within = _excess(counts, expected)
    by_day = counts.sum(1)
    between = _excess(by_day, week * by_day.sum() / week.sum()) - within / slots_a_day
    return replace(default, slots=_spread(within), days=_spread(between))


def _fit_vc_days(at_s: NDArray[np.float64], vc: NDArray[np.intp], days: int) -> float:
    counts = np.zeros((vc.max() + 1, days))
    np.add.at(counts, (vc, (at_s // _DAY_S).astype(np.intp)), 1)
    if len(counts) == 1:
        return 0.0
    share = counts.sum(1, keepdims=True) / counts.sum()
    expected = share * counts.sum(0)
    many = (expected.mean(1) >= _LEAST_JOBS_A_DAY) & (share[:, 0] <= 0.5)
    return _spread(_excess(counts[many], expected[many])) if many.any() else 0.0


def _fit_sweep(user: NDArray[np.intp], vc: NDArray[np.intp]) -> float:
    order = np.argsort(vc, kind="stable")
    of_vc, of_user = vc[order], user[order]
    together = of_vc[1:] == of_vc[:-1]
    if not together.any():
        return 1.0
    jobs = np.bincount(vc).astype(float)
    pairs, of_pair = np.unique(np.stack([vc, user]), axis=1, return_counts=True)
    chance = np.bincount(pairs[0], (of_pair / jobs[pairs[0]]) ** 2)  # that two jobs are of one user by chance
    by_chance = chance[of_vc[1:][together]].mean()
    same = (of_user[1:] == of_user[:-1])[together].mean()
    if by_chance >= 1:
        return 1.0
    return float(1 / (1 - min(0.999, max(0.0, (same - by_chance) / (1 - by_chance)))))


def _excess(counts: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """The squared coefficient of variation of the rate beneath Poisson counts."""
    return float(((counts - expected) ** 2 - expected).sum() / max((expected**2).sum(), 1e-9))


def _spread(excess: float) -> float:
    """Of the logarithm, of a log-normal rate of this squared coefficient of variation."""
    return float(np.sqrt(np.log1p(max(0.0, excess))))
