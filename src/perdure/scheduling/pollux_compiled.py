"""A generation of Pollux's search as compiled loops (numba, extra `sim`): those of the plain text, to the last bit.

Both texts draw the same numbers in the same order, so that a run may go on with the other one at any generation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.throughput.speed import Floats

States = NDArray[np.int16]
Parents = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Of each child: the state of its first jobs, that of the others, and the job from which on (n_children,)."""


def children(
    states: States, parents: Parents, base: States, most: tuple[int, NDArray[np.int64], int], rng: Generator
) -> States:
    """Children, crossed, mutated and kept within the most: GPUs of a node, GPUs of each job, and nodes of a job."""
    count, (jobs, nodes) = len(parents[0]), base.shape
    back, loses = rng.random((count, jobs)), rng.random((count, jobs))
    lost, grows, more = (rng.random((count, jobs, nodes), np.float32) for _ in range(3))
    found = np.empty((count, jobs, nodes), np.int16)
    _compiled(_cross)(states, *parents, base, back, loses, lost, found)
    _compiled(_grow)(grows, more, most[0], found)
    _compiled(_keep)(rng.permutation(nodes), *most, found)
    return found


def speed_ups(states: States, base: States, speed_up: Floats, kept: Floats) -> Floats:
    """That of each job in each state (n_states, n_jobs), less where it restarts; arguments as of `pollux.Worth`."""
    found = np.empty(states.shape[:2])
    _compiled(_speed_up)(states, base, speed_up, kept, found)
    return found


@cache
def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    import numba  # takes half a second

    jit: Any = numba.njit
    try:
        return jit(cache=True)(loop)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder that a cache can be written to
        return jit(loop)  # type: ignore[no-any-return]


def _cross(states, first, second, cut, base, back, loses, lost, found) -> None:  # type: ignore[no-untyped-def]
    """Some jobs as one state has them, the others as another; some as they are now, some without some of their GPUs.

    Written in the part of Python that numba compiles, as all below.
    """
    count, jobs, nodes = found.shape
    for place in range(count):
        for job in range(jobs):
            parent = first[place] if job < cut[place] else second[place]
            for n in range(nodes):
                gpus = base[job, n] if back[place, job] < 0.1 else states[parent, job, n]
                if loses[place, job] < 0.1 and lost[place, job, n] < np.float32(0.1):
                    gpus = np.int16(0)
                found[place, job, n] = gpus


def _grow(grows, more, node, found) -> None:  # type: ignore[no-untyped-def]
    """More GPUs of nodes that have some free."""
    count, jobs, nodes = found.shape
    alone = 1 / jobs
    for place in range(count):
        for n in range(nodes):
            free, users = node, 0
            for job in range(jobs):
                free -= found[place, job, n]
                users += found[place, job, n] > 0
            if free <= 0:
                continue
            two = 1 / max(users, 1)
            there = alone + two - alone * two
            for job in range(jobs):
                gpus = found[place, job, n]
                if grows[place, job, n] < (there if gpus > 0 else alone):
                    found[place, job, n] = gpus + np.int16(more[place, job, n] * np.float32(node + 1 - gpus))


def _keep(order, node, most, most_nodes, found) -> None:  # type: ignore[no-untyped-def]
    """Nothing beyond the limits; nodes of a job are looked at in this order."""
    count, jobs, nodes = found.shape
    free, open_ = np.empty(nodes, np.int64), np.empty(nodes, np.bool_)  # to one job of several nodes
    for place in range(count):
        free[:] = node
        open_[:] = True
        for job in range(jobs):
            used = 0
            for n in range(nodes):
                used += found[place, job, n] > 0
            left, there = int(most[job]), 0
            for n in order:
                gpus = int(found[place, job, n])
                if used > 1 and gpus > 0:
                    gpus = gpus if open_[n] else 0
                    open_[n] = False
                there += gpus > 0
                gpus = min(gpus, left) if there <= most_nodes else 0
                left -= gpus
                gpus = min(gpus, int(free[n]))
                free[n] -= gpus
                found[place, job, n] = gpus


def _speed_up(states, base, speed_up, kept, found) -> None:  # type: ignore[no-untyped-def]
    """As above."""
    count, jobs, nodes = states.shape
    for place in range(count):
        for job in range(jobs):
            gpus, used, moved = 0, 0, False
            for n in range(nodes):
                here = states[place, job, n]
                gpus += here
                used += here > 0
                moved |= here != base[job, n]
            found[place, job] = speed_up[job, int(used > 1), gpus]
            if moved:
                found[place, job] *= kept[job]
