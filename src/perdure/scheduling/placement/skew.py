"""Tiresias' placement: only models whose messages are skewed need their GPUs together."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.draws import uniform
from perdure.scheduling.placement.consolidate import Consolidate
from perdure.scheduling.placement.nodes import Ask, Nodes, gather
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class Skew:
    """A gang with a skewed model is consolidated or waits; any other fills the smallest gaps, which hurts others least.

    A model is skewed where one tensor is large next to the whole: its messages then suffer from being spread. Traces do
    not tell skew: a `share` of the jobs, drawn by `seed` and row, counts as skewed. A job keeps its draw over all its
    attempts.

    Source: J. Gu et al., "Tiresias", NSDI 2019.
    """

    share: float = 0.5
    seed: int = 0
    name: str = "skew"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        if uniform(self.seed, ask.row, 0) < self.share:
            return Consolidate().choose(nodes, ask)
        return gather(nodes.free, ask.gpus, sorted(range(len(nodes.free)), key=lambda node: (nodes.free[node], node)))
