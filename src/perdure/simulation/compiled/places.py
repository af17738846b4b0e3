"""Who has which GPUs, compiled: the room of the plain loop, with nodes kept by how many of their GPUs are free."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.kernel import LONG, LONG_NONE, SHORT, SHORT_NONE, Records, kernel, records

COUNT, FIRST_FIT, BEST_FIT, CONSOLIDATE, LADDER = range(5)
KINDS = {"first-fit": FIRST_FIT, "best-fit": BEST_FIT, "consolidate": CONSOLIDATE, "ladder": LADDER}


class Places(NamedTuple):
    """Nodes by how many of their GPUs are free; what each job has is a list of shares."""

    kind: int
    relax: int  # ticks a rung of the ladder; 0 where there are no rungs
    nodes: Records  # free GPUs, and the rack
    levels: Records  # (n_racks, largest + 1): how many nodes have so many free; no such node is below `lowest`
    racks: Records  # free GPUs, and the largest node
    holders: Records  # of each job, see `empty_places`
    shares: Records  # node, GPUs, and the job's next share or the next unused one
    avoided: NDArray[np.int32]  # nodes that jobs are kept off, those of one job together
    tally: Records  # one record: free GPUs, and the first unused share


def empty_places(cluster: Cluster, kind: int, relax: int, jobs: int) -> Places:
    """A cluster of which nothing is taken. Only the ladder looks at racks."""
    n, largest, total = len(cluster), int(cluster.gpus.max()), cluster.total_gpus
    rack = np.unique(cluster.rack, return_inverse=True)[1].astype(np.int64) if kind == LADDER else np.zeros(n, np.int64)
    racks = int(rack.max()) + 1
    nodes = records(n, free=LONG, rack=LONG, hidden=LONG)  # `hidden`: free, but not for the job that looks now
    nodes["free"], nodes["rack"] = cluster.gpus, rack
    levels = records(racks * (largest + 1), at_level=LONG, lowest=(np.int64, n)).reshape(racks, largest + 1)
    np.add.at(levels["at_level"], (rack, cluster.gpus), 1)
    np.minimum.at(levels["lowest"], (rack, cluster.gpus), np.arange(n))
    by_rack = records(racks, free=LONG, largest=LONG)
    np.add.at(by_rack["free"], rack, cluster.gpus)
    np.maximum.at(by_rack["largest"], rack, cluster.gpus)
    counted = kind == COUNT
    holders = records(
        0 if counted else jobs,
        first=SHORT_NONE,  # share
        last=SHORT_NONE,
        refused=LONG_NONE,  # tick of the first refusal, -1 before
        avoids=SHORT,  # it is kept off the nodes from here in `avoided` up to `avoids_to`
        avoids_to=SHORT,
    )
    shares = records(1 if counted else 2 * total + 1, node=SHORT, gpus=SHORT, after=SHORT)
    shares["after"] = np.arange(1, len(shares) + 1)
    shares["after"][-1] = -1
    tally = records(1, total_free=(np.int64, total), unused=LONG)
    return Places(kind, relax, nodes, levels, by_rack, holders, shares, np.empty(0, np.int32), tally)


def keep_off(places: Places, row: int, nodes: Collection[int]) -> Places:
    """The same places, the job being kept off these nodes alone."""
    begin = len(places.avoided)
    places.holders[row]["avoids"], places.holders[row]["avoids_to"] = begin, begin + len(nodes)
    return places._replace(avoided=np.concatenate([places.avoided, np.fromiter(nodes, np.int32, len(nodes))]))


@kernel
def take(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Give the job its gang, all of it or nothing."""
    if gpus > places.tally[0].total_free:
        return False
    if places.kind == COUNT:
        places.tally[0].total_free -= gpus
        return True
    if not is_kept_off(places, row):
        return _place(places, row, gpus, now)
    _hide(places, row)
    found = gpus <= places.tally[0].total_free and _place(places, row, gpus, now)
    _show(places, row)
    return found


@kernel
def is_kept_off(places, row):  # type: ignore[no-untyped-def]
    """Whether there are nodes that are not for this job."""
    return places.kind != COUNT and places.holders[row].avoids < places.holders[row].avoids_to


