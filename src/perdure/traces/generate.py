"""Traces of any size that look like Philly's: sizes, durations, bursts, virtual clusters, failures with attempts.

Fitted to published statistics of that trace: shares of GPU counts; for each class of size the duration's median, its
quantile 0.9 and the share of GPU time; arrivals that follow the day and come in bursts, those on one GPU more so; few
virtual clusters with most jobs, and others with most GPU time; failures as in `perdure.traces.failure_table`. How near
it comes is in ``benchmarks/trace_statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.traces.arrivals import PHILLY, Arrivals, draw_submits, in_sweeps
from perdure.traces.failure_table import REASONS, SHARE_FAILING, draw_reasons, draw_rtf_s, draw_trials

_DAY_S = 86_400.0
_SHARE_KILLED, _KILLED_LONG = 0.135, 0.19  # of all jobs; and they are picked by this power of their GPU time
_PLACES = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
# Run time over the limit asked for, at its quantiles: users ask for four times what they need.
_USE_PLACES, _USE = np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([0.005, 0.04, 0.24, 0.49, 1.0])
_LONGEST_LIMIT_S = 30 * _DAY_S
_USERS_A_CLUSTER = 24


@dataclass(frozen=True, slots=True)
class _Size:
    """A class of jobs: its share of all, the GPU counts in it, and its duration in seconds at `_PLACES`."""

    share: float
    gpus: tuple[int, ...]
    weights: tuple[float, ...]
    duration_s: tuple[float, ...]


_SIZES = (
    _Size(0.9315, (1,), (1.0,), (15, 48, 115, 1117, 2900, 8500, 17e3, 110e3, 1.0e6)),
    _Size(0.045, (2, 3, 4), (0.44, 0.02, 0.54), (3, 10, 25, 367, 48e3, 166e3, 240e3, 700e3, 2.4e6)),
    _Size(0.020, (8,), (1.0,), (20, 80, 850, 23_684, 140e3, 352e3, 500e3, 1.1e6, 2.7e6)),
    _Size(0.0035, (12, 16, 24, 32, 64, 128), (0.05, 0.7, 0.04, 0.17, 0.03, 0.01),
          (20, 50, 700, 21_137, 90e3, 248e3, 400e3, 900e3, 1.7e6)),
)  # fmt: skip
# Shares of virtual clusters: of the jobs on one GPU, and of the wide jobs, which hold most of the GPU time.
_NARROW = (0.52, 0.19, 0.12, 0.09, 0.02, 0.02, 0.012, 0.01, 0.007, 0.004, 0.0035, 0.002, 0.001, 0.0003, 0.0002)
_WIDE = (0.03, 0.05, 0.06, 0.13, 0.09, 0.04, 0.01, 0.29, 0.19, 0.08, 0.02, 0.008, 0.001, 0.0005, 0.0005)


def generate(
    n_jobs: int,
    cluster: Cluster,
    load: float,
    rng: Generator,
    failures: bool = True,
    arrivals: Arrivals = PHILLY,
) -> JobTable:
    """Draw a trace of `n_jobs` jobs that keeps the share `load` of the cluster's GPUs busy, if all start at once.

    Parameters
    ----------
    cluster : its GPUs set how fast jobs come; a job is at most as wide as the cluster.
    load : GPU time asked for over GPU time there is, until the last submit; above 1 the queue grows.
    failures : record failed attempts, and kill some jobs. Without, every job passes at its first attempt.
    arrivals : the rhythm in which jobs come.

    Raises `InputError` for a number of jobs, a load or a cluster out of its range. The table counts from a midnight.
    """
    if n_jobs < 1 or not 0 < load < np.inf or cluster.total_gpus < 1:
        what = f"{n_jobs} jobs at load {load} on {cluster.total_gpus} GPUs cannot be drawn"
        raise InputError("trace generate", what, "Ask for at least 1 job and 1 GPU, and a load above 0")
    size, gpus = _draw_gpus(n_jobs, rng)
    gpus = np.minimum(gpus, cluster.total_gpus)
    duration_s = _draw_durations(size, rng)
    attempts, ending = None, np.full(n_jobs, TableEnding.PASSED, np.int8)
    if failures:
        attempts, ending = _draw_attempts(gpus, duration_s, rng)
        duration_s = np.add.reduceat(attempts.duration_s, attempts.first[:-1])
    span_s = float(gpus @ duration_s) / (cluster.total_gpus * load)
    vc = _draw_clusters(gpus, rng)
    use = np.interp(rng.random(n_jobs), _USE_PLACES, _USE)
    submit_s = draw_submits(gpus == 1, vc, span_s, arrivals, rng)
    user = in_sweeps(_draw_users(vc, rng), vc, submit_s, arrivals.sweep, rng)
    table = JobTable(
        job_id=np.empty(n_jobs, "U1"),
        submit_s=submit_s,
        gpus=gpus,
        duration_s=duration_s,
        user=_user_names()[user],
        vc=np.array([f"vc{number:02d}" for number in range(1, len(_NARROW) + 1)])[vc],
        ending=ending,
        walltime_s=np.maximum(duration_s, np.minimum(duration_s / use, _LONGEST_LIMIT_S)),
        attempts=attempts,
    ).by_submit()
    return replace(table, job_id=np.arange(1, n_jobs + 1).astype(f"U{len(str(n_jobs))}"))


def _draw_gpus(n_jobs: int, rng: Generator) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The class and the GPU count of each job."""
    shares = np.array([size.share for size in _SIZES])
    chosen = rng.choice(len(_SIZES), n_jobs, p=shares / shares.sum())
    gpus = np.empty(n_jobs, np.int64)
    for place, size in enumerate(_SIZES):
        rows = np.flatnonzero(chosen == place)
        gpus[rows] = rng.choice(size.gpus, len(rows), p=size.weights)
    return chosen, gpus


