"""What is said of one job's wait: a distribution, as its quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
INTERVAL = (0.1, 0.9)  # levels of the interval that is shown: four starts of five lie in it
SHORTEST_S = 1.0  # waits are averaged by their logarithm: none is shorter
SOON_S = 60.0


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """The remaining wait at `asked_s`: quantile by quantile, in seconds, rising with `LEVELS`."""

    asked_s: float
    wait_s: tuple[float, ...]
    remarks: tuple[str, ...] = ()  # what a reader should know, one sentence each
    raw_s: tuple[float, ...] = ()  # the quantiles before any correction; nothing where none is made

    def __post_init__(self) -> None:
        if len(self.wait_s) != len(LEVELS):
            raise ValueError(f"a forecast has {len(LEVELS)} quantiles, not {len(self.wait_s)}")

    @property
    def median_s(self) -> float:
        return self.at(0.5)

    @property
    def is_at_once(self) -> bool:
        """Whether no wait is to be expected."""
        return self.median_s <= SHORTEST_S and self.interval_s[1] < SOON_S

    @property
    def interval_s(self) -> tuple[float, float]:
        """The shortest and the longest wait, but for one in ten on each side."""
        return self.at(INTERVAL[0]), self.at(INTERVAL[1])

    def at(self, level: float) -> float:
        """The wait that is not exceeded with a chance of `level`; beyond the outermost quantiles, those."""
        return float(10 ** np.interp(level, LEVELS, _logs(self.wait_s)))

    def chance_within(self, wait_s: float) -> float:
        """The chance that the job starts within this many seconds; never said to be surer than the quantiles are."""
        logs = _logs(self.wait_s)
        asked = float(np.log10(max(wait_s, SHORTEST_S)))
        if asked < logs[0]:
            return 0.0 if wait_s <= 0 else LEVELS[0]
        if asked >= logs[-1]:
            return LEVELS[-1]
        rising = np.maximum.accumulate(logs + np.arange(len(logs)) * 1e-9)  # equal quantiles: the highest level counts
        return float(np.interp(asked, rising, LEVELS))

    def noting(self, *remarks: str) -> WaitForecast:
        """The same, with remarks more."""
        return replace(self, remarks=(*self.remarks, *(each for each in remarks if each not in self.remarks)))


def of_samples(asked_s: float, samples_s: NDArray[np.float64], remarks: Sequence[str] = ()) -> WaitForecast:
    """The forecast that equally likely waits make, shape (n_samples,), at least one."""
    return WaitForecast(asked_s, tuple(np.maximum(0.0, np.quantile(samples_s, LEVELS)).tolist()), tuple(remarks))


def of_quantiles(asked_s: float, quantiles_s: NDArray[np.float64], remarks: Sequence[str] = ()) -> WaitForecast:
    """The forecast of quantiles at `LEVELS`, shape (n_levels,); those that fall are put in order."""
    return WaitForecast(asked_s, tuple(np.maximum.accumulate(np.maximum(0.0, quantiles_s)).tolist()), tuple(remarks))


def blended(forecasts: Sequence[WaitForecast], weights: Sequence[float]) -> WaitForecast:
    """The average of forecasts of one instant, quantile by quantile, by the logarithm of the wait."""
    total = np.average([_logs(each.wait_s) for each in forecasts], axis=0, weights=weights)
    remarks = tuple(dict.fromkeys(remark for each in forecasts for remark in each.remarks))
    return of_quantiles(forecasts[0].asked_s, 10**total, remarks)


def _logs(wait_s: Sequence[float]) -> NDArray[np.float64]:
    return np.log10(np.maximum(wait_s, SHORTEST_S))