@kernel
def _hide(places, row):  # type: ignore[no-untyped-def]
    for i in range(places.holders[row].avoids, places.holders[row].avoids_to):
        node = np.int64(places.avoided[i])
        places.nodes[node].hidden = places.nodes[node].free
        _set_free(places, node, 0)


@kernel
def _show(places, row):  # type: ignore[no-untyped-def]
    for i in range(places.holders[row].avoids, places.holders[row].avoids_to):
        node = np.int64(places.avoided[i])
        _set_free(places, node, places.nodes[node].hidden)


@kernel
def _place(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Choose nodes for the gang; as many GPUs are free."""
    if places.kind == LADDER:
        if _climb(places, row, gpus, now):
            places.holders[row].refused = -1
            return True
        if places.holders[row].refused < 0:
            places.holders[row].refused = now
        return False
    if places.kind == CONSOLIDATE:
        return _consolidate(places, row, gpus)
    return _fit(places, row, gpus)


@kernel
def release(places, row, gpus):  # type: ignore[no-untyped-def]
    """Take back what the job has; its first node, -1 where GPUs are only counted."""
    if places.kind == COUNT:
        places.tally[0].total_free += gpus
        return -1
    node = np.int64(places.shares[places.holders[row].first].node)
    lift(places, row, gpus)
    forget(places, row)
    return node


@kernel
def lift(places, row, gpus):  # type: ignore[no-untyped-def]
    """Free a job's GPUs, but keep in mind which they were."""
    if places.kind == COUNT:
        places.tally[0].total_free += gpus
        return
    share = np.int64(places.holders[row].first)
    while share >= 0:
        node = np.int64(places.shares[share].node)
        _set_free(places, node, places.nodes[node].free + places.shares[share].gpus)
        share = np.int64(places.shares[share].after)


@kernel
def put_back(places, row, gpus):  # type: ignore[no-untyped-def]
    """Give a lifted job the same GPUs, if they are still free."""
    if places.kind == COUNT:
        if gpus > places.tally[0].total_free:
            return False
        places.tally[0].total_free -= gpus
        return True
    share = np.int64(places.holders[row].first)
    while share >= 0:
        if places.shares[share].gpus > places.nodes[places.shares[share].node].free:
            return False
        share = np.int64(places.shares[share].after)
    share = np.int64(places.holders[row].first)
    while share >= 0:
        node = np.int64(places.shares[share].node)
        _set_free(places, node, places.nodes[node].free - places.shares[share].gpus)
        share = np.int64(places.shares[share].after)
    return True


@kernel
def forget(places, row):  # type: ignore[no-untyped-def]
    """Drop what is kept in mind of a lifted job."""
    if places.kind != COUNT and places.holders[row].first >= 0:
        places.shares[places.holders[row].last].after = places.tally[0].unused
        places.tally[0].unused = places.holders[row].first
        places.holders[row].first = -1


@kernel
def next_rung(places, row, now, none):  # type: ignore[no-untyped-def]
    """The tick after `now` at which a waiting job may look one rung looser, or `none`."""
    if places.kind == LADDER and places.holders[row].refused >= 0:
        for rung in range(1, 3):
            tick = places.holders[row].refused + rung * places.relax
            if tick > now:
                return tick
    return none


@kernel
def _set_free(places, node, free):  # type: ignore[no-untyped-def]
    rack, before = places.nodes[node].rack, places.nodes[node].free
    places.levels[rack, before].at_level -= 1
    places.levels[rack, free].at_level += 1
    if node < places.levels[rack, free].lowest:
        places.levels[rack, free].lowest = node
    places.nodes[node].free = free
    places.racks[rack].free += free - before
    places.tally[0].total_free += free - before


@kernel
def _lowest_at(places, rack, level):  # type: ignore[no-untyped-def]
    """The lowest node of a rack with so many free; there is one."""
    node = places.levels[rack, level].lowest
    while places.nodes[node].free != level or places.nodes[node].rack != rack:
        node += 1
    places.levels[rack, level].lowest = node
    return node


@kernel
def _give(places, row, node, gpus):  # type: ignore[no-untyped-def]
    share = places.tally[0].unused
    places.tally[0].unused = places.shares[share].after
    places.shares[share].node = node
    places.shares[share].gpus = gpus
    places.shares[share].after = -1
    if places.holders[row].first < 0:
        places.holders[row].first = share
    else:
        places.shares[places.holders[row].last].after = share
    places.holders[row].last = share
    _set_free(places, node, places.nodes[node].free - gpus)


@kernel
def _tightest(places, rack, gpus):  # type: ignore[no-untyped-def]
    """The node of a rack that holds all of `gpus` with the fewest free; -1 for none."""
    for level in range(gpus, places.levels.shape[1]):
        if places.levels[rack, level].at_level:
            return _lowest_at(places, rack, level)
    return -1


@kernel
def _fit(places, row, gpus):  # type: ignore[no-untyped-def]
    """First fit and best fit."""
    node = _tightest(places, 0, gpus)
    if node >= 0 and places.kind == FIRST_FIT:
        node = 0
        while places.nodes[node].free < gpus:
            node += 1
    if node >= 0:
        _give(places, row, node, gpus)
        return True
    if places.kind == BEST_FIT:
        _gather(places, row, gpus, 0, 1)
        return True
    node = 0
    while gpus:
        share = min(gpus, places.nodes[node].free)
        if share:
            _give(places, row, node, share)
            gpus -= share
        node += 1
    return True


@kernel
def _consolidate(places, row, gpus):  # type: ignore[no-untyped-def]
    largest = places.levels.shape[1] - 1
    if gpus <= largest:
        node = _tightest(places, 0, gpus)
        if node >= 0:
            _give(places, row, node, gpus)
        return node >= 0
    whole, rest = gpus // largest, gpus % largest
    if places.levels[0, largest].at_level < whole:
        return False
    level = largest
    if rest and places.levels[0, largest].at_level == whole:
        level -= 1
        while level >= rest and not places.levels[0, level].at_level:
            level -= 1
        if level < rest:
            return False
    for _ in range(whole):
        _give(places, row, _lowest_at(places, 0, largest), largest)
    if rest:
        _give(places, row, _lowest_at(places, 0, level), rest)
    return True


@kernel
def _climb(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Philly's ladder, as far up as the job may."""
    rung = 0 if places.holders[row].refused < 0 else (now - places.holders[row].refused) // places.relax
    fullest = -1
    rack, free = _next_rack(places, gpus, -1, -1)
    while rack >= 0:
        if fullest < 0:
            fullest = rack
        if _fewest_nodes(places, row, gpus, rack):
            return True
        rack, free = _next_rack(places, gpus, rack, free)
    if rung >= 1 and fullest >= 0:
        _gather(places, row, gpus, fullest, fullest + 1)
        return True
    if rung >= 2:
        _gather(places, row, gpus, 0, places.levels.shape[0])
        return True
    return False


@kernel
def _next_rack(places, gpus, rack, free):  # type: ignore[no-untyped-def]
    """The rack after this one by occupancy that has so many GPUs free, and how many; -1 for none."""
    best, best_free = -1, -1
    for other in range(places.levels.shape[0]):
        has = places.racks[other].free
        later = has > free or (has == free and other > rack)
        if has >= gpus and later and (best < 0 or has < best_free):
            best, best_free = other, has
    return best, best_free


@kernel
def _fewest_nodes(places, row, gpus, rack):  # type: ignore[no-untyped-def]
    largest = places.racks[rack].largest
    if gpus > largest and largest < places.levels.shape[1] - 1:
        return False  # nodes of another rack are larger: fewer of them would do
    whole, rest = gpus // largest, gpus % largest
    spare = places.levels[rack, largest].at_level - whole
    if spare < 0:
        return False
    if rest:
        level = rest
        while level < largest and not places.levels[rack, level].at_level:
            level += 1
        if level == largest and not spare:
            return False
    for _ in range(whole):
        _give(places, row, _lowest_at(places, rack, largest), largest)
    if rest:
        _give(places, row, _tightest(places, rack, rest), rest)
    return True


@kernel
def _gather(places, row, gpus, first_rack, end_rack):  # type: ignore[no-untyped-def]
    """All that is free on one node after the other, the emptiest first; the racks have enough."""
    level = places.levels.shape[1] - 1
    while gpus:
        node = -1
        for rack in range(first_rack, end_rack):
            if places.levels[rack, level].at_level:
                candidate = _lowest_at(places, rack, level)
                if node < 0 or candidate < node:
                    node = candidate
        if node < 0:
            level -= 1
            continue
        share = min(gpus, level)
        _give(places, row, node, share)
        gpus -= share
