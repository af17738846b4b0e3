"""The nodes of a compiled live queue, what each running job has of them, and the search for those of one more.

The plain form is `perdure.scheduling.placement.as_asked.AsAsked` with `placement.room.Room`. Kernels allocate nothing,
so that the shares of all jobs lie in two arrays, `node` and `gpus`, in which each job has a fixed stretch: as many
places as it asked for nodes, or as it held at the start if that is more.
"""

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
    `node` and `gpus` from `first` on; a job that does not run holds 0 of them. Arrays are of length n_nodes, n_jobs
    (`wanted`, `held`; `first` has one more) or, for `end` and `ends`, the most jobs that can run at once, of which
    the first ``tally[0].ends`` are in use.

    `chosen`, `least`, `barred` and `closed` mean something within one pass only.
    """

    size: Longs  # GPUs of each node
    free: Longs
    mine: Flags  # (n_partitions, n_nodes): whether the node is the partition's
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
    """All nodes free, no job running; the shares in `held` are noted for the jobs that are to run from before.

    These shares are not taken from `free` yet: `slurm_nodes.run_since` does that as it starts each of these jobs.
    `mine` is (n_partitions, n_nodes), `running` the most jobs that can run at once.
    """
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
    """GPUs that a node must have free to be one of the job's: an equal share, rounded up."""
    return -(-gpus // room.wanted[row])


@kernel
def choose(room, row, partition, gpus, free):  # type: ignore[no-untyped-def]
    """Find the job's nodes, as `AsAsked` does: the fullest that have room, of equal ones the lowest number.

    `free`, (n_nodes,), is what may be used of each: ``room.free`` for a start now, ``room.least`` for a later one.
    Nodes outside of the partition and barred ones are left out. Returns whether there are enough; ``room.chosen`` then
    has them, in that order. Otherwise it holds what was found so far, and means nothing.

    One walk over all nodes for each node that the job wants: most jobs want one, and sorting all would cost more.
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
    """Take the nodes in ``room.chosen`` for the job: equal parts, of which the first nodes have the larger ones."""
    nodes, first = room.wanted[row], room.first[row]
    room.held[row] = nodes
    for i in range(nodes):
        room.node[first + i] = room.chosen[i]
        room.gpus[first + i] = gpus // nodes + (1 if i < gpus % nodes else 0)
        room.free[room.chosen[i]] -= room.gpus[first + i]


@kernel
def expect(room, tick, row):  # type: ignore[no-untyped-def]
    """Expect the end of a running job at a tick. Of equal ends the one noted first stays first.

    An insertion from behind: a job that has just started mostly ends among the last.
    """
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
    """Free the nodes of a job that ran, and forget its expected end, wherever that is.

    The job must be among ``room.ends``: the search for it has no other end.
    """
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
