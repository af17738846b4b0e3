"""What is free on each node in a backfill cycle, against one number a tick and node."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.scheduling.placement.as_asked import AsAsked
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.node_plan import NodePlan, plan_of
from perdure.simulation.compiled.node_room import NodeRoom
from tests.simulation.compiled.in_python import in_python
from tests.simulation.compiled.test_node_room import CLUSTER, GPUS, MINE, NODES, room, shares_of

kernels, rooms = in_python("node_plan"), in_python("node_room")
NOW, LAST = 10, 90  # all is over by then
Ticks = NDArray[np.int64]  # (ticks, nodes)


def started(rng: np.random.Generator, rows: list[int]) -> NodeRoom:
    """Some of these jobs run; the ends of a few are overdue."""
    found = room()
    for row in rows:
        if rooms.choose(found, row, 0, GPUS[row], found.free):
            rooms.hold_chosen(found, row, GPUS[row])
            rooms.expect(found, int(rng.integers(5, 40)), row)
    return found


def free_by_tick(found: NodeRoom) -> Ticks:
    free = np.tile(found.free, (LAST, 1))
    for i in range(int(found.tally[0].ends)):
        for node, gpus in shares_of(found, int(found.ends[i])):
            free[max(NOW + 1, int(found.end[i])) :, node] += gpus
    return free


def planned(plan: NodePlan) -> Ticks:
    """What the plan says of each tick from now on; ticks ascend, and `widest` is what the counts say."""
    many = int(plan.many[0])
    ticks, slots = plan.tick[:many], plan.slot[:many]
    assert (np.diff(ticks) > 0).all()
    assert sorted(slots.tolist()) == list(range(many))
    assert np.array_equal(plan.free[slots].max(axis=1), plan.widest[slots])
    return plan.free[slots[np.searchsorted(ticks, np.arange(NOW, LAST), side="right") - 1]].astype(np.int64)


def first_start(free: Ticks, row: int, partition: int, length: int) -> tuple[int, list[int]]:
    """Tried tick by tick: the first one, and the nodes; those that are fullest in the meantime go first."""
    many = AsAsked(NODES).nodes_for(row, GPUS[row])
    for tick in range(NOW, LAST - length):
        least = free[tick : tick + length].min(axis=0)
        may = np.flatnonzero(MINE[partition] & (least >= -(-GPUS[row] // many))).tolist()
        if len(may) >= many:
            return tick, sorted(may, key=lambda node: (least[node], node))[:many]
    return int(NEVER), []


@pytest.mark.parametrize("seed", range(12))
def test_a_cycle_finds_the_first_start_and_keeps_others_off_what_is_reserved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(GPUS)).tolist()
    found = started(rng, rows[:4])
    plan, free = plan_of(ends=8, tests=8, nodes=len(CLUSTER)), free_by_tick(found)
    kernels.plan_from(found, plan, NOW, 0)
    assert np.array_equal(planned(plan), free[NOW:])
    for row in rows[4:]:
        partition, length = int(rng.integers(2)), int(rng.integers(1, 12))
        tick, nodes = first_start(free, row, partition, length)
        assert kernels.earliest(found, plan, row, partition, GPUS[row], length) == tick
        if tick == NEVER:
            continue
        assert found.chosen[: found.wanted[row]].tolist() == nodes
        if tick == NOW:
            rooms.hold_chosen(found, row, GPUS[row])
            kernels.run(found, plan, row, tick + length)
            for node, gpus in shares_of(found, row):
                free[tick : tick + length, node] -= gpus
        else:
            kernels.reserve(found, plan, row, tick, tick + length)
            free[tick : tick + length, nodes] = 0  # whole nodes
        assert np.array_equal(planned(plan), free[NOW:])


@pytest.mark.parametrize("window", [1, 4, 7])
@pytest.mark.parametrize("seed", range(4))
def test_ends_of_a_window_count_as_its_last_one(seed: int, window: int) -> None:
    """So nothing is free sooner than it will be, and all of it in the end."""
    rng = np.random.default_rng(seed)
    found, plan = started(rng, list(range(len(GPUS)))), plan_of(ends=8, tests=0, nodes=len(CLUSTER))
    kernels.plan_from(found, plan, NOW, window)
    said, free = planned(plan), free_by_tick(found)[NOW:]
    assert (said <= free).all()
    assert np.array_equal(said[-1], found.size)
    ends = {max(NOW + 1, tick) for tick in found.end[: found.tally[0].ends].tolist()}
    begins = set(plan.tick[1 : plan.many[0]].tolist())
    assert begins <= ends
    assert max(begins) == max(ends)


def test_each_window_reaches_twice_as_far_as_the_one_before() -> None:
    ends = [11, 12, 13, 16, 17, 20, 24, 25, 28]
    assert [kernels._window_of(end, 12, 4) for end in ends] == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert kernels._window_of(29, 12, 4) == 3


@pytest.mark.parametrize(("length", "tick"), [(1, NOW), (10, NOW), (11, 30)])
def test_a_job_may_end_when_another_one_begins(length: int, tick: int) -> None:
    """From 20 to 30 both of the wide nodes are another's."""
    found, plan = room(), plan_of(ends=0, tests=3, nodes=len(CLUSTER))
    kernels.plan_from(found, plan, NOW, 0)
    found.chosen[:2] = 4, 5
    kernels.reserve(found, plan, 1, 20, 30)
    assert kernels.earliest(found, plan, 5, 0, GPUS[5], length) == tick
    assert found.chosen[0] == 4
