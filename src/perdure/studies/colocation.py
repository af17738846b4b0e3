"""Does it matter how far a VM is from its storage? Daily failure rates of two distances, compared.

Days differ far more than chance alone would have them, so the day is what is drawn again and what is exchanged: the
interval is a bootstrap over days, the test flips the two distances within each day.

Source: Q. Zhang et al., "Deepview", NSDI 2018: 11.4 % more failures at three hops than at two over three months, with
41 % and 52 % of the VMs. Bootstrap and sign flips: B. Efron, R. Tibshirani, "An introduction to the bootstrap", 1993.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.blame.window import Floats, Ints
from perdure.errors import InputError

COLUMNS = ("day", "hops", "units", "failures")
DRAWN, FLIPPED = 4_000, 20_000
_AT_ONCE = 500  # draws that are in memory together
FEWEST_DAYS = 5
MOST_DAYS = 100_000


@dataclass(frozen=True, slots=True)
class Days:
    """VMs and failures by day, near and far; all (n_days,), of the days that have both distances."""

    names: tuple[str, ...]
    near_hops: int
    far_hops: int
    near_units: Ints
    near_failures: Ints
    far_units: Ints
    far_failures: Ints


@dataclass(frozen=True, slots=True)
class ColocationResult:
    """How much more often the far ones fail: 0.114 is 11.4 %."""

    near_share: float  # of all units
    far_share: float
    near_rate: float  # failures of a unit and day
    far_rate: float
    excess: float
    excess_low: float  # 95 % interval
    excess_high: float
    p: float  # of so large a difference, either way, were distance to make none


def read_days(lines: Iterable[str], source: str = "<days>") -> Days:
    """Read a CSV of ``day,hops,units,failures``, one row for each day and distance; two distances.

    Raises `InputError`, naming the row.
    """
    reader = csv.DictReader(lines, restval="")
    try:
        return _days(_counts(reader, source), source)
    except csv.Error as err:  # a field beyond the limit of the module
        raise InputError(
            f"{source}, row {reader.line_num}", f"is not CSV: {err}", f"Write {','.join(COLUMNS)}"
        ) from err


def _counts(reader: csv.DictReader[str], source: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Units and failures by day and distance."""
    if missing := set(COLUMNS) - set(reader.fieldnames or ()):
        raise InputError(f"{source}, row 1", f"no column {sorted(missing)[0]}", f"Write {','.join(COLUMNS)}")
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for record in reader:
        at = f"{source}, row {reader.line_num}"
        hops, units, failures = (_count(record[name], name, at) for name in COLUMNS[1:])
        if failures > units:
            raise InputError(at, f"{failures} of {units} units failed", "Count all units, failed ones too")
        if (record["day"], hops) in found:
            raise InputError(at, f"day {record['day']!r} has {hops} hops twice", "Add its rows up")
        found[record["day"], hops] = units, failures
        if len(found) > 2 * MOST_DAYS:
            raise InputError(at, f"more than {MOST_DAYS} days", "Take fewer")
    return found


def _count(text: str, name: str, at: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise InputError(at, f"{name} is {text[:40]!r}, not a whole number", "Write 0 or more")
    return int(text)


def _days(found: dict[tuple[str, int], tuple[int, int]], source: str) -> Days:
    """Days with both distances, in the order in which the near one first stands. Raises `InputError` for too few."""
    distances = sorted({hops for _, hops in found})
    if len(distances) != 2:
        raise InputError(source, f"{len(distances)} distances in it", "Give rows of two, such as 2 and 3 hops")
    near, far = distances
    names = tuple(day for day, hops in found if hops == near and (day, far) in found)
    if len(names) < FEWEST_DAYS:
        raise InputError(source, f"{len(names)} days have both distances", f"Give at least {FEWEST_DAYS}")
    columns = [np.array([found[day, hops] for day in names], np.int64).T for hops in distances]
    if any(int(units.sum()) == 0 for units, _ in columns):
        raise InputError(source, "one distance has no units at all", "Give rows of two distances that are used")
    (near_units, near_failures), (far_units, far_failures) = columns
    return Days(names, near, far, near_units, near_failures, far_units, far_failures)


def compare(days: Days, rng: Generator) -> ColocationResult:
    """Compare the two distances. Where the near ones never failed and the far ones did, the excess is infinite.

    The excess is the ratio of the pooled rates less 1, its interval the 2.5 % and 97.5 % quantiles of 4,000 draws of
    days with replacement. p is of 20,000 sign flips, the observed one counted, so never below 5e-5. Neither corrects
    for a trend or for weekdays.
    """
    n = np.stack([days.near_units, days.far_units]).astype(np.float64)
    e = np.stack([days.near_failures, days.far_failures]).astype(np.float64)
    shares, rates = n.sum(axis=1) / n.sum(), e.sum(axis=1) / n.sum(axis=1)
    drawn = np.concatenate([_excess(e, n, _again(len(days.names), rng)) for _ in range(DRAWN // _AT_ONCE)])
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return ColocationResult(
        float(shares[0]), float(shares[1]), float(rates[0]), float(rates[1]),
        float(_ratio(rates[1], rates[0])) - 1, float(low), float(high), _p(e, n, rng),
    )  # fmt: skip


def _again(days: int, rng: Generator) -> NDArray[np.int64]:
    """(_AT_ONCE, n_days) how often each day is drawn."""
    return rng.multinomial(days, np.full(days, 1 / days), size=_AT_ONCE)


def _excess(e: Floats, n: Floats, weights: NDArray[np.int64]) -> Floats:
    """(n_draws,) the excess of each weighting of the days."""
    failed, units = weights @ e.T, weights @ n.T
    rates = failed / np.maximum(units, 1)
    excess: Floats = _ratio(rates[:, 1], rates[:, 0]) - 1
    return excess


def _ratio(far: Floats | np.float64, near: Floats | np.float64) -> Floats:
    """The far rate over the near one; 1 where both are 0, infinite where only the near one is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.where((near == 0) & (far == 0), 1.0, np.divide(far, near))
    return ratio


def _p(e: Floats, n: Floats, rng: Generator) -> float:
    """Sign flips of each day's difference of rates, weighted by the day's units."""
    rates = e / np.maximum(n, 1)
    difference = (rates[1] - rates[0]) * n[0] * n[1] / np.maximum(n.sum(axis=0), 1)
    seen, as_large = abs(difference.sum()) * (1 - 1e-12), 1
    for _ in range(FLIPPED // _AT_ONCE):
        signs = rng.integers(0, 2, size=(_AT_ONCE, len(difference))) * 2 - 1
        as_large += int((abs(signs @ difference) >= seen).sum())
    return as_large / (FLIPPED + 1)
