"""Jobs whose stages use different resources, in one group (Y. Zhao et al., "Muri", SIGCOMM 2022).

An iteration of a job uses storage, CPU, GPU and network in turn. Alone it takes the sum of its stages. In a group,
stages of different jobs go on together: an iteration of all takes as long as the busiest resource, or the longest job.
SRTF runs one job on a GPU, shortest first; Muri-S forms groups of up to four of the shortest waiting jobs, each the one
that keeps most of the group's speed.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable
from perdure.throughput.speed import Floats

JOBS, GPUS, LARGEST = 120, 8, 4


def group_s(stages: Floats) -> float:
    """Seconds of one iteration of all jobs of a group, from their stages (n_jobs, n_resources).

    >>> group_s(np.array([[3.0, 1.0], [1.0, 3.0]]))
    4.0
    """
    return float(max(stages.sum(axis=0).max(), stages.sum(axis=1).max()))


def mean_jct(stages: Floats, iterations: NDArray[np.int64], arrive: Floats, groups: bool) -> float:
    """The mean JCT of jobs on `GPUS` GPUs; `groups`: by Muri-S, else by SRTF."""
    left, done = iterations * stages.sum(axis=1), np.zeros(len(iterations))
    now = 0.0
    while (done == 0).any():
        here = np.flatnonzero((done == 0) & (arrive <= now))
        if not len(here):
            now = float(arrive[done == 0].min())
            continue
        running = _chosen(stages, here[np.argsort(left[here])], groups)
        paces = np.concatenate(
            [np.full(len(each), stages[each].sum(axis=1) / group_s(stages[each])) for each in running]
        )
        jobs = np.concatenate(running)
        later = arrive[(done == 0) & (arrive > now)]
        step = min(float((left[jobs] / paces).min()), float(later.min() - now) if len(later) else np.inf)
        now, left[jobs] = now + step, left[jobs] - step * paces
        done[jobs[left[jobs] <= 1e-9]] = now
    return float((done - arrive).mean())


def _chosen(stages: Floats, waiting: NDArray[np.intp], groups: bool) -> list[NDArray[np.intp]]:
    """The jobs on each GPU, of those that wait, shortest first."""
    if not groups:
        return [waiting[i : i + 1] for i in range(min(GPUS, len(waiting)))]
    pool = list(waiting[: GPUS * LARGEST])
    found: list[NDArray[np.intp]] = []
    while pool and len(found) < GPUS:
        group = [pool.pop(0)]
        while pool and len(group) < LARGEST and len(pool) > GPUS - len(found) - 1:
            gains = [stages[[*group, each]].sum() / group_s(stages[[*group, each]]) for each in pool]
            best = int(np.argmax(gains))
            if gains[best] <= stages[group].sum() / group_s(stages[group]):
                break
            group.append(pool.pop(best))
        found.append(np.array(group))
    return found


def muri(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - stages are drawn
    """The mean JCT of SRTF over that of Muri-S, at three loads."""
    stages = rng.dirichlet((0.6, 0.6, 0.6, 0.6), JOBS)  # most jobs are bound by one resource
    iterations = np.ceil(np.exp(rng.normal(6.0, 1.0, JOBS))).astype(np.int64)
    rows = []
    for load in (0.5, 1.0, 2.0):
        span = iterations.sum() / GPUS / load
        arrive = np.sort(rng.uniform(0, span, JOBS))
        srtf, grouped = (mean_jct(stages, iterations, arrive, groups) for groups in (False, True))
        rows.append((load, srtf / grouped))
    return StudyTable(
        ("load", "JCT of SRTF / Muri-S"), tuple(rows),
        f"{JOBS} jobs of four resources, each bound mostly by one, on {GPUS} GPUs; work is lognormal",
    )  # fmt: skip
