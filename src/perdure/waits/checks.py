"""Facts that hold of every predictor of waits: run them against one of your own.

Each takes a predictor and looks (`made_up_looks` makes some) and raises `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

from perdure.model.queue_looks import QueueLooks
from perdure.waits.features import DAY_S, wait_table
from perdure.waits.protocol import Predictor
from perdure.waits.table import WaitTable

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def made_up_looks(days: int = 12, jobs: int = 60, seed: int = 0) -> QueueLooks:
    """Looks at noon of some days at jobs whose waits depend on their sizes and partitions; some never start."""
    rng = default_rng(seed)
    n = days * jobs
    poll_s = np.repeat(np.arange(days) * DAY_S + DAY_S / 2, jobs)
    partition, cpus = rng.integers(0, 4, n), np.exp2(rng.integers(0, 7, n).astype(np.float64))
    wait_s = np.round(10 ** (2.5 + 0.3 * partition + 0.2 * np.log2(cpus) + rng.normal(0, 0.3, n)))
    start_s = np.where(rng.random(n) < 0.95, poll_s + wait_s, np.nan)
    return QueueLooks(
        job=np.arange(n), poll_s=poll_s, submit_s=poll_s - rng.integers(1, 40_000, n), start_s=start_s,
        seen_until_s=np.where(np.isfinite(start_s), start_s, poll_s + DAY_S), partition=partition,
        account=rng.integers(0, 9, n), nodes=np.ones(n), cpus=cpus, gpus=rng.integers(0, 3, n).astype(np.float64),
        mem_mib=cpus * 4_000, limit_s=3_600.0 * rng.integers(1, 48, n).astype(np.float64), priority=rng.random(n),
        day_zero=date(2026, 1, 5),
    )  # fmt: skip


def answers(predictor: Predictor, seen: WaitTable, asked: WaitTable, now: float, seed: int = 0) -> NDArray[np.float64]:
    """What it says of `asked` at `LEVELS` after learning what was known at `now`."""
    return predictor.learn(seen, now, default_rng(seed)).quantiles(asked, LEVELS)


def quantiles_are_waits(predictor: Predictor, table: WaitTable) -> None:
    """Finite, never negative, a column a level, and no lower level has a later time."""
    _are_waits(answers(predictor, *_split(table)), _split(table)[1])


def the_same_seed_says_the_same(predictor: Predictor, table: WaitTable) -> None:
    """Learning and asking again changes nothing, to the last bit; what is asked next to a look, next to nothing."""
    seen, asked, now = _split(table)
    learned = predictor.learn(seen, now, default_rng(3))
    first = learned.quantiles(asked, LEVELS)
    assert np.array_equal(first, learned.quantiles(asked, LEVELS))
    assert np.array_equal(first, answers(predictor, seen, asked, now, seed=3))
    assert np.allclose(first[:1], learned.quantiles(asked.take(np.arange(1)), LEVELS), rtol=1e-3)


def the_future_says_nothing(predictor: Predictor, table: WaitTable) -> None:
    """Starts after `now`, looks after `now`, and the starts of what is asked about change no answer."""
    _, asked, now = _split(table)
    with np.errstate(invalid="ignore"):
        later = ~(table.start_s <= now)
    other = replace(
        table,
        start_s=np.where(later, table.start_s + 7_777_777.0, table.start_s),
        seen_until_s=np.where(table.seen_until_s > now, table.seen_until_s + 7_777_777.0, table.seen_until_s),
    )
    late = np.flatnonzero(other.poll_s > now)
    features = other.features.copy()
    features[late] = features[late][:, ::-1]
    other = replace(other, features=features)
    assert np.array_equal(answers(predictor, table, asked, now), answers(predictor, other, asked, now))
    answered = replace(asked, start_s=asked.poll_s + 5, seen_until_s=asked.poll_s + 5)
    assert np.array_equal(answers(predictor, table, asked, now), answers(predictor, table, answered, now))


def earlier_learning_may_be_handed_in(predictor: Predictor, table: WaitTable) -> None:
    """Learning from day to day, each on what was learned before, keeps all that holds of one answer."""
    _, asked, now = _split(table)
    learned = None
    for days in (2, 1, 0):
        learned = predictor.learn(table, now - days * DAY_S, default_rng(0), learned)
    assert learned is not None
    _are_waits(learned.quantiles(asked, LEVELS), asked)


def little_is_enough(predictor: Predictor, table: WaitTable) -> None:
    """It answers from no look at all, from one, and from looks none of which has started."""
    seen, asked, now = _split(table)
    waiting = replace(seen, start_s=np.full(len(seen), np.nan), seen_until_s=np.full(len(seen), now))
    for some in (seen.take(np.arange(0)), seen.take(np.arange(1)), waiting.take(np.arange(5)), waiting):
        _are_waits(answers(predictor, some, asked, now), asked)
    nobody = asked.take(np.arange(0))
    _are_waits(answers(predictor, seen, nobody, now), nobody)


def unknown_features_are_borne(predictor: Predictor, table: WaitTable) -> None:
    """It answers where features are NaN, or missing from the table, and for a partition and account never seen."""
    seen, asked, now = _split(table)
    blank = replace(asked, features=np.full_like(asked.features, np.nan))
    _are_waits(answers(predictor, seen, blank, now), asked)
    blank_seen = replace(seen, features=np.full_like(seen.features, np.nan))
    _are_waits(answers(predictor, blank_seen, blank, now), asked)
    none = replace(asked, features=asked.features[:, :0], names=())
    _are_waits(answers(predictor, seen, none, now), asked)
    strange = replace(asked, partition=np.full(len(asked), 12_345), account=np.full(len(asked), -1))
    _are_waits(answers(predictor, seen, strange, now), asked)


def _split(table: WaitTable) -> tuple[WaitTable, WaitTable, float]:
    """What is known at the last look, who is asked about then, and when that is."""
    now = float(table.poll_s.max())
    return table.take(table.poll_s < now).known_at(now), table.take(table.poll_s == now), now


def _are_waits(said: NDArray[np.float64], asked: WaitTable) -> None:
    assert said.shape == (len(asked), len(LEVELS))
    assert np.isfinite(said).all(), "an answer is not finite"
    assert (said >= 0).all(), "a wait is negative"
    assert (np.diff(said, axis=1) >= 0).all(), "a lower level has a later time"


def example() -> WaitTable:
    """A table to check predictors on."""
    return wait_table(made_up_looks())


FACTS: tuple[Callable[[Predictor, WaitTable], None], ...] = (
    quantiles_are_waits,
    the_same_seed_says_the_same,
    the_future_says_nothing,
    earlier_learning_may_be_handed_in,
    little_is_enough,
    unknown_features_are_borne,
)
