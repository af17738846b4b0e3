"""The figures of a case that ran with several seeds: their means, with the intervals that the seeds leave open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean

from numpy.random import Generator, Philox

from perdure.simulation.metrics import Metrics, MetricSpread, interval
from perdure.simulation.sweep import Run, SweepCase

Interval = tuple[float, float]  # of a mean, at 95%, by bootstrap over the seeds; both ends the mean where none differ


@dataclass(frozen=True, slots=True)
class SeedMeans:
    """Means over the seeds of what `Metrics` says of each; counts are rounded."""

    case: SweepCase  # with seed 0
    jobs: int
    finished: int
    jct_s: MetricSpread
    jct_interval_s: Interval
    wait_s: MetricSpread
    wait_interval_s: Interval
    slowdown: float
    preemptions: int
    makespan_s: float
    utilisation: float
    used_in_window: float
    goodput: float
    wasted_gpu_h: float
    success_rate: float

    @classmethod
    def of(cls, case: SweepCase, found: Sequence[Metrics]) -> SeedMeans:
        return cls(
            case,
            found[0].jobs,
            round(fmean(each.finished for each in found)),
            _spread([each.jct_s for each in found]),
            _interval([each.jct_s.mean for each in found]),
            _spread([each.wait_s for each in found]),
            _interval([each.wait_s.mean for each in found]),
            fmean(each.slowdown.mean for each in found),
            round(fmean(each.preemptions for each in found)),
            fmean(each.makespan_s for each in found),
            fmean(each.utilisation for each in found),
            fmean(each.used_in_window for each in found),
            fmean(each.goodput for each in found),
            fmean(each.wasted_gpu_h for each in found),
            fmean(each.success_rate for each in found),
        )


def over_seeds(runs: Iterable[Run]) -> Iterator[SeedMeans]:
    """The means of each case, in the order of the runs."""
    found: dict[SweepCase, list[Metrics]] = {}
    for run in runs:
        found.setdefault(replace(run.case, seed=0), []).append(run.metrics)
    return (SeedMeans.of(case, metrics) for case, metrics in found.items())


def _spread(found: Sequence[MetricSpread]) -> MetricSpread:
    return MetricSpread(*(fmean(getattr(each, field.name) for each in found) for field in fields(MetricSpread)))


def _interval(values: Sequence[float]) -> Interval:
    return interval(values, Generator(Philox(key=0)))
