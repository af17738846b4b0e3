"""The queue as looks at the cluster tell it, for whoever asks when jobs start."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass

from perdure.backends.slurm.asking import answered
from perdure.backends.slurm.config import Config, read_config
from perdure.backends.slurm.node_records import NodeRecord
from perdure.backends.slurm.queue import ask_partitions, ask_reservations, look_of, queue_of
from perdure.backends.slurm.records import JobRecord
from perdure.backends.slurm.tools import Dialogs
from perdure.errors import PerdureError
from perdure.waits.queue import QueuedPartition, QueuedReservation, QueueLook

PARTITIONS_EVERY_S = 600.0  # what an administrator changes by hand is asked for so often


@dataclass(frozen=True, slots=True)
class _QueueRest:
    """What a queue has besides jobs and nodes, as it was told at an instant."""

    asked_s: float
    partitions: tuple[QueuedPartition, ...]
    reservations: tuple[QueuedReservation, ...]
    config: Config
    ahead_s: float  # by how much slurmctld's clock is ahead of this machine's


class QueueWatch:
    """Keeps what the last look saw; once somebody has asked, it also asks for what no look tells."""

    def __init__(self, dialogs: Dialogs) -> None:
        self._dialogs = dialogs
        self._is_wanted = False
        self._seen: tuple[float, tuple[JobRecord, ...], tuple[NodeRecord, ...]] | None = None
        self._rest: _QueueRest | None = None

    def last(self) -> QueueLook | None:
        """The queue as the last look saw it, from any thread; None before the look that follows the first question."""
        self._is_wanted = True
        seen, rest = self._seen, self._rest
        if seen is None or rest is None:
            return None
        at_s, records, nodes = seen
        queue = queue_of(at_s + rest.ahead_s, records, nodes, rest.partitions, rest.config.cluster, rest.reservations)
        return look_of(queue, rest.config)

    def note(self, now: float, records: tuple[JobRecord, ...], nodes: tuple[NodeRecord, ...]) -> None:
        """Take in a look."""
        self._note_rest(now)
        self._seen = now, records, nodes

    def _note_rest(self, now: float) -> None:
        """Learn, now and then, what of a queue no look tells: partitions, settings, and slurmctld's clock."""
        if not self._is_wanted or (self._rest and now < self._rest.asked_s + PARTITIONS_EVERY_S):
            return
        with contextlib.suppress(PerdureError), self._dialogs.dialog() as scontrol:
            partitions, reservations = ask_partitions(scontrol), ask_reservations(scontrol)
            config = read_config(answered(scontrol, "show config"), scontrol.mark)
            ahead_s = 0.0 if config.time_s is None else config.time_s - math.floor(time.time())
            self._rest = _QueueRest(now, partitions, reservations, config, ahead_s)
