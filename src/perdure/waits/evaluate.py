"""How good a predictor is: walked forward day by day, each answer from what was known by then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.waits.protocol import LEAST_WAIT_S, LEVELS, Learned, Predictor
from perdure.waits.table import WaitTable

DAY_S = 86_400.0
THRESHOLDS_S = (600.0, 3_600.0, 21_600.0)  # "longer than that?" is asked as a question of yes and no
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answers:
    """What was said of looks, in the order of their days, and what came of them; (n,) each, in seconds."""

    table: WaitTable
    day: NDArray[np.int64]
    quantiles_s: Column  # (n, 3), of `LEVELS`
    remarks: tuple[str, ...] = ()  # of the last day

    @property
    def scored(self) -> NDArray[np.bool_]:
        """(n,) the looks whose whole wait is known."""
        return self.table.started


@dataclass(frozen=True, slots=True)
class Threshold:
    """How well waits longer than `over_s` are predicted."""

    over_s: float
    base_rate: float  # the share of the more frequent answer: what always saying that one would get
    accuracy: float
    balanced_accuracy: float  # mean of the two kinds' accuracies: 0.5 where they are not told apart


@dataclass(frozen=True, slots=True)
class DayScore:
    """One day of a test."""

    day: int  # since day zero of the table's clock
    n: int
    mse_log10: float
    coverage: float


@dataclass(frozen=True, slots=True)
class WaitScore:
    """Of the looks whose waits are known. Logarithms are to base 10, of seconds."""

    n: int
    mse_log10: float  # of the median
    within_2x: float  # the share of medians between half and twice the wait
    pinball_log10: tuple[float, float, float]  # at `LEVELS`
    coverage: float  # the share of waits within the 80% interval
    width_decades: float  # its mean width
    worst_day_coverage: float
    median_abs_error_s: float
    mean_abs_error_s: float
    thresholds: tuple[Threshold, ...]
    days: tuple[DayScore, ...]


def walk(
    table: WaitTable,
    predictor: Predictor,
    cut_s: float,
    *,
    refit_days: int = 1,
    seed: int = 0,
    tell: Callable[[float], None] = lambda done: None,  # noqa: ARG005
) -> Answers:
    """Answer every look from `cut_s` on, a day after the other.

    A day's answers are from what was known at its first look; `refit_days` days go by between two rounds of learning.
    Raises `InputError` where no look lies before the cut, or none after it.
    """
    if not (table.poll_s < cut_s).any() or not (table.poll_s >= cut_s).any():
        raise InputError("cut", "no look at a waiting job lies before it, or none after it", "Choose a day in between")
    day = np.floor(table.poll_s / DAY_S).astype(np.int64)
    tested = np.unique(day[table.poll_s >= cut_s]).tolist()
    learned: Learned | None = None
    due, rows, said = tested[0], [], []
    for number, today in enumerate(tested):
        asked = np.flatnonzero((day == today) & (table.poll_s >= cut_s))
        now = float(table.poll_s[asked].min())
        if learned is None or today >= due:
            seen = table.take(table.poll_s < now).known_at(now)
            learned, due = predictor.learn(seen, now, default_rng(seed), learned), today + refit_days
        rows.append(asked)
        said.append(learned.quantiles(unanswered(table.take(asked)), LEVELS))
        tell((number + 1) / len(tested))
    order = np.concatenate(rows)
    remarks = () if learned is None else learned.remarks
    return Answers(table.take(order), day[order], np.concatenate(said), remarks)


def unanswered(asked: WaitTable) -> WaitTable:
    """The looks as they are in their own instant: none has started."""
    return WaitTable(
        asked.job, asked.poll_s, asked.submit_s, np.full(len(asked), np.nan), asked.poll_s, asked.partition,
        asked.account, asked.features, asked.names,
    )  # fmt: skip


def score(answers: Answers) -> WaitScore:
    """Hold answers against what came. Raises `InputError` where nothing did."""
    known = answers.scored
    if not known.any():
        raise InputError("waits", "none of the jobs is known to have started", "Take looks whose jobs have started")
    wait_s = np.maximum(answers.table.wait_s[known], LEAST_WAIT_S)
    said_s = np.maximum(answers.quantiles_s[known], LEAST_WAIT_S)
    truth, said, day = np.log10(wait_s), np.log10(said_s), answers.day[known]
    error = said[:, 1] - truth
    covered = (said[:, 0] <= truth) & (truth <= said[:, 2])
    days = tuple(
        DayScore(
            one, int((day == one).sum()), float((error[day == one] ** 2).mean()), float(covered[day == one].mean())
        )
        for one in np.unique(day).tolist()
    )
    abs_error_s = np.abs(said_s[:, 1] - wait_s)
    return WaitScore(
        n=len(truth),
        mse_log10=float((error**2).mean()),
        within_2x=float((np.abs(error) <= np.log10(2)).mean()),
        pinball_log10=(
            pinball(truth - said[:, 0], LEVELS[0]), pinball(truth - said[:, 1], LEVELS[1]),
            pinball(truth - said[:, 2], LEVELS[2]),
        ),
        coverage=float(covered.mean()),
        width_decades=float((said[:, 2] - said[:, 0]).mean()),
        worst_day_coverage=min(each.coverage for each in days),
        median_abs_error_s=float(np.median(abs_error_s)),
        mean_abs_error_s=float(abs_error_s.mean()),
        thresholds=tuple(threshold(wait_s, said_s[:, 1], over_s) for over_s in THRESHOLDS_S),
        days=days,
    )  # fmt: skip


def pinball(short: Column, level: float) -> float:
    """The mean pinball loss of a quantile that fell short of the truth by so much."""
    return float(np.maximum(level * short, (level - 1) * short).mean())


def threshold(wait_s: Column, said_s: Column, over_s: float) -> Threshold:
    """Whether waits are longer than `over_s`, as the medians say it."""
    longer, called = wait_s > over_s, said_s > over_s
    right = longer == called
    kinds = [float(right[kind].mean()) for kind in (longer, ~longer) if kind.any()]
    base = float(longer.mean())
    return Threshold(over_s, max(base, 1 - base), float(right.mean()), sum(kinds) / len(kinds))
