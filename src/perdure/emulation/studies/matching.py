"""Jobs that run on CPUs as well as on GPUs, slower by a factor of their own (T. N. Le et al., "AlloX", EuroSys 2020).

All jobs wait at the start. AlloX finds the assignment to machines and places in their queues that has the least mean
JCT, a matching of least weight: the job that is k-th from a queue's end delays k. DRF takes the next job for whichever
machine is free, in order of arrival (DRFF) or shortest first (DRFS).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable
from perdure.throughput.speed import Floats

JOBS, GPU_MACHINES, CPU_MACHINES = 60, 4, 8


def matched(times: Floats) -> float:
    """The least mean JCT, from times (n_jobs, n_machines)."""
    jobs, machines = times.shape
    places = np.arange(1, jobs + 1)
    cost = (times[:, :, None] * places).reshape(jobs, machines * jobs)
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].sum() / jobs)


def listed(times: Floats, order: NDArray[np.intp]) -> float:
    """The mean JCT where the next job of a list goes to the machine that is free first."""
    free = [(0.0, machine) for machine in range(times.shape[1])]
    total = 0.0
    for job in order:
        now, machine = heapq.heappop(free)
        end = now + times[job, machine]
        total += end
        heapq.heappush(free, (end, machine))
    return total / len(order)


def allox(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - times are drawn
    """Mean JCTs relative to DRF in order of arrival, and their spread over 20 sets of jobs."""
    found = []
    for _ in range(20):
        on_gpu = np.exp(rng.normal(5.0, 1.0, JOBS))
        slower = np.exp(rng.uniform(np.log(1.0), np.log(10.0), JOBS))
        times = np.column_stack([on_gpu] * GPU_MACHINES + [on_gpu * slower] * CPU_MACHINES)
        first = listed(times, np.arange(JOBS))
        short = listed(times, np.argsort(times.min(axis=1)))
        found.append((1.0, short / first, matched(times) / first))
    means, spread = np.mean(found, axis=0), np.std(found, axis=0)
    names = ("DRFF", "DRFS", "AlloX")
    rows = tuple((name, float(mean), float(sd)) for name, mean, sd in zip(names, means, spread, strict=True))
    return StudyTable(
        ("policy", "relative JCT", "spread"), rows,
        f"{JOBS} jobs, {GPU_MACHINES} GPUs and {CPU_MACHINES} CPU machines that are 1 to 10 times as slow",
    )  # fmt: skip
