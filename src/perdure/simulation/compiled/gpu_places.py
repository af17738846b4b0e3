"""The GPUs of each node and who has them, compiled: the room of the plain loop, with nodes by how many GPUs are free.

`perdure.scheduling.placement` defines the placements. Nodes of one rack that have equally many free GPUs form a level;
of each level its size is known and a lower bound of its lowest node, so that a fitting node is found by looking at a
few levels, not at all nodes. What a job has is a list of shares, one for each node, in the order in which they were
given; lists are linked through one array, and so are the unused shares.

Where GPUs are only counted (`COUNT`), nothing is kept but how many are free.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records

COUNT, FIRST_FIT, BEST_FIT, CONSOLIDATE, LADDER, SPREAD_LADDER = range(6)
KINDS = {
    "first-fit": FIRST_FIT,
    "best-fit": BEST_FIT,
    "consolidate": CONSOLIDATE,
    "ladder": LADDER,
    "spread-ladder": SPREAD_LADDER,
}


class Places(NamedTuple):
    """Nodes by how many of their GPUs are free; what each job has is a list of shares.

    Kept true at all times: ``free`` of a node and the shares on it, of jobs that are not lifted, add up to its GPUs,
    save for nodes that are hidden; `levels`, `racks` and ``total_free`` count what `nodes` says.
    """

    kind: int
    relax: int  # ticks a rung of a ladder; 0 where there are no rungs
    nodes: Records  # see `empty_places`
    levels: Records  # (n_racks, largest + 1): how many nodes have this many free; no such node is below `lowest`
    racks: Records  # all GPUs, those free, and the largest node
    holders: Records  # of each job, see `empty_places`
    shares: Records  # from 1 on: node, GPUs, and the job's next share or the next unused one
    avoided: NDArray[np.int32]  # nodes that jobs are kept off, those of one job together
    tally: Records  # one record


def empty_places(cluster: Cluster, kind: int, relax: int, jobs: int) -> Places:
    """A cluster of which nothing is taken. Only ladders look at racks: for other placements all nodes are in one.

    `relax` is in ticks. Shares suffice for each GPU to be one of its own, twice: in a pass jobs are started before
    lifted ones are forgotten.

    >>> places = empty_places(Cluster.parse("2x4+1x8"), BEST_FIT, relax=0, jobs=3)
    >>> places.levels["at_level"].tolist()  # one rack: two nodes with 4 free, one with 8
    [[0, 0, 0, 0, 2, 0, 0, 0, 1]]
    >>> places.levels["lowest"].tolist()  # 3, behind the last node, where there is none
    [[3, 3, 3, 3, 0, 3, 3, 3, 2]]
    """
    n, largest, total = len(cluster), int(cluster.gpus.max()), cluster.total_gpus
    rack = np.unique(cluster.rack, return_inverse=True)[1].astype(np.int64) if relax else np.zeros(n, np.int64)
    racks = int(rack.max()) + 1
    nodes = records(n, free=LONG, rack=LONG, hidden=LONG)  # `hidden`: free, but not for the job that looks now
    nodes["free"], nodes["rack"] = cluster.gpus, rack
    levels = records(racks * (largest + 1), at_level=LONG, lowest=LONG).reshape(racks, largest + 1)
    levels["lowest"] = n
    np.add.at(levels["at_level"], (rack, cluster.gpus), 1)
    np.minimum.at(levels["lowest"], (rack, cluster.gpus), np.arange(n))
    by_rack = records(racks, gpus=LONG, free=LONG, largest=LONG)
    np.add.at(by_rack["gpus"], rack, cluster.gpus)
    np.maximum.at(by_rack["largest"], rack, cluster.gpus)
    by_rack["free"] = by_rack["gpus"]
    counted = kind == COUNT
    holders = records(
        0 if counted else jobs,
        first=SHORT,  # share, 0 for none
        last=SHORT,
        refused=LONG,  # 1 + the tick of the first refusal, 0 before
        avoids=SHORT,  # it is kept off the nodes from here in `avoided` up to `avoids_to`
        avoids_to=SHORT,
    )
    shares = records(2 if counted else 2 * total + 2, node=SHORT, gpus=SHORT, after=SHORT)
    shares["after"] = np.arange(1, len(shares) + 1)
    tally = records(1, total_free=LONG, unused=LONG, avoided=LONG)
    tally["total_free"], tally["unused"] = total, 1
    return Places(kind, relax, nodes, levels, by_rack, holders, shares, np.empty(1, np.int32), tally)


def keep_off(places: Places, row: int, nodes: Collection[int]) -> Places:
    """The same places, the job being kept off these nodes alone; what it was kept off before no longer counts.

    Called between two runs of the loop, so that it may make longer arrays. The old stretch of `avoided` stays unused:
    the array doubles as it fills, and a retry policy adds nodes a few at a time.
    """
    begin = int(places.tally[0]["avoided"])
    end = begin + len(nodes)
    if end > len(places.avoided):
        longer = np.empty(2 * end, np.int32)
        longer[:begin] = places.avoided[:begin]
        places = places._replace(avoided=longer)
    places.avoided[begin:end] = np.fromiter(nodes, np.int32, len(nodes))
    places.holders[row]["avoids"], places.holders[row]["avoids_to"] = begin, end
    places.tally[0]["avoided"] = end
    return places


@kernel
def is_kept_off(places, row):  # type: ignore[no-untyped-def]
    """Whether there are nodes that are not for this job."""
    return places.kind != COUNT and places.holders[row].avoids < places.holders[row].avoids_to


@kernel
def hide(places, row):  # type: ignore[no-untyped-def]
    """Mark the nodes that the job is kept off as full, while it looks for a place; `show` follows.

    The nodes go to level 0, so that no search has to know of it.
    """
    for i in range(places.holders[row].avoids, places.holders[row].avoids_to):
        node = np.int64(places.avoided[i])
        places.nodes[node].hidden = places.nodes[node].free
        set_free(places, node, 0)


@kernel
def show(places, row):  # type: ignore[no-untyped-def]
    """Make free again what `hide` hid: nobody gave any of it away meanwhile, as it was not free."""
    for i in range(places.holders[row].avoids, places.holders[row].avoids_to):
        node = np.int64(places.avoided[i])
        set_free(places, node, places.nodes[node].hidden)


@kernel
def hold(places, row, node, gpus):  # type: ignore[no-untyped-def]
    """Give the job GPUs of a node that has them free, as a share behind those that it has already.

    `gpus` is above 0, and the node is in none of its other shares.
    """
    share = places.tally[0].unused
    places.tally[0].unused = places.shares[share].after
    places.shares[share].node = node
    places.shares[share].gpus = gpus
    places.shares[share].after = 0
    if places.holders[row].first:
        places.shares[places.holders[row].last].after = share
    else:
        places.holders[row].first = share
    places.holders[row].last = share
    set_free(places, node, places.nodes[node].free - gpus)


@kernel
def release(places, row, gpus):  # type: ignore[no-untyped-def]
    """Take back what the job has; return its first node, -1 where GPUs are only counted. Costs its shares."""
    if places.kind == COUNT:
        places.tally[0].total_free += gpus
        return -1
    node = np.int64(places.shares[places.holders[row].first].node)
    lift(places, row, gpus)
    forget(places, row)
    return node


@kernel
def lift(places, row, gpus):  # type: ignore[no-untyped-def]
    """Free a job's GPUs, but keep in mind which they were.

    Either `put_back` or `forget` follows within the pass. In between others may take them.
    """
    if places.kind == COUNT:
        places.tally[0].total_free += gpus
        return
    share = np.int64(places.holders[row].first)
    while share:
        node = np.int64(places.shares[share].node)
        set_free(places, node, places.nodes[node].free + places.shares[share].gpus)
        share = np.int64(places.shares[share].after)


@kernel
def put_back(places, row, gpus):  # type: ignore[no-untyped-def]
    """Give a lifted job the same GPUs, if they are still free: all of them or none. Whether it has them again.

    Two walks along its shares: look at all before taking any.
    """
    if gpus > places.tally[0].total_free:
        return False
    if places.kind == COUNT:
        places.tally[0].total_free -= gpus
        return True
    share = np.int64(places.holders[row].first)
    while share:
        if places.shares[share].gpus > places.nodes[places.shares[share].node].free:
            return False
        share = np.int64(places.shares[share].after)
    share = np.int64(places.holders[row].first)
    while share:
        node = np.int64(places.shares[share].node)
        set_free(places, node, places.nodes[node].free - places.shares[share].gpus)
        share = np.int64(places.shares[share].after)
    return True


@kernel
def forget(places, row):  # type: ignore[no-untyped-def]
    """Drop what is kept in mind of a lifted job.

    Its shares are joined to the unused ones at once, however many they are.
    """
    if places.kind != COUNT and places.holders[row].first:
        places.shares[places.holders[row].last].after = places.tally[0].unused
        places.tally[0].unused = places.holders[row].first
        places.holders[row].first = 0


@kernel
def has_node(places, row, node):  # type: ignore[no-untyped-def]
    """Whether the job holds GPUs of a node."""
    share = np.int64(places.holders[row].first)
    while share:
        if places.shares[share].node == node:
            return True
        share = np.int64(places.shares[share].after)
    return False


@kernel
def lowest_at(places, rack, level):  # type: ignore[no-untyped-def]
    """The lowest node of a rack with this many free; there is one, or the search would run off the end.

    It is looked for from the bound upwards, and the bound moves with it: each node is passed once for each time that a
    lower one comes to that level. Right, because `set_free` lowers the bound whenever a lower node comes.
    """
    node = places.levels[rack, level].lowest
    while places.nodes[node].free != level or places.nodes[node].rack != rack:
        node += 1
    places.levels[rack, level].lowest = node
    return node


@kernel
def set_free(places, node, free):  # type: ignore[no-untyped-def]
    """Change how many GPUs of a node are free, and keep its level, its rack and the sum right. Constant time.

    The only place that changes them.
    """
    rack, before = places.nodes[node].rack, places.nodes[node].free
    places.levels[rack, before].at_level -= 1
    places.levels[rack, free].at_level += 1
    if node < places.levels[rack, free].lowest:
        places.levels[rack, free].lowest = node
    places.nodes[node].free = free
    places.racks[rack].free += free - before
    places.tally[0].total_free += free - before
