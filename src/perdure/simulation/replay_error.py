"""How far a simulation is from what was recorded: the waits of the same jobs, and the use of the GPUs, day by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.groups import SIZES, size_name
from perdure.simulation.recorded import as_recorded
from perdure.simulation.result import Result
from perdure.simulation.use import attempts_held, day_edges, held_gpu_s
from perdure.simulation.verdict import length

FLOOR_S = 60.0  # shorter waits count as this long: nobody cares whether it was 1 s or 10 s
MOST_GROUPS = 20  # partitions, those with most jobs
_RELIED_ON, _DOUBTED = 0.6, 0.3  # shares within a factor of two from which a replay is believed, and doubted
_MEAN_RELIED_ON, _MEAN_DOUBTED = 2.0, 5.0  # factors between mean waits up to which it is: most jobs may not wait at all

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WaitError:
    """Simulated waits against recorded ones, of a group of jobs."""

    jobs: int
    recorded_median_s: float
    simulated_median_s: float
    median_error_s: float  # median of the absolute differences
    median_log10_error: float  # of the absolute differences of the logarithms
    within_2x: float  # share of the jobs whose waits differ by no more than a factor of two
    started_alike: float  # share of the jobs that started within a minute of the recorded start
    recorded_mean_s: float
    simulated_mean_s: float
    mean_log10_error: float  # as of the median

    @property
    def mean_factor(self) -> float:
        """How many times the one mean is the other; a mean below `FLOOR_S` counts as that."""
        means = max(self.recorded_mean_s, FLOOR_S), max(self.simulated_mean_s, FLOOR_S)
        return max(means) / min(means)


@dataclass(frozen=True, slots=True)
class DayUse:
    """Shares of the GPU time of a day that jobs held; its ends are cut where the submits begin and end."""

    day: int  # since the epoch, or since the trace began where that is not known; in UTC
    recorded: float
    simulated: float


@dataclass(frozen=True, slots=True)
class ReplayError:
    """All jobs with a recorded start, and groups of them."""

    all: WaitError
    rank_correlation: float  # Spearman's, of the waits; NaN where one side does not vary
    by_partition: Mapping[str, WaitError] = field(default_factory=dict)
    by_gpus: Mapping[str, WaitError] = field(default_factory=dict)
    without_start: int = 0  # jobs of which no start is recorded; they are left out
    use_by_day: Sequence[DayUse] = ()

    @property
    def use_error(self) -> float:
        """How far the shares of GPU time in use differ, as the mean over all days."""
        return float(np.mean([abs(day.recorded - day.simulated) for day in self.use_by_day] or [0.0]))

    @property
    def says(self) -> str:
        """How far to believe what the same simulation says of other policies."""
        share, off = self.all.within_2x, self.all.mean_factor
        means = f"{length(self.all.simulated_mean_s)} instead of {length(self.all.recorded_mean_s)}"
        how = f"{share:.0%} of the waits are within a factor of two, and jobs wait {means} in the mean"
        if share >= _RELIED_ON and off <= _MEAN_RELIED_ON:
            return f"The replay is close to what was recorded: {how}."
        if share >= _DOUBTED and off <= _MEAN_DOUBTED:
            apart = length(abs(self.all.simulated_mean_s - self.all.recorded_mean_s))
            return f"The replay is only roughly what was recorded: {how}. Treat differences below {apart} as none."
        return f"The replay is far from what was recorded: {how}. Do not decide by it."

    @property
    def closeness(self) -> float:
        """The largest is that of the replay most like the record, by the factors between the waits of all jobs."""
        return -self.all.mean_log10_error

    def cells(self) -> tuple[str, ...]:
        """A row of a table: jobs, how far their waits are off, within a factor of two, ranks alike, daily use."""
        alike = "" if np.isnan(self.rank_correlation) else f"{self.rank_correlation:.2f}"
        off = length(self.all.median_error_s), f"{self.all.within_2x:.0%}"
        return str(self.all.jobs), *off, alike, f"{self.use_error:.1%}"

    def to_json(self) -> dict[str, Any]:
        return {
            "says": self.says,
            "all": asdict(self.all),
            "rank_correlation": None if np.isnan(self.rank_correlation) else self.rank_correlation,
            "by_partition": {name: asdict(error) for name, error in self.by_partition.items()},
            "by_gpus": {name: asdict(error) for name, error in self.by_gpus.items()},
            "without_start": self.without_start,
            "use_error": self.use_error,
            "use_by_day": [asdict(day) for day in self.use_by_day],
        }


def replay_error(table: JobTable, result: Result) -> ReplayError | None:
    """Compare a run with the starts that its trace recorded; None where it recorded none.

    A wait counts from when the job was eligible, where that is told, else from its submit; so in both.
    """
    known = np.isfinite(table.start_s) & np.isfinite(result.start_s)
    if not known.any():
        return None
    came = np.where(np.isfinite(table.eligible_s), table.eligible_s, table.submit_s)
    recorded, simulated = table.start_s - came, result.start_s - came
    return ReplayError(
        _error(recorded[known], simulated[known]),
        _rank_correlation(recorded[known], simulated[known]),
        _errors(recorded, simulated, _largest(table.partition, known), known),
        _errors(recorded, simulated, _by_size(table.gpus), known),
        int((~known).sum()),
        _use_by_day(table, result, known),
    )


def _use_by_day(table: JobTable, result: Result, known: NDArray[np.bool_]) -> list[DayUse]:
    """Of the jobs with a recorded start, from the first submit to the last."""
    found = as_recorded(table, result.total_gpus)
    first_s, last_s = float(table.submit_s.min()), float(table.submit_s.max())
    if found is None or last_s <= first_s:
        return []
    first, edges = day_edges(table, last_s)
    there, was = found
    held = [
        held_gpu_s(attempts_held(gpus, run), edges) for gpus, run in ((there.gpus, was), (table.gpus * known, result))
    ]
    held[1] = np.minimum(held[1], result.total_gpus * np.diff(edges))  # see `use_over_time`
    shares = np.array(held) / (result.total_gpus * np.diff(edges))
    return [DayUse(first + i, *pair) for i, pair in enumerate(shares.T.tolist())]


def _errors(
    recorded: Floats, simulated: Floats, groups: Mapping[str, NDArray[np.bool_]], known: NDArray[np.bool_]
) -> dict[str, WaitError]:
    """Of each group that has a job with a recorded start."""
    rows = {name: group & known for name, group in groups.items()}
    return {name: _error(recorded[those], simulated[those]) for name, those in rows.items() if those.any()}


def _error(recorded: Floats, simulated: Floats) -> WaitError:
    logs = np.abs(_log10(recorded) - _log10(simulated))
    apart = np.abs(recorded - simulated)
    return WaitError(
        len(recorded),
        float(np.median(recorded)),
        float(np.median(simulated)),
        float(np.median(apart)),
        float(np.median(logs)),
        float((logs <= np.log10(2) + 1e-12).mean()),
        float((apart <= FLOOR_S).mean()),
        float(recorded.mean()),
        float(simulated.mean()),
        float(logs.mean()),
    )


def _log10(wait_s: Floats) -> Floats:
    return np.log10(np.maximum(wait_s, FLOOR_S))


def _rank_correlation(one: Floats, other: Floats) -> float:
    ranks = np.array([_ranks(one), _ranks(other)])
    if (ranks.std(axis=1) == 0).any():
        return float("nan")
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    """The place of each value in their order; of equal ones the mean of their places."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    places: Floats = (last - (counts - 1) / 2)[which]
    return places


def _largest(words: NDArray[np.str_], known: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    names, counts = np.unique(words[known], return_counts=True)
    most = names[np.argsort(-counts, kind="stable")][:MOST_GROUPS]
    return {str(name): words == name for name in most if name}


def _by_size(gpus: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    return {size_name(low, high): (gpus >= low) & (gpus <= high) for low, high in SIZES}
