"""CPUs given to jobs by need rather than in equal shares (J. Mohan et al., "Looking beyond GPUs", OSDI 2022: Synergy).

A job's data are prepared by CPUs; with fewer than it needs, it is slower in proportion. Proportional gives each GPU
the same CPUs. Synergy-Tune gives each job what it needs, and takes it from those that need less; no job gets less speed
than by equal shares.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable
from perdure.throughput.speed import Floats

GPUS, CPUS_OF_GPU, JOBS = 32, 3.0, 400
NEEDS, MIX = np.array([9.0, 6.0, 3.0, 1.0]), np.array([0.35, 0.25, 0.1, 0.3])
"""CPUs that a GPU needs to be kept busy: small and large models of images, speech, language; and their shares."""


def equal(needs: Floats) -> Floats:
    """CPUs of running jobs, by equal shares."""
    return np.full(len(needs), CPUS_OF_GPU)


def tuned(needs: Floats) -> Floats:
    """CPUs of running jobs, by need: at first no more than by equal shares, then the rest to those that need least."""
    given = np.minimum(needs, CPUS_OF_GPU)
    spare = GPUS * CPUS_OF_GPU - given.sum()
    for job in np.argsort(needs):
        more = min(spare, needs[job] - given[job])
        given[job], spare = given[job] + more, spare - more
    return given


def jct(arrive: Floats, work: Floats, needs: Floats, las: bool, give: Callable[[Floats], Floats]) -> Floats:
    """JCTs (n_jobs,) of jobs of one GPU; `las`: least attained service first, else shortest remaining time first."""
    left, served, done, now = work.copy(), np.zeros(len(work)), np.zeros(len(work)), 0.0
    while (done == 0).any():
        here = np.flatnonzero((done == 0) & (arrive <= now))
        later = arrive[(done == 0) & (arrive > now)]
        following = float(later.min()) if len(later) else np.inf
        if not len(here):
            now = following
            continue
        run = here[np.argsort((served if las else left)[here], kind="stable")[:GPUS]]
        speed = np.minimum(1.0, give(needs[run]) / needs[run])
        step = min(float((left[run] / speed).min()), following - now, 600.0 if las and len(here) > GPUS else np.inf)
        now += step
        left[run] -= step * speed
        served[run] += step
        done[run[left[run] <= 1e-6]] = now
    return done - arrive


def synergy(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - needs are given
    """Mean and 95th percentile of JCTs by equal shares over those by need, under two policies."""
    needs = rng.choice(NEEDS, JOBS, p=MIX)
    work = np.exp(rng.normal(9.0, 1.0, JOBS))
    rows = []
    for load in (0.4, 0.6):
        arrive = np.cumsum(rng.exponential(work.mean() / GPUS / load, JOBS))
        for name, las in (("SRTF", False), ("LAS", True)):
            by_share, by_need = (jct(arrive, work, needs, las, give) for give in (equal, tuned))
            rows.append(
                (name, load, float(by_share.mean() / by_need.mean()),
                 float(np.quantile(by_share, 0.95) / np.quantile(by_need, 0.95)))
            )  # fmt: skip
    return StudyTable(
        ("policy", "load", "mean JCT, equal / by need", "95th percentile"), tuple(rows),
        f"{JOBS} jobs of one GPU on {GPUS}, {CPUS_OF_GPU:g} CPUs a GPU; load counts jobs that have all CPUs they need",
    )  # fmt: skip