def _draw_durations(size: NDArray[np.intp], rng: Generator) -> NDArray[np.float64]:
    """Whole seconds, by inverting the quantiles of each class, straight in the logarithm between them."""
    at = rng.random(len(size))
    drawn = np.empty(len(size))
    for place, each in enumerate(_SIZES):
        rows = size == place
        drawn[rows] = np.exp(np.interp(at[rows], _PLACES, np.log(each.duration_s)))
    return drawn.round()


def _draw_clusters(gpus: NDArray[np.int64], rng: Generator) -> NDArray[np.intp]:
    chosen = np.empty(len(gpus), np.intp)
    for shares, rows in ((_NARROW, gpus == 1), (_WIDE, gpus > 1)):
        weights = np.array(shares)
        chosen[rows] = rng.choice(len(shares), int(rows.sum()), p=weights / weights.sum())
    return chosen


def _draw_users(vc: NDArray[np.intp], rng: Generator) -> NDArray[np.intp]:
    """Users belong to one virtual cluster; the k-th of it submits 1/k of what its first does."""
    weights = 1 / np.arange(1, _USERS_A_CLUSTER + 1)
    return rng.choice(_USERS_A_CLUSTER, len(vc), p=weights / weights.sum()) + vc * _USERS_A_CLUSTER


def _user_names() -> NDArray[np.str_]:
    return np.array([f"u{user:03d}" for user in range(1, len(_NARROW) * _USERS_A_CLUSTER + 1)], np.str_)


def _draw_attempts(
    gpus: NDArray[np.int64], duration_s: NDArray[np.float64], rng: Generator
) -> tuple[Attempts, NDArray[np.int8]]:
    """Attempts and endings of jobs that run for `duration_s` once nothing goes wrong.

    What fails for good never does, and has run for as long as its attempts took to fail; a job that heals runs for its
    duration after that. Jobs that their owners kill are mostly the long ones, and end after their duration.
    """
    n_jobs = len(duration_s)
    rows = rng.choice(n_jobs, int(rng.binomial(n_jobs, SHARE_FAILING)), replace=False)
    reasons = draw_reasons(len(rows), rng)
    trials = draw_trials(reasons, rng)
    rtf_s = np.maximum(1.0, draw_rtf_s(np.repeat(reasons, trials), rng).round())

    failed = np.zeros(n_jobs, np.int64)  # failed attempts
    failed[rows] = trials
    ends = np.ones(n_jobs, bool)  # whether an attempt comes after the failed ones
    ends[rows] = np.array([reason.heals for reason in REASONS])[reasons]
    ending = np.where(ends, TableEnding.PASSED, TableEnding.FAILED)
    ending[_draw_killed(gpus * duration_s, np.flatnonzero(failed == 0), rng)] = TableEnding.KILLED

    first = np.concatenate([[0], np.cumsum(failed + ends)]).astype(np.int64)
    took_s = np.empty(first[-1])
    passed = np.zeros(first[-1], bool)
    last = first[1:][ends] - 1
    took_s[last] = duration_s[ends]
    passed[last] = ending[ends] == TableEnding.PASSED
    within = np.arange(len(rtf_s)) - np.repeat(np.cumsum(trials) - trials, trials)
    took_s[np.repeat(first[rows], trials) + within] = rtf_s
    return Attempts(first, took_s, passed), ending.astype(np.int8)


def _draw_killed(service: NDArray[np.float64], among: NDArray[np.intp], rng: Generator) -> NDArray[np.intp]:
    """The rows of jobs that are killed: all different, and each drawn with a chance that grows with its service.

    The largest of the logarithms of the weights, each with a Gumbel draw added, are such a sample.
    """
    keys = _KILLED_LONG * np.log(service[among]) + rng.gumbel(size=len(among))
    return among[np.argsort(-keys, kind="stable")[: int(_SHARE_KILLED * len(service))]]
