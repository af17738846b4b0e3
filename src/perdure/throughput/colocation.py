"""What is left of the speed of two jobs that share all of their GPUs: co-location, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perdure.errors import InputError
from perdure.model.profiles import PairProfile
from perdure.throughput.application import Application
from perdure.throughput.measured_speed import RatedSpeed

IN_TURNS = 0.5  # of its speed: what a job is taken to keep beside another where no pair like this was measured
Pair = tuple[str, int, bool, str, str]  # GPU type, GPUs, whether they are on one node, application, the other's


@dataclass(frozen=True, slots=True)
class Colocation:
    """How much of its speed alone an application keeps beside another on the same GPUs.

    0 where the two do not fit into the memory together. A pair that was not measured takes turns: nothing is gained.
    """

    measured: Mapping[Pair, float] = field(default_factory=dict)

    def kept(self, gpu_type: str, gpus: int, nodes: int, application: str, other: str) -> float:
        """Of `application`; of GPUs on several nodes that were measured on one only, that value.

        >>> pairs = Colocation({("v100", 1, True, "lm", "a3c"): 0.9})
        >>> pairs.kept("v100", 1, 1, "lm", "a3c"), pairs.kept("v100", 1, 1, "a3c", "lm")
        (0.9, 0.5)
        """
        found = self._found(gpu_type, gpus, nodes, application, other)
        return IN_TURNS if found is None else found

    def is_measured(self, gpu_type: str, gpus: int, nodes: int, application: str, other: str) -> bool:
        """Whether both were measured beside each other."""
        both = (application, other), (other, application)
        return all(self._found(gpu_type, gpus, nodes, *pair) is not None for pair in both)

    def fits(self, gpu_type: str, gpus: int, nodes: int, application: str, other: str) -> bool:
        """Whether both run at all."""
        both = (application, other), (other, application)
        return all(self.kept(gpu_type, gpus, nodes, *pair) > 0 for pair in both)

    def _found(self, gpu_type: str, gpus: int, nodes: int, application: str, other: str) -> float | None:
        there = self.measured.get((gpu_type, gpus, nodes == 1, application, other))
        return self.measured.get((gpu_type, gpus, True, application, other)) if there is None else there


def colocation(pairs: PairProfile, known: Mapping[str, Application]) -> Colocation:
    """The pairs of known applications, by their rates beside each other over those alone.

    Raises `InputError`, naming the pair, for a rate that is not valid.
    """
    names = list(known)
    rows = np.flatnonzero(np.isin(pairs.application, names) & np.isin(pairs.other, names))
    measured: dict[Pair, float] = {}
    for row in rows.tolist():
        name, other, kind = str(pairs.application[row]), str(pairs.other[row]), str(pairs.gpu_type[row])
        rate, speed = float(pairs.steps_per_s[row]), known[name].speed.get(kind)
        if not (np.isfinite(rate) and rate >= 0):
            where = f"application {name!r} beside {other!r} on {kind}"
            raise InputError(where, "its rate is not steps a second", "Leave the pair out")
        spot = int(pairs.gpus[row]), bool(pairs.together[row])
        alone = speed.per_s.get(spot, 0.0) if isinstance(speed, RatedSpeed) else 0.0
        if alone > 0:
            measured[kind, *spot, name, other] = rate / alone
    return Colocation(measured)
