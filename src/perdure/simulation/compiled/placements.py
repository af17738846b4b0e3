"""The placements, compiled: where a gang gets its GPUs.

Each function chooses the same nodes as its namesake in `perdure.scheduling.placement`, ties included: of equal nodes
and racks the lower one. A gang gets all its GPUs at once or none. What a search looks at are levels (as many as the
largest node has GPUs), racks and the nodes used; first fit alone walks along the nodes. `skew` and `random`, which
draw, are left to the plain loop.
"""

from __future__ import annotations

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.gpu_places import (
    BEST_FIT,
    CONSOLIDATE,
    COUNT,
    FIRST_FIT,
    SPREAD_LADDER,
    hide,
    hold,
    is_kept_off,
    lowest_at,
    show,
)
from perdure.simulation.compiled.kernel import kernel


@kernel
def take(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Give the job its gang, all of it or nothing. Whether it has it. `now` is the tick, for the rungs of a ladder.

    Nodes that the job is kept off are empty to it, and only to it.
    """
    if gpus > places.tally[0].total_free:
        return False
    if places.kind == COUNT:
        places.tally[0].total_free -= gpus
        return True
    if not is_kept_off(places, row):
        return _place(places, row, gpus, now)
    hide(places, row)
    found = gpus <= places.tally[0].total_free and _place(places, row, gpus, now)
    show(places, row)
    return found


@kernel
def _place(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Choose nodes for the gang and give them to it; as many GPUs are free. Whether a place was found."""
    if places.relax:
        found = _climb(places, row, gpus, now)
        _note(places, row, found, now)
        return found
    if places.kind == CONSOLIDATE:
        return _consolidate(places, row, gpus)
    return _fit(places, row, gpus)


@kernel
def looks_for_itself(places, row):  # type: ignore[no-untyped-def]
    """Whether others of the same size may find a place where this job finds none: it is kept off nodes, or climbs a
    ladder.

    Where not, one refusal speaks for all jobs of the size until GPUs come free, and passes need not try them.
    """
    return places.relax > 0 or is_kept_off(places, row)


@kernel
def next_rung(places, row, now):  # type: ignore[no-untyped-def]
    """The tick after `now` at which a waiting job may look one rung looser; `NEVER` if there is none.

    Rungs are `relax` ticks apart, from the first refusal on; there are three.
    """
    if places.relax and places.holders[row].refused:
        for rung in range(1, 3):
            tick = places.holders[row].refused - 1 + rung * places.relax
            if tick > now:
                return tick
    return NEVER


@kernel
def _note(places, row, found, now):  # type: ignore[no-untyped-def]
    """Keep in mind since when a job is refused. Once it has found a place it begins again on the tightest rung."""
    if found:
        places.holders[row].refused = 0
    elif not places.holders[row].refused:
        places.holders[row].refused = now + 1


@kernel
def _tightest(places, rack, gpus):  # type: ignore[no-untyped-def]
    """The node of a rack that holds all of `gpus` with the fewest free, of equal ones the lowest; -1 for none."""
    for level in range(gpus, places.levels.shape[1]):
        if places.levels[rack, level].at_level:
            return lowest_at(places, rack, level)
    return -1


@kernel
def _fit(places, row, gpus):  # type: ignore[no-untyped-def]
    """First fit and best fit: one node that holds all, the lowest or the tightest; else several.

    There is always a place.
    """
    node = _tightest(places, 0, gpus)
    if node >= 0 and places.kind == FIRST_FIT:
        node = 0
        while places.nodes[node].free < gpus:
            node += 1
    if node >= 0:
        hold(places, row, node, gpus)
    elif places.kind == BEST_FIT:
        _gather(places, row, gpus, 0, 1)
    else:
        _gather_in_order(places, row, gpus)
    return True


@kernel
def _consolidate(places, row, gpus):  # type: ignore[no-untyped-def]
    """As few nodes as the gang can do with, or no place.

    Whole largest nodes, and the emptiest of the others for the rest.
    """
    largest = places.levels.shape[1] - 1
    if gpus <= largest:
        node = _tightest(places, 0, gpus)
        if node >= 0:
            hold(places, row, node, gpus)
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
        hold(places, row, lowest_at(places, 0, largest), largest)
    if rest:
        hold(places, row, lowest_at(places, 0, level), rest)
    return True


@kernel
def _climb(places, row, gpus, now):  # type: ignore[no-untyped-def]
    """Philly's ladder, as far up as the job may.

    The tightest rung: the fewest nodes of one rack. Then any nodes of one rack, then any nodes at all. The rung is how
    many times `relax` ticks have passed since the first refusal.

    Source: M. Jeon et al., USENIX ATC 2019 (locality that is relaxed as a job waits).
    """
    rung = (now + 1 - places.holders[row].refused) // places.relax if places.holders[row].refused else 0
    first = _next_rack(places, gpus, -1)
    rack = first
    while rack >= 0:
        if _fewest_nodes(places, row, gpus, rack):
            return True
        rack = _next_rack(places, gpus, rack)
    if rung >= 1 and first >= 0:
        _gather(places, row, gpus, first, first + 1)
        return True
    if rung >= 2:
        _gather(places, row, gpus, 0, places.levels.shape[0])
        return True
    return False


@kernel
def _next_rack(places, gpus, last):  # type: ignore[no-untyped-def]
    """The rack to try after the last one, or first (-1), of those that have this many GPUs free; -1 for none.

    Racks are few: each call looks at all, and nothing is sorted. The order is total, so none is tried twice.
    """
    best = -1
    for rack in range(places.levels.shape[0]):
        is_later = last < 0 or _is_tried_before(places, last, rack)
        if places.racks[rack].free >= gpus and is_later and (best < 0 or _is_tried_before(places, rack, best)):
            best = rack
    return best


@kernel
def _is_tried_before(places, a, b):  # type: ignore[no-untyped-def]
    """By occupancy, of equal racks the lower.

    The fullest first, or for the spread ladder the one with the largest share free.
    """
    one, other = places.racks[a], places.racks[b]
    if places.kind == SPREAD_LADDER:
        share, other_share = one.free / one.gpus, other.free / other.gpus
        return share > other_share or (share == other_share and a < b)
    return one.free < other.free or (one.free == other.free and a < b)


@kernel
def _fewest_nodes(places, row, gpus, rack):  # type: ignore[no-untyped-def]
    """Give the gang the fewest nodes of this rack that could hold it if all were empty, if that many are free in it.

    Looks before it takes: whether there are enough whole nodes, and one that holds the rest and is not one of them.
    """
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
        hold(places, row, lowest_at(places, rack, largest), largest)
    if rest:
        node = _emptiest(places, rack) if places.kind == SPREAD_LADDER else _tightest(places, rack, rest)
        hold(places, row, node, rest)
    return True


@kernel
def _emptiest(places, rack):  # type: ignore[no-untyped-def]
    """The node of a rack with the most free."""
    level = places.levels.shape[1] - 1
    while not places.levels[rack, level].at_level:
        level -= 1
    return lowest_at(places, rack, level)


@kernel
def _gather(places, row, gpus, first_rack, end_rack):  # type: ignore[no-untyped-def]
    """All that is free on one node after the other, the emptiest first, of equal ones the lowest; the racks have
    enough.

    A node that was given whole goes to level 0, and one that was given in part was the last: so the emptiest level only
    falls.
    """
    level = places.levels.shape[1] - 1
    while gpus:
        node = -1
        for rack in range(first_rack, end_rack):
            if places.levels[rack, level].at_level:
                candidate = lowest_at(places, rack, level)
                if node < 0 or candidate < node:
                    node = candidate
        if node < 0:
            level -= 1
            continue
        share = min(gpus, level)
        hold(places, row, node, share)
        gpus -= share


@kernel
def _gather_in_order(places, row, gpus):  # type: ignore[no-untyped-def]
    """All that is free on one node after the other, from the first on; there is enough."""
    node = 0
    while gpus:
        share = min(gpus, places.nodes[node].free)
        if share:
            hold(places, row, node, share)
            gpus -= share
        node += 1
