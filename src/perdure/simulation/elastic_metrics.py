"""The figures of a replay of jobs with work: times, GPU-hours, restarts, and how fair it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from perdure.simulation.app_times import app_times
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.fairness import envy, jain
from perdure.throughput.speed import Floats


@dataclass(frozen=True, slots=True)
class ElasticMetrics:
    """Figures over all jobs; the p-th percentile is the value at place ``ceil(p * n / 100)``."""

    policy: str
    jobs: int
    jct_mean_s: float
    jct_p50_s: float
    jct_p99_s: float
    jct_max_s: float
    makespan_s: float
    gpu_h: float
    utilisation: float
    restart_gpu_h: float
    restarts: float  # of a job, in the mean
    max_rho: float
    jain: float
    """Jain's index of ``1 / rho``: 1 where all are served alike, 1 / n where one has everything."""
    success_rate: float  # jobs whose last attempt passed
    rounds: int
    envy: float = np.nan
    """How much of its speed a job misses against the best share of others that were there, in the mean; 0: nothing."""
    rounds_cut: int = 0  # in which a solver ran out of time
    worst_gap: float = 0.0  # of these: how far, relatively, the plan may be from the best; inf: not known
    apps: int | None = None  # that search with several jobs; None: no trace of apps
    app_jct_mean_s: float | None = None
    app_jct_p99_s: float | None = None
    stopped: int = 0  # jobs that a tuner stopped early

    @classmethod
    def of(cls, result: ElasticResult) -> ElasticMetrics:
        """NaN for jobs of which the profiles do not say how they would run alone."""
        jct_s, ratio = np.sort(result.jct_s), rho(result)
        makespan_s = float(result.end_s.max() - result.submit_s.min())
        known = 1.0 / ratio[np.isfinite(ratio) & (ratio > 0)]
        return cls(
            result.policy,
            len(jct_s),
            float(jct_s.mean()),
            _percentile(jct_s, 50),
            _percentile(jct_s, 99),
            float(jct_s[-1]),
            makespan_s,
            float(result.gpu_s.sum() / 3600),
            float(result.gpu_s.sum() / (result.total_gpus * makespan_s)),
            float(result.restart_gpu_s.sum() / 3600),
            float(result.restarts.mean()),
            float(np.nanmax(ratio)) if len(known) else np.nan,
            jain(known) if len(known) else np.nan,
            float(result.passed.mean()),
            result.rounds,
            _mean(envy(result)),
            len(result.gaps),
            max(result.gaps, default=0.0),
            *_of_apps(result),
        )

    def cut_short(self) -> list[str]:
        """What is to be said where a solver ran out of time; else nothing."""
        if not self.rounds_cut:
            return []
        far = "an unknown part" if self.worst_gap == np.inf else f"up to {self.worst_gap:.2%}"
        return [f"{self.policy}: in {self.rounds_cut} rounds the solver ran out of time, {far} from the best plan."]

    def to_json(self) -> dict[str, Any]:
        """The same for JSON; None for what is not known."""
        return {
            name: None if value in (np.inf, None) or value != value else value for name, value in asdict(self).items()
        }


def _of_apps(result: ElasticResult) -> tuple[int | None, float | None, float | None, int]:
    if not result.searches:
        return None, None, None, 0
    jct_s = np.sort(app_times(result).jct_s)
    stopped = 0 if result.stopped is None else int(result.stopped.sum())
    return len(jct_s), float(jct_s.mean()), _percentile(jct_s, 99), stopped


def _mean(values: Floats) -> float:
    """Of those that are known."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _percentile(ordered: Floats, p: int) -> float:
    return float(ordered[ceil(p * len(ordered) / 100) - 1])


def rho(result: ElasticResult) -> Floats:
    """Finish-time fairness of each app, and of each job without one, in the order in which they come.

    As `fairness.rho`, with the time alone on the GPUs and with the batch asked for. NaN where the profiles do not say
    that.
    """
    times = app_times(result)
    return times.jct_s / times.ideal_s
