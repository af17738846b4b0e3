"""The protocol of policies that choose for each job how many GPUs of which type it gets, round by round.

Jobs here have no running time: they have work, and do it at a speed that depends on what they are given. A change costs
a restart. A policy sees what has been learned of a job's speed, never how fast it truly is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from perdure.throughput.learned import LearnedJob


class Share(NamedTuple):
    """What a job is given: whole nodes, or a part of one."""

    gpu_type: int
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class GpuType:
    """All nodes of a cluster with one type of GPU; they have the same number of them."""

    name: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(slots=True)
class ElasticJob:
    """A job that is there and not over, as a policy sees it."""

    submit_s: float
    asked_gpus: int
    restart_s: float  # what a restart is expected to take
    most_gpus: int  # that it can use at all
    learned: LearnedJob
    share: Share | None = None
    restarting: bool = False
    restarts: int = 0


@dataclass(slots=True)
class ElasticView:
    """The cluster and its jobs at `now_s`, by their rows."""

    types: tuple[GpuType, ...]
    jobs: Mapping[int, ElasticJob]
    now_s: float = 0.0


Plan = Mapping[int, Share]
"""What each job has in the round that begins; jobs that are not named have nothing."""


class ElasticPolicy(Protocol):
    """Decides at the beginning of each round of `round_s` seconds.

    It remembers nothing between rounds that the view does not show.
    """

    @property
    def name(self) -> str: ...

    @property
    def round_s(self) -> float: ...

    def plan(self, view: ElasticView) -> Plan:
        """Shares that together fit on the cluster. A share that stays the same costs no restart."""
