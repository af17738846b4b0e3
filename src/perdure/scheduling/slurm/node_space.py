"""Room on nodes: partitions restrict jobs to theirs, and a reservation takes whole nodes.

Slurm's node_space is a table of stretches of time, each with the nodes that are available. Here a stretch has the GPUs
that running jobs leave free on each node, and which nodes are reserved; ends that are expected in one window of time
count as the last of them. Where in it a job fits is asked of the room's own placement, so that what is planned is what
the room gives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.placement.nodes import Ask, Nodes
from perdure.scheduling.placement.placed import Placed
from perdure.scheduling.slurm.pass_state import PassState
from perdure.scheduling.slurm.settings import Partition
from perdure.scheduling.view import View

Counts = NDArray[np.int64]


class OnNodes:
    """The nodes of all partitions, as they are now.

    A job is kept on its partition's nodes by barring it from all others (`Room.avoided`), from `offer` or `restrict`
    until `settle`, which puts back what it was kept off before. Arrays are (n_nodes,).
    """

    def __init__(self, view: View, room: Placed, partitions: Sequence[Partition], partition: Sequence[int]) -> None:
        every = frozenset(range(room.n_nodes))
        self.view, self.room, self.partition = view, room, partition
        self.nodes = [every if each.nodes is None else every.intersection(each.nodes) for each in partitions]
        self.whole = [each.whole_nodes for each in partitions]
        self.size: Counts = np.array(room.nodes.size, np.int64)
        self.kept_off: dict[int, frozenset[int] | None] = {}  # of a job that is offered nodes: what it was kept off

    def offer(self, row: int, partition: int, closed: Set[int]) -> bool:
        nodes = self.nodes[partition].difference(*(self.nodes[each] for each in closed))
        free = self.usable(self.free(), partition)
        fitting = {node for node in nodes if free[node] > 0}
        if int(free[sorted(fitting)].sum()) < self.view.gpus[row]:
            return False
        self.restrict(row, fitting)
        return True

    def settle(self, row: int) -> None:
        if row in self.kept_off:
            before = self.kept_off.pop(row)
            if before is None:
                self.room.avoided.pop(row, None)
            else:
                self.room.avoided[row] = before

    def closed_by(self, partition: int) -> Set[int]:
        return {partition}  # others do without its nodes (`offer`)

    def plan(self, state: PassState, resolution: int, end_window: int) -> NodePlan:
        return NodePlan(self, state, resolution, end_window)

    def restrict(self, row: int, nodes: Set[int]) -> None:
        """Restrict a job to these nodes, less those that it is kept off, until it is settled."""
        before = self.room.avoided.get(row)
        self.kept_off[row] = before
        others = frozenset(range(self.room.n_nodes)).difference(nodes)
        self.room.avoided[row] = others if before is None else others | before

    def free(self) -> Counts:
        """The GPUs that are free on each node; none on one that a job has for itself."""
        free = np.array(self.room.nodes.free, np.int64)
        for row in self.view.running:
            if self.whole[self.partition[row]]:
                free[[node for node, _ in self.room.held[row]]] = 0
        return free

    def usable(self, free: Counts, partition: int) -> Counts:
        """What of it jobs of a partition may use: where they take whole nodes, those alone that are idle."""
        return np.where(free == self.size, free, 0) if self.whole[partition] else free


def taken_together(ends: Sequence[int], window: int) -> list[int]:
    """For each end that is expected the last one of its window: Slurm looks for room after all of a window at once.

    The first window ends a window's length after the multiple of it that follows the first end; each further one
    reaches twice as far from there. A length of 0 is no window.

    Source: plugins/select/cons_tres/job_test.c of Slurm 22.05, ``_will_run_test``, without bf_window_scale.

    >>> taken_together([95, 130, 170, 185, 700], 30)
    [130, 130, 170, 185, 700]
    """
    if not window or not ends:
        return list(ends)
    first = min(ends)
    base = first - first % window + window
    places = [max(0, -(-(end - base) // window) - 1).bit_length() for end in ends]
    last = dict(sorted(zip(places, ends, strict=True)))  # of equal keys the last one stays
    return [last[place] for place in places]


class NodePlan:
    """The GPUs that will be free on each node, besides running jobs and reservations, stretch by stretch.

    ``free[i]`` and ``reserved[i]``, (n_nodes,) each, hold from ``ticks[i]`` to the next tick. A reservation bars its
    nodes instead of counting GPUs: slurmctld's table has a bit for each node.
    """

    def __init__(self, space: OnNodes, state: PassState, resolution: int, end_window: int) -> None:
        self.space, self.view, self.resolution = space, state.view, resolution
        self.ticks = [state.view.now]
        self.free = [space.free()]  # of each stretch
        self.reserved = [np.zeros(space.room.n_nodes, bool)]
        self.found: dict[int, list[int]] = {}  # nodes, of each job that was looked for
        rows = list(state.view.running)
        for row, end in zip(rows, taken_together([state.expected_end(row) for row in rows], end_window), strict=True):
            first = self._cut(end)
            for node, gpus in self._held(row):
                for i in range(first, len(self.free)):
                    self.free[i][node] += gpus

    def earliest(self, row: int, partition: int, length: int) -> int | None:
        """The first tick from which a placement finds the job its nodes for this long; None if none does by what is
        known.

        A stretch offers on each node the least that is free on it from then until the job ends, and nothing on a
        reserved node. The nodes found are kept for `offer` and `reserve`. Costs the stretches times those that the job
        spans, times the nodes.
        """
        barred = self.space.room.avoided.get(row, frozenset())
        allowed = np.zeros(self.space.room.n_nodes, bool)
        allowed[sorted(self.space.nodes[partition] - barred)] = True
        for i, tick in enumerate(self.ticks):
            last = bisect_left(self.ticks, tick + length)
            left = [np.where(self.reserved[j], 0, self.free[j]) for j in range(i, last)]
            free = np.where(allowed, self.space.usable(np.minimum.reduce(left), partition), 0)
            nodes = self._choose(row, free)
            if nodes is not None:
                self.found[row] = nodes
                return tick
        return None

    def offer(self, row: int) -> bool:
        self.space.restrict(row, set(self.found[row]))
        return True

    def run(self, row: int, end: int) -> None:
        last = self._cut(end)
        for node, gpus in self._held(row):
            for i in range(last):
                self.free[i][node] -= gpus

    def reserve(self, row: int, start: int, end: int) -> None:
        """Reserve the nodes that were found, whole, as slurmctld does; both ends are rounded down to the resolution."""
        begin, rounded = max(self.view.now, start - start % self.resolution), end - end % self.resolution
        first = self._cut(begin)
        last = self._cut(rounded if rounded > start else end)
        for i in range(first, last):
            self.reserved[i][self.found[row]] = True

    def _choose(self, row: int, free: Counts) -> list[int] | None:
        """The nodes that the placement takes, of such free GPUs, where it asks for the least locality."""
        room, gpus = self.space.room, self.view.gpus[row]
        if int(free.sum()) < gpus:
            return None
        ask = Ask(row, gpus, room.placement.rungs - 1, room.launches.get(row, 0))
        shares = room.placement.choose(Nodes(room.nodes.size, free.tolist(), room.nodes.rack), ask)
        return None if shares is None else [node for node, _ in shares]

    def _held(self, row: int) -> list[tuple[int, int]]:
        """What a running job has on each node: all of it, where it has the node for itself."""
        whole = self.space.whole[self.space.partition[row]]
        return [(node, int(self.space.size[node]) if whole else gpus) for node, gpus in self.space.room.held[row]]

    def _cut(self, tick: int) -> int:
        """Split the stretch at the tick; the position of the part that begins there."""
        i = bisect_left(self.ticks, tick)
        if i == len(self.ticks) or self.ticks[i] != tick:
            self.ticks.insert(i, tick)
            self.free.insert(i, self.free[i - 1].copy())
            self.reserved.insert(i, self.reserved[i - 1].copy())
        return i
