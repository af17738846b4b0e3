"""How far a site's own last answers were off, by kind of job, and later ones corrected by that.

Answers about the past (`perdure.waits.hindcast`) are made of what accounting kept, without priorities and nodes; these
are of the queue as it was. A level is moved by what it would have had to be moved by recently to hold as often as it
promises: for jobs alike more than for others, and the less the fewer answers there are. Without any the fit stands.
Intervals that kept too little of the last week are wider by what they lacked.

Source: R. Barber et al., "Conformal prediction beyond exchangeability", Ann. Statist. 51, 2023: weights for errors that
are less like the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perdure.waits.calibration import ENOUGH, Promise
from perdure.waits.conformal import PROMISED, score_quantiles, widening
from perdure.waits.forecast import INTERVAL, LEVELS, WaitForecast, of_quantiles
from perdure.waits.hindcast import Fit
from perdure.waits.queue import QueuedJob
from perdure.waits.rollout import HORIZON_S

CYCLE_S = 30.0  # of backfill: waits that differ by less are hardly different
HALF_LIFE_S = 7 * 86_400.0  # an error so old weighs half as much as a new one
GUARD_S = 7 * 86_400.0  # of these the intervals must have held, or they are widened
MOST = 2_000  # answers that are looked at, the newest
ALIKE = 15.0  # answers that weigh as much as the fit does
SAME, SAME_PARTITION, OTHER = 1.0, 0.3, 0.05  # the weight of an error, by how like its job is
WIDEST = 2.0  # decades by which a level is moved at most

Floats = NDArray[np.float64]


class OwnErrors(Struct, frozen=True):
    """What was learnt from answers that were given. Build it with `own_errors`."""

    answers: int = 0  # of jobs that have started since, or wait longer
    shifts: dict[str, tuple[float, ...]] = {}  # decades, level by level, by kind of job; "" for any other
    held: float = PROMISED  # share of the last week's starts that their intervals held
    widened: float = 1.0  # by this factor intervals reach farther

    @property
    def is_known(self) -> bool:
        return self.answers >= ENOUGH

    def corrected(self, forecast: WaitForecast, job: QueuedJob) -> WaitForecast:
        """A forecast that the fit has corrected, corrected by the errors that were left."""
        shifts = self._shifts(kind_of(job.partitions, job.gpus))
        if shifts is None:
            return forecast
        moved = _log(np.array(forecast.wait_s)) + shifts
        middle = moved[LEVELS.index(0.5)]
        wait_s = np.minimum(_wait_s(middle + self.widened * (moved - middle)), max(HORIZON_S, *forecast.wait_s))
        found = of_quantiles(forecast.asked_s, wait_s, forecast.remarks)
        if self.widened == 1:
            return found
        return found.noting(
            f"the intervals of the last week held {self.held:.0%} of the starts, not {PROMISED:.0%}: "
            f"they reach farther by the factor {self.widened:.1f}"
        )

    def _shifts(self, kind: str) -> tuple[float, ...] | None:
        partition = kind.partition(" ")[0]
        return self.shifts.get(kind) or self.shifts.get(partition) or self.shifts.get("")


def kind_of(partitions: Sequence[str], gpus: int) -> str:
    """Partition and size: jobs of one kind wait in the same line, for about as much.

    >>> kind_of(("gpu",), 6)
    'gpu 4'
    """
    return f"{partitions[0] if partitions else ''} {1 << (gpus.bit_length() - 1) if gpus else 0}"


def promise_of(job: QueuedJob, forecast: WaitForecast) -> Promise:
    """What is to be kept of an answer."""
    kind = kind_of(job.partitions, job.gpus)
    return Promise(job.job_id, forecast.asked_s, forecast.wait_s, raw_s=forecast.raw_s, kind=kind)


def own_errors(promises: Iterable[Promise], waiting: frozenset[str], now_s: float, fit: Fit | None) -> OwnErrors:
    """Of promises made with what is known at `now_s`; those to jobs `waiting` still are known to take no less."""
    known = (
        one
        for one in promises
        if one.raw_s and one.asked_s < now_s and (one.start_s is not None or one.job_id in waiting)
    )
    told = sorted(known, key=lambda one: one.asked_s)[-MOST:]
    if not told:
        return OwnErrors()
    open_ended = np.array([one.start_s is None for one in told])
    came = np.array([(now_s if one.start_s is None else one.start_s) - one.asked_s for one in told])
    said = np.array([_by_fit(one, fit) for one in told])
    error = _log(came)[:, None] - _log(said)
    recent = 0.5 ** ((now_s - np.array([one.asked_s for one in told])) / HALF_LIFE_S)
    recent /= _count(np.array([one.job_id for one in told]))  # the answers of one job are as one
    kinds = np.array([one.kind for one in told])
    places = np.array([one.kind.partition(" ")[0] for one in told])
    shifts = {}
    for kind in ("", *sorted({*places.tolist(), *kinds.tolist()})):
        place = kind.partition(" ")[0]
        like = np.where(kinds == kind, SAME, np.where(places == place, SAME_PARTITION, OTHER))
        shifts[kind] = _shifts(error, open_ended, recent * like)
    held, widened = _guard(told, came, open_ended, now_s)
    return OwnErrors(len(told), shifts, held, widened)


def _by_fit(promise: Promise, fit: Fit | None) -> tuple[float, ...]:
    """What would be said of it today: errors of what the fit corrects are its own."""
    raw = WaitForecast(promise.asked_s, promise.raw_s)
    return (raw if fit is None else fit.corrected(raw)).wait_s


def _count(names: NDArray[np.str_]) -> Floats:
    _, member, count = np.unique(names, return_inverse=True, return_counts=True)
    return np.asarray(count[member], np.float64)


def _shifts(error: Floats, open_ended: NDArray[np.bool_], weights: Floats) -> tuple[float, ...]:
    """Level by level that quantile of the errors, less the fewer there are that count.

    The largest counts as known, though its wait goes on: who waits longest says more of the tail than who is done.
    """
    enough = weights.sum() ** 2 / np.square(weights).sum()
    trust = enough / (enough + ALIKE)
    known_later = open_ended[:, None] & (error < error.max(axis=0))
    found = [
        float(score_quantiles(error[:, place], known_later[:, place], weights).at((level,))[0])
        for place, level in enumerate(LEVELS)
    ]
    return tuple((trust * np.clip(found, -WIDEST, WIDEST)).tolist())


def _guard(told: Sequence[Promise], came_s: Floats, open_ended: NDArray[np.bool_], now_s: float) -> tuple[float, float]:
    """The share of the last week's starts that lay in their intervals, and by how much those must be wider.

    A wait that goes on counts once it has left its interval.
    """
    said = _log(np.array([one.wait_s for one in told]))
    low, middle, high = (said[:, LEVELS.index(level)] for level in (INTERVAL[0], 0.5, INTERVAL[1]))
    came = _log(came_s)
    one_cycle = _log(_wait_s(middle) + CYCLE_S) - middle
    reach = np.maximum(np.where(came < middle, middle - low, high - middle), one_cycle)
    ratio = np.abs(came - middle) / reach
    recent = np.array([now_s - one.asked_s for one in told]) <= GUARD_S
    counts = recent & (~open_ended | ((came > middle) & (ratio > 1)))
    return widening(ratio[counts]) if counts.sum() >= ENOUGH else (PROMISED, 1.0)


def _log(wait_s: Floats) -> Floats:
    return np.asarray(np.log10(np.maximum(wait_s, 0.0) + CYCLE_S), np.float64)


def _wait_s(log: Floats) -> Floats:
    return np.asarray(np.maximum(10**log - CYCLE_S, 0.0), np.float64)
