"""Faults of nodes in one run: which attempts they end, and which later ones of the same job meet them again.

A fault ends an attempt and stays on one of its nodes until that is repaired. Attempts of the job that start there
before fail too, after the time that the fault took at first, unless they end of themselves earlier; elsewhere they are
well.

Nobody else is harmed by it. The rates that failures are drawn by count the failures of all jobs, those that a bad node
dealt to one job after another among them: each job is drawn its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MOST_MET = 100
"""Attempts that one fault ends of a job; then the job is over, whatever its retry policy says."""


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Which attempts of a workload end by a fault of one of their nodes; shape (n_attempts,)."""

    bound: NDArray[np.bool_]
    again: NDArray[np.bool_]  # of these: by a fault that an earlier attempt of the job met
    pick: NDArray[np.float64]  # in [0, 1): which of its nodes
    repair_s: NDArray[np.float64]  # from the end of the attempt


@dataclass(slots=True)
class NodeFault:
    """A fault that stays on a node. Times are ticks."""

    record: int  # the recorded attempt that it ended
    node: int
    until: int  # when the node is repaired
    after: int  # running time until it ends an attempt
    met: int = 1  # attempts that it has ended


@dataclass(slots=True)
class BadNodes:
    """The faults that jobs have met so far; without `faults` none comes, and all attempts are made as recorded."""

    faults: NodeFaults | None = None
    ticks_per_s: int = 1
    of: dict[int, list[NodeFault]] = field(default_factory=dict)  # by job

    def left_by(self, row: int, record: int, ran: int, nodes: Sequence[int], now: int) -> NodeFault | None:
        """The fault that the recorded attempt leaves on one of its nodes, if it ended by one."""
        if self.faults is None or not self.faults.bound[record]:
            return None
        node = nodes[int(self.faults.pick[record] * len(nodes))]
        until = now + round(float(self.faults.repair_s[record]) * self.ticks_per_s)
        fault = NodeFault(record, node, until, max(1, ran))
        self.of.setdefault(row, []).append(fault)
        return fault

    def met_on(self, row: int, nodes: Sequence[int], now: int) -> NodeFault | None:
        """The fault that ends an attempt of the job that starts on these nodes: of several the quickest, then first."""
        bad = [fault for fault in self.of.get(row, ()) if fault.node in nodes and now < fault.until]
        return min(bad, key=lambda fault: fault.after, default=None)

    def following(self, record: int) -> int:
        """The next recorded attempt. Whether an earlier fault is met again depends on nodes, not on records."""
        record += 1
        while self.faults is not None and self.faults.again[record]:
            record += 1
        return record
