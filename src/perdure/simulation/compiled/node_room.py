"""The nodes of a compiled live queue, what each running job has of them, and the search for those of one more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.room import Shares
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records
from perdure.simulation.workload import Workload

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class NodeRoom(NamedTuple):
    """The nodes, and what each running job has of them.

    Between passes ``free[i]`` and the shares on node i make up ``size[i]``. The shares of a job are `held` places of
    `node` and `gpus` from `first` on.
    """

    size: Longs
    free: Longs
    mine: Flags  # (n_partitions, n_nodes)
    wanted: Longs  # of each job, on how many nodes it runs
    first: Longs
    held: Longs
    node: Longs
    gpus: Longs
    chosen: Longs  # what the last search found
    least: Longs  # free on each node throughout the stretch that is looked at
    barred: Flags  # nodes of partitions in which nobody is started any more in this pass
    closed: Flags  # those partitions
    end: Longs  # expected ends of running jobs, the earliest first
    ends: Longs  # their rows
    tally: Records  # one record


def room_of(
    jobs: Workload, cluster: Cluster, placement: AsAsked, held: Mapping[int, Shares], mine: Flags, running: int
) -> NodeRoom:
    size = np.array(cluster.gpus, np.int64)
    wanted = np.array([placement.nodes_for(row, gpus) for row, gpus in enumerate(jobs.gpus.tolist())], np.int64)
    places = wanted.copy()
    for row, shares in held.items():
        places[row] = max(places[row], len(shares))
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(places)])
    room = NodeRoom(
        size=size,
        free=size.copy(),
        mine=mine,
        wanted=wanted,
        first=first,
        held=np.zeros(len(jobs), np.int64),
        node=np.zeros(first[-1], np.int64),
        gpus=np.zeros(first[-1], np.int64),
        chosen=np.zeros(max(len(size), int(wanted.max(initial=1))), np.int64),
        least=np.zeros(len(size), np.int64),
        barred=np.zeros(len(size), np.bool_),
        closed=np.zeros(len(mine), np.bool_),
        end=np.zeros(running, np.int64),
        ends=np.zeros(running, np.int64),
        tally=records(1, ends=LONG),
    )
    for row, shares in held.items():
        room.held[row] = len(shares)
        for place, (node, gpus) in enumerate(shares, int(first[row])):
            room.node[place], room.gpus[place] = node, gpus
    return room


@kernel
def gpus_each(room, row, gpus):  # type: ignore[no-untyped-def]
    """GPUs that a node must have free to be one of the job's."""
    return -(-gpus // room.wanted[row])


@kernel
def choose(room, row, partition, gpus, free):  # type: ignore[no-untyped-def]
    """Find the job's nodes, as `AsAsked` does: the fullest that have room, of equal ones the lowest. Whether there are
    enough. `chosen` has them.
    """
    each = gpus_each(room, row, gpus)
    last, last_free = np.int64(-1), np.int64(-1)
    for found in range(room.wanted[row]):
        best = np.int64(-1)
        for node in range(len(room.size)):
            if free[node] < each or not room.mine[partition, node] or room.barred[node]:
                continue
            if free[node] < last_free or (free[node] == last_free and node <= last):
                continue
            if best < 0 or free[node] < free[best]:
                best = np.int64(node)
        if best < 0:
            return False
        room.chosen[found] = best
        last, last_free = best, np.int64(free[best])
    return True


@kernel
def hold_chosen(room, row, gpus):  # type: ignore[no-untyped-def]
    """Give the job what the search found."""
    nodes, first = room.wanted[row], room.first[row]
    room.held[row] = nodes
    for i in range(nodes):
        room.node[first + i] = room.chosen[i]
        room.gpus[first + i] = gpus // nodes + (1 if i < gpus % nodes else 0)
        room.free[room.chosen[i]] -= room.gpus[first + i]


@kernel
def expect(room, tick, row):  # type: ignore[no-untyped-def]
    """Expect the end of a running job at a tick."""
    i = room.tally[0].ends
    room.tally[0].ends += 1
    while i > 0 and room.end[i - 1] > tick:
        room.end[i] = room.end[i - 1]
        room.ends[i] = room.ends[i - 1]
        i -= 1
    room.end[i] = tick
    room.ends[i] = row


@kernel
def stop_expecting(room, row):  # type: ignore[no-untyped-def]
    """The end of a running job is not awaited any more, and its nodes are free."""
    for i in range(room.first[row], room.first[row] + room.held[row]):
        room.free[room.node[i]] += room.gpus[i]
    room.held[row] = 0
    place = np.int64(0)
    while room.ends[place] != row:
        place += 1
    room.tally[0].ends -= 1
    while place < room.tally[0].ends:
        room.end[place] = room.end[place + 1]
        room.ends[place] = room.ends[place + 1]
        place += 1
