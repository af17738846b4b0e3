"""Linear programs over fractions of time, by an interior point method: of equally good answers, one in the middle.

Where many allocations are best, a simplex method answers with a corner: some jobs get all of what is to spare, by the
order in which they stand. The middle depends on no order, so that the same state has the same answer.

Source: the homogeneous self-dual method with Mehrotra's predictor and corrector, as in A. Domahidi, E. Chu
and S. Boyd, "ECOS: an SOCP solver for embedded systems", ECC 2013, for a linear program; its start, scaling and
tolerances too, as they decide which of the best answers is found. Solving by blocks of a job each is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TOLERANCE = 1e-8
_LOOSE = 1e-5  # is accepted where rounding lets it come no closer
_MOST_STEPS = 100
_NEAR = 1e-6  # from here on, centring
_CENTRINGS = 6
_SCALINGS = 3
_RIDGE = 1e-13  # of a block's trace: keeps it invertible where two of its bounds come to say the same


@dataclass(frozen=True, slots=True)
class Fractions:
    """`x` (n_jobs, n_types), the level that all reach, and the price of each job's gain in that level (n_jobs,)."""

    x: Floats
    level: float
    price: Floats


def raise_lowest(gain: Floats, scale: Floats, workers: Floats, *, centred: bool = False) -> Fractions:
    """Fractions whose smallest `sum(gain * x)` over jobs is as large as can be; `centred`, the very middle of these.

    `gain` (n_jobs, n_types); `scale` (n_jobs,) is the GPUs that a job takes at once, `workers` (n_types,) those there
    are.

    >>> found = raise_lowest(np.array([[4.0, 1.0], [1.0, 1.0]]), np.ones(2), np.ones(2))
    >>> round(found.level, 6)
    1.0
    >>> raise_lowest(np.ones((2, 2)), np.ones(2), np.ones(2)).x.round(3).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    jobs, share = len(gain), workers / (scale.sum() + workers.sum())
    size = float((gain @ share).min()) or 1.0  # less than the level is, and not by far
    found = _solve(_Program.of(gain / size, np.ones(jobs), np.zeros(jobs), scale, workers), centred=centred)
    assert found is not None  # no time at all is always possible
    return Fractions(np.clip(found.x, 0.0, 1.0), found.level * size, found.price)


def reach(gain: Floats, need: Floats, scale: Floats, workers: Floats) -> Floats | None:
    """Fractions with which each job's `sum(gain * x)` is at least its `need` (n_jobs,); None where there are none."""
    found = _solve(_Program.of(gain, np.zeros(len(gain)), need, scale, workers))
    return None if found is None else np.clip(found.x, 0.0, 1.0)


