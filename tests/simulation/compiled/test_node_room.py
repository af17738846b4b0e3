"""Nodes, and what running jobs have of them, against the plain placement."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.room import Shares
from perdure.simulation.compiled.node_room import NodeRoom, room_of
from perdure.simulation.workload import Workload
from tests.simulation.compiled.in_python import in_python
from tests.simulation.tables import jobs

kernels = in_python("node_room")
CLUSTER = Cluster.parse("4x4+2x8")
GPUS, NODES = [1, 2, 4, 5, 6, 8, 9, 3], (1, 2, 1, 2, 3, 1, 3, 9)
MINE = np.array([[True] * 6, [True, False, True, True, False, True]])


def room(held: dict[int, Shares] | None = None) -> NodeRoom:
    work = Workload.of(jobs(*((gpus, 0, 10) for gpus in GPUS)))
    return room_of(work, CLUSTER, AsAsked(NODES), held or {}, MINE, running=len(GPUS))


def shares_of(found: NodeRoom, row: int) -> list[tuple[int, int]]:
    begin, many = int(found.first[row]), int(found.held[row])
    return list(zip(found.node[begin : begin + many].tolist(), found.gpus[begin : begin + many].tolist(), strict=True))


def placed(found: NodeRoom, row: int, partition: int) -> list[tuple[int, int]] | None:
    """By hand: an equal part on each of the fullest nodes that have room for the largest part."""
    many = AsAsked(NODES).nodes_for(row, GPUS[row])
    least = -(-GPUS[row] // many)
    may = [int(node) for node in np.flatnonzero(MINE[partition] & ~found.barred) if found.free[node] >= least]
    chosen = sorted(may, key=lambda node: (found.free[node], node))[:many]
    parts = [len(part) for part in np.array_split(np.arange(GPUS[row]), many)]
    return list(zip(chosen, parts, strict=True)) if len(chosen) == many else None


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, len(GPUS) - 1), st.integers(0, 1), st.integers(0, 5)), max_size=25),
       st.sets(st.integers(0, 5), max_size=2))  # fmt: skip
def test_jobs_have_the_fullest_nodes_with_room_and_give_all_back(
    steps: list[tuple[int, int, int]], barred: set[int]
) -> None:
    found, there = room(), dict[int, int]()
    found.barred[list(barred)] = True
    for row, partition, tick in steps:
        if row in there:
            kernels.stop_expecting(found, row)
            del there[row]
        else:
            wanted = placed(found, row, partition)
            assert kernels.choose(found, row, partition, GPUS[row], found.free) == (wanted is not None)
            if wanted is None:
                continue
            kernels.hold_chosen(found, row, GPUS[row])
            kernels.expect(found, tick, row)
            assert shares_of(found, row) == wanted
            there[row] = tick
        taken = np.zeros(len(CLUSTER), np.int64)
        for each in range(len(GPUS)):
            for node, gpus in shares_of(found, each):
                taken[node] += gpus
        assert np.array_equal(found.free + taken, found.size)
        many = int(found.tally[0].ends)
        expected = sorted(there.items(), key=lambda item: item[1])  # of equal ticks the one noted first
        assert list(zip(found.ends[:many].tolist(), found.end[:many].tolist(), strict=True)) == expected


def test_what_jobs_held_before_is_noted_and_not_taken_yet() -> None:
    found = room({0: ((5, 1),), 2: ((0, 1), (1, 1), (3, 2))})
    assert shares_of(found, 2) == [(0, 1), (1, 1), (3, 2)]  # on more nodes than it asked for
    assert (shares_of(found, 0), shares_of(found, 1)) == ([(5, 1)], [])
    assert np.array_equal(found.free, found.size)
    assert np.diff(found.first).tolist() == [1, 2, 3, 2, 3, 1, 3, 3]
    assert kernels.gpus_each(found, 3, 5) == 3
