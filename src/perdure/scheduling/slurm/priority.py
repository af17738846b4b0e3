"""The factors of a job's priority, and their sum: priority/multifactor.

Each factor lies in [0, 1] unless a flag says that it is not normalised; the priority is a whole number from 1 on. What
never changes while a job waits is summed once (`fixed_part`); age and fair share are added whenever priorities are
calculated, each PriorityCalcPeriod.

Source: src/plugins/priority/multifactor/priority_multifactor.c of SchedMD/slurm 284c3b9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.settings import PrioritySettings

HIGHEST = 2.0**32 - 1
LOWEST = 1.0  # 0 is a job that is held

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What jobs ask for, shape (n_jobs,), and what there is."""

    nodes: Floats
    cpus: Floats
    all_nodes: float
    all_cpus: float


def age_factor(now: float, since: float, most: float) -> float:
    """How long a job has accrued age, of the `most` that counts; one that is not eligible yet has `since` ahead."""
    return min(1.0, max(0.0, now - since) / most) if most > 0 else float(now > since)


def size_factor(sizes: Sizes, settings: PrioritySettings, limit_min: Floats) -> Floats:
    """The factor of a job's size, shape (n_jobs,), in [0, 1]; `limit_min` is the time limit in minutes.

    Large jobs first; or small ones (PriorityFavorSmall); or, with SMALL_RELATIVE_TO_TIME, processors over the limit:
    that factor is at most 1 divided by the minutes, so its weight must be large.
    """
    if "SMALL_RELATIVE_TO_TIME" in settings.flags:
        per_node = sizes.nodes * sizes.all_cpus / sizes.all_nodes
        share = np.maximum(per_node, sizes.cpus) / np.maximum(limit_min, 1.0) / sizes.all_cpus
        return _bounded(1 - share if settings.favor_small else share)
    nodes, cpus = sizes.nodes / sizes.all_nodes, sizes.cpus / sizes.all_cpus
    if settings.favor_small:
        return _bounded((1 - nodes + 1 - cpus) / 2)
    return _bounded((nodes + cpus) / 2)


def normalised(values: Floats, largest: float, flag: str, settings: PrioritySettings) -> Floats:
    """Priorities of partitions, QOS or associations by the largest of them all, unless ``NO_NORMAL_*`` is set."""
    if flag in settings.flags:
        return values
    return values / largest if largest > 0 else np.zeros_like(values)


def priority(fixed: float, age: float, fair_share: float) -> int:
    """The whole number by which jobs are ordered, the largest first; age and fair share are weighted already."""
    return int(min(HIGHEST, max(LOWEST, fixed + age + fair_share)))


def _bounded(factor: Floats) -> Floats:
    return np.clip(factor, 0.0, 1.0)