@dataclass(frozen=True)
class _Program:
    """Minimise `-level` subject to ``G (x, level) + slack = bound``, in rows and columns scaled to be alike.

    The rows are: x >= 0 (n_jobs, n_types); no type above its workers (n_types,); no job above all of its time
    (n_jobs,); each job's gain at least its need and, with `rise`, the level (n_jobs,).
    """

    zero: Floats  # coefficients (n_jobs, n_types) of the four kinds of rows
    used: Floats
    whole: Floats
    gain: Floats
    rise: Floats  # of the level (n_jobs,); 0 throughout: there is no level
    bound: tuple[Floats, Floats, Floats, Floats]
    column: Floats  # what x is to be divided by, and the level
    level_column: float
    gain_row: Floats

    @classmethod
    def of(cls, gain: Floats, rise: Floats, need: Floats, scale: Floats, workers: Floats) -> _Program:
        shape = gain.shape
        zero, whole, used = np.ones(shape), np.ones(shape), np.broadcast_to(scale[:, None], shape).copy()
        rows = [np.ones(shape), np.ones(shape[1]), np.ones(shape[0]), np.ones(shape[0])]
        column, level_column = np.ones(shape), 1.0
        for _ in range(_SCALINGS):
            by_row = [
                _root(zero),
                _root(used.max(axis=0)),
                _root(whole.max(axis=1)),
                _root(np.maximum(gain.max(axis=1), rise)),
            ]
            by_column = _root(np.maximum.reduce([zero, used, whole, gain]))
            by_level = float(_root(rise.max()))
            zero = zero / by_row[0] / by_column
            used = used / by_row[1] / by_column
            whole = whole / by_row[2][:, None] / by_column
            gain = gain / by_row[3][:, None] / by_column
            rise = rise / by_row[3] / by_level
            rows = [row * by for row, by in zip(rows, by_row, strict=True)]
            column, level_column = column * by_column, level_column * by_level
        bound = (np.zeros(shape), workers / rows[1], 1.0 / rows[2], -need / rows[3])
        return cls(zero, used, whole, gain, rise, bound, column, level_column, rows[3])

    @property
    def raises(self) -> bool:
        return bool(self.rise.any())

    @cached_property
    def h(self) -> Floats:
        return np.concatenate([part.ravel() for part in self.bound])

    @cached_property
    def c(self) -> Floats:
        """The cost of (x, level)."""
        cost = np.zeros(self.zero.size + 1)
        cost[-1] = -1.0 / self.level_column if self.raises else 0.0
        return cost

    def times(self, v: Floats) -> Floats:
        """G v."""
        x, level = v[:-1].reshape(self.zero.shape), v[-1]
        below = self.rise * level - (self.gain * x).sum(axis=1)
        parts = [-(self.zero * x).ravel(), (self.used * x).sum(axis=0), (self.whole * x).sum(axis=1), below]
        return np.concatenate(parts)

    def turned(self, z: Floats) -> Floats:
        """G transposed times z."""
        lower, types, jobs, gains = self.split(z)
        x = -self.zero * lower + self.used * types + self.whole * jobs[:, None] - self.gain * gains[:, None]
        return np.append(x.ravel(), self.rise @ gains)

    def split(self, rows: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        jobs, types = self.zero.shape
        first, second = jobs * types, jobs * types + types
        return (
            rows[:first].reshape(jobs, types),
            rows[first:second],
            rows[second : second + jobs],
            rows[second + jobs :],
        )


class _Factor:
    """Solves ``[0 G'; G -diag(w)] (v, z) = (a, b)``: blocks of a job each, and what ties them: types and the level."""

    def __init__(self, program: _Program, w: Floats) -> None:
        self.program, self.w = program, w
        lower, self.types, jobs, gains = program.split(1.0 / w)
        block = np.asarray(jobs[:, None, None] * program.whole[:, :, None] * program.whole[:, None, :], float)
        block += gains[:, None, None] * program.gain[:, :, None] * program.gain[:, None, :]
        diagonal = np.arange(block.shape[1])
        block[:, diagonal, diagonal] += lower * program.zero**2
        block[:, diagonal, diagonal] += _RIDGE * np.trace(block, axis1=1, axis2=2)[:, None]
        self.inverse: Floats = np.linalg.inv(block)
        self.pull = program.gain * (gains * program.rise)[:, None]  # of the level on x
        self.by_level = _by_block(self.inverse, self.pull)
        self.by_type = self.inverse * program.used[:, None, :]
        count = block.shape[1]
        tie = np.zeros((count + 1, count + 1))
        tie[:count, :count] = np.einsum("jk,jkl->kl", program.used, self.by_type) + np.diag(1.0 / self.types)
        tie[:count, count] = -(program.used * self.by_level).sum(axis=0)
        tie[count, :count] = np.einsum("jk,jkl->l", self.pull, self.by_type)
        tie[count, count] = gains @ program.rise**2 - (self.pull * self.by_level).sum() if program.raises else 1.0
        self.tie = tie

    def solve(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        aim = a + self.program.turned(b / self.w)
        v = self._normal(aim)
        v = v + self._normal(aim - self.program.turned(self.program.times(v) / self.w))  # once refined
        return v, (self.program.times(v) - b) / self.w

    def _normal(self, aim: Floats) -> Floats:
        x = _by_block(self.inverse, aim[:-1].reshape(self.program.zero.shape))
        tied = np.append((self.program.used * x).sum(axis=0), aim[-1] + (self.pull * x).sum())
        found = np.linalg.solve(self.tie, tied)
        x = x - self.by_type @ found[:-1] + self.by_level * found[-1]
        return np.append(x.ravel(), found[-1] if self.program.raises else 0.0)


def _solve(program: _Program, *, centred: bool = False) -> Fractions | None:
    """None where it cannot be met."""
    search = _Iterate(program)
    for _ in range(_MOST_STEPS):
        if search.is_done(_NEAR if centred else TOLERANCE):
            break
        if search.is_impossible():
            return None
        search.advance()
    for _ in range(_CENTRINGS if centred else 0):
        search.centre()
    v = search.v / search.tau
    price = program.split(search.dual / search.tau)[3] / program.gain_row
    return Fractions(v[:-1].reshape(program.zero.shape) / program.column, float(v[-1]) / program.level_column, price)


class _Iterate:
    """The iterate: `v` and its `slack`, the `dual`, and the two numbers that make the problem homogeneous."""

    def __init__(self, program: _Program) -> None:
        self.program, self.c, self.h = program, program.c, program.h
        factor = _Factor(program, np.ones(len(self.h)))
        self.v, away = factor.solve(np.zeros(len(self.c)), self.h)
        self.slack = _inside(-away)
        self.dual = _inside(factor.solve(-self.c, np.zeros(len(self.h)))[1])
        self.kappa = self.tau = 1.0
        self.wrong, self.stuck = np.inf, False
        self._look()

    def _look(self) -> None:
        """What is still wrong, and how far from the end it is."""
        self.pull, self.worth = self.program.turned(self.dual), self.h @ self.dual
        self.in_v = -self.pull - self.c * self.tau
        self.in_z = self.program.times(self.v) + self.slack - self.h * self.tau
        self.in_tau = self.kappa + self.c @ self.v + self.worth
        self.gap = float(self.slack @ self.dual)

    def is_done(self, tolerance: float) -> bool:
        size = np.linalg.norm(self.h) + np.linalg.norm(self.v) + np.linalg.norm(self.slack)
        met = np.linalg.norm(self.in_z) / size / self.tau
        fair = np.linalg.norm(self.in_v) / (1.0 + np.linalg.norm(self.dual)) / self.tau
        cost = float(self.c @ self.v)
        close = self.gap / self.tau**2 < tolerance or (cost < 0 and self.gap / -cost < tolerance)
        wrong, before = float(max(met, fair)), self.wrong
        self.wrong = wrong
        return self.stuck or (close and (wrong < tolerance or before <= wrong < _LOOSE))

    def is_impossible(self) -> bool:
        return bool(self.worth < 0 and np.linalg.norm(self.pull) < -self.worth * TOLERANCE)

    def advance(self) -> None:
        """Predict how far one may go, and go, corrected for that."""
        mu = self._prepare()
        ahead = self._direction(1.0, self.root, self.kappa * self.tau)
        centring = min(max((1.0 - self._longest(ahead)) ** 3, 1e-4), 1.0)
        lead = (self.root**2 + ahead.slack * ahead.dual - centring * mu) / self.root
        lead_kappa = self.kappa * self.tau + ahead.kappa * ahead.tau - centring * mu
        self._go(self._direction(1.0 - centring, lead, lead_kappa))

    def centre(self) -> None:
        """Take away what is wrong, and make all products of slack and dual alike instead of smaller."""
        mu = self._prepare()
        self._go(self._direction(1.0, (self.root**2 - mu) / self.root, self.kappa * self.tau - mu))

    def _prepare(self) -> float:
        """What is the same for all directions from here; returns the mean of the products."""
        self.root, self.stretch = np.sqrt(self.slack * self.dual), np.sqrt(self.slack / self.dual)
        self.factor = _Factor(self.program, self.slack / self.dual)
        self.towards = self.factor.solve(-self.c, self.h)
        return float((self.gap + self.kappa * self.tau) / (len(self.h) + 1))

    def _go(self, move: _Move) -> None:
        length = 0.98 * self._longest(move)
        dual = self.dual + length * move.dual / self.stretch
        slack = self.slack + length * move.slack * self.stretch
        if not (dual.min() > 0 and slack.min() > 0 and np.isfinite(move.v).all()):
            self.stuck = True  # rounding has the last word: what was found is as near as it gets
            return
        self.v, self.dual, self.slack = self.v + length * move.v, dual, slack
        self.kappa, self.tau = self.kappa + length * move.kappa, self.tau + length * move.tau
        self._look()

    def _direction(self, share: float, lead: Floats, lead_kappa: float) -> _Move:
        """Takes `share` of what is wrong away, and `lead` of each product of slack and dual."""
        v, dual = self.factor.solve(share * self.in_v, self.stretch * lead - share * self.in_z)
        width = self.kappa / self.tau - self.c @ self.towards[0] - self.h @ self.towards[1]
        tau = float((share * self.in_tau - lead_kappa / self.tau + self.c @ v + self.h @ dual) / width)
        stretched = (dual + tau * self.towards[1]) * self.stretch
        kappa = -(lead_kappa + self.kappa * tau) / self.tau
        return _Move(v + tau * self.towards[0], stretched, -(lead + stretched), tau, kappa)

    def _longest(self, move: _Move) -> float:
        """How far one may go until something is 0."""
        lowest = float(min((move.slack / self.root).min(), (move.dual / self.root).min()))
        steps = [-1.0 / lowest if lowest < 0 else 10.0]
        steps += [-at / by for at, by in ((self.tau, move.tau), (self.kappa, move.kappa)) if by < 0]
        return min(max(min(steps), 1e-6), 0.999)


@dataclass(frozen=True, slots=True)
class _Move:
    """A direction; `dual` and `slack` scaled so that both are alike at the present iterate."""

    v: Floats
    dual: Floats
    slack: Floats
    tau: float
    kappa: float


def _by_block(blocks: Floats, vectors: Floats) -> Floats:
    """Each job's block times its vector."""
    return np.asarray((blocks @ vectors[:, :, None])[:, :, 0], float)


def _inside(values: Floats) -> Floats:
    """Moved by one number so that all are positive."""
    return values + 1.0 + max(-0.98, float((-values).max()))


def _root(values: Floats) -> Floats:
    root = np.sqrt(values)
    return np.where(root > 1e-6, root, 1.0)
