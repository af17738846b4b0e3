"""What would start sooner: the same job with fewer GPUs, a shorter limit, or in another partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from perdure.waits.forecast import WaitForecast
from perdure.waits.queue import Queue, QueuedJob, QueuedPartition
from perdure.waits.rollout import HORIZON_S

LEAST_GAIN_S = 60.0
LEAST_GAIN = 0.1  # of the wait: what gains less is not worth a word
MOST = 6


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change of what a job asks for, and when it would start then."""

    change: str  # in words
    options: str  # of sbatch
    job: QueuedJob


@dataclass(frozen=True, slots=True)
class Tried:
    """An alternative, and what is said of its start as of that of any job."""

    alternative: Alternative
    start_s: NDArray[np.float64]  # (n_samples,) future by future
    forecast: WaitForecast


@dataclass(frozen=True, slots=True)
class Sooner:
    """An alternative that starts sooner, as the same futures show it."""

    alternative: Alternative
    start_s: float  # median, seconds since the epoch
    gain_s: float  # by which that is before the median that is said of the job; inf: before all that is simulated


def alternatives(job: QueuedJob, queue: Queue) -> Iterator[Alternative]:
    """Changes that keep the job what it is; each as a job that is not in the queue yet."""
    fresh = structs.replace(
        job, job_id="", reason="", start_s=None, submit_s=queue.now_s, eligible_s=queue.now_s, tasks=1
    )
    for gpus in _fewer(job.gpus):
        nodes = max(1, -(-job.nodes * gpus // job.gpus))
        yield Alternative(
            f"{gpus} GPU{'s' if gpus > 1 else ''}", f"--gpus={gpus}", structs.replace(fresh, gpus=gpus, nodes=nodes)
        )
    if job.walltime_s is not None:
        limits_s = (max(60.0, np.ceil(job.walltime_s * share / 60) * 60) for share in (0.5, 0.25))
        for limit_s in dict.fromkeys(limits_s):
            if limit_s < job.walltime_s:
                limited = structs.replace(fresh, walltime_s=float(limit_s))
                yield Alternative(f"a limit of {_hours(limit_s)}", f"--time={int(limit_s // 60)}", limited)
    for partition in queue.partitions:
        if _admits(partition, job, queue):
            yield Alternative(
                f"partition {partition.name}",
                f"--partition={partition.name}",
                structs.replace(fresh, partitions=(partition.name,)),
            )


def sooner(
    asked_start_s: NDArray[np.float64], forecast: WaitForecast, found: Sequence[Tried], now_s: float
) -> list[Sooner]:
    """The alternatives that are worth a word, the soonest first; `forecast` is what is said of the job itself.

    One must gain enough both by what is said and in most futures: medians of few futures differ by chance. It may have
    been tried in the first of the futures alone.
    """
    better = []
    usual_s = float(np.median(asked_start_s)) - now_s
    for each in found:
        with np.errstate(invalid="ignore"):  # neither may ever start
            differences = asked_start_s[: len(each.start_s)] - each.start_s
        mostly_s = float(np.median(np.nan_to_num(differences, nan=0.0, posinf=np.inf)))
        gain_s = np.inf if forecast.median_s >= HORIZON_S else forecast.median_s - each.forecast.median_s
        if mostly_s >= _least_gain(usual_s) and gain_s >= _least_gain(forecast.median_s):
            better.append(Sooner(each.alternative, now_s + each.forecast.median_s, gain_s))
    return sorted(better, key=lambda each: each.start_s)[:MOST]


def _least_gain(wait_s: float) -> float:
    return max(LEAST_GAIN_S, LEAST_GAIN * min(wait_s, 1e9))


def may_be_sooner(asked_start_s: NDArray[np.float64], start_s: NDArray[np.float64], least: int) -> bool:
    """Whether a few futures leave it open that an alternative is sooner in most: it was in at least so many of them."""
    return int((start_s < asked_start_s).sum()) >= least


def _fewer(gpus: int) -> Iterator[int]:
    """Halves, down to one."""
    while gpus > 1:
        gpus //= 2
        yield gpus


def _admits(partition: QueuedPartition, job: QueuedJob, queue: Queue) -> bool:
    """Whether the job might be submitted there instead, as far as the queue shows it."""
    if partition.name in job.partitions or not partition.is_up:
        return False
    nodes = [node for node in queue.nodes_of((partition.name,)) if node.is_usable]
    fits = sum(node.gpus for node in nodes) >= job.gpus and len(nodes) >= job.nodes
    limit = partition.max_time_s
    may = limit is None or (job.walltime_s is not None and job.walltime_s <= limit)
    return fits and may and (partition.max_nodes is None or job.nodes <= partition.max_nodes)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"
