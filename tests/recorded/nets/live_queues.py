"""Queues of Slurm that are stopped, forked, given one more job, and begun with a picture; and why each job waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.live import LiveQueue
from perdure.simulation.simulate import Engine
from tests.recorded.whole_runs import Case
from tests.simulation.tables import jobs
from tests.simulation.worlds import full_world

SEEDS = 14
STOPS_S = (7.0, 31.0, 90.0)
PROBES = jobs((1, 0, 50), (8, 0, 20), walltime_s=np.array([np.nan, 60.0]))


def cases() -> Iterator[Case]:
    for seed in range(SEEDS):
        yield f"replayed {seed}", partial(_replayed, seed)
        yield f"pictured {seed}", partial(_pictured, seed)


def _replayed(seed: int) -> object:
    """At some instants, when probes would start that came then, and what holds each job; likewise from both loops."""
    world = full_world(seed)
    told, starts = [], list[object]()
    for engine in _engines():
        queue = LiveQueue.replaying(
            world.table, world.cluster, Slurm(world.options.slurm), PROBES, engine, placement_named(world.placement),
            began_s=float(world.table.submit_s[0]) - 5.0,
        )  # fmt: skip
        found = list[object]()
        for stop_s in STOPS_S:
            at_s = float(world.table.submit_s[0]) + stop_s
            queue.advance(at_s)
            if engine == "plain":
                told.append([(queue.hold(row), sorted(queue.nodes_of(row))) for row in range(len(world.table))])
            found += [queue.start_if_submitted(probe, at_s, until_s=at_s + 2000.0) for probe in range(len(PROBES))]
        found += [queue.start_of(row, 1e5) for row in range(len(world.table))]
        assert not starts or repr(found) == repr(starts)
        starts = found
    return starts, told


def _pictured(seed: int) -> object:
    """A picture of the queue when a third of the jobs has come: some run since a while, others wait."""
    world, rng = full_world(seed), np.random.default_rng([seed, 6])
    now_s, table = float(world.table.submit_s[len(world.table) // 3]), world.table
    table = replace(table, attempts=None, start_s=_running(table, now_s, world.cluster.total_gpus, rng))
    found, placement = list[object](), placement_named(world.placement)
    for engine in _engines():
        queue = LiveQueue.at(table, now_s, world.cluster, Slurm(world.options.slurm), PROBES, engine, placement)
        starts = [queue.start_if_submitted(probe, now_s, now_s + 900.0) for probe in range(len(PROBES))]
        starts += [queue.start_of(row, 1e5) for row in range(len(table))]
        assert not found or repr(found) == repr(starts)
        found = list(starts)
    return found


def _running(table: JobTable, now_s: float, gpus: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Since when jobs run, as many as there are GPUs for."""
    start_s = np.full(len(table), np.nan)
    for row in np.flatnonzero(table.submit_s <= now_s).tolist():
        if table.gpus[row] <= gpus and table.dependency[row] == "" and rng.random() < 0.6:
            start_s[row], gpus = rng.integers(int(table.submit_s[row]), int(now_s) + 1), gpus - int(table.gpus[row])
    return start_s


def _engines() -> tuple[Engine, ...]:
    return ("plain", "compiled") if find_spec("numba") else ("plain",)
