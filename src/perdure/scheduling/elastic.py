"""The protocol of policies that choose for each job how many GPUs of which type it gets, round by round.

Jobs here have no running time: they have work, and do it at a speed that depends on what they are given. A change costs
a restart. A policy sees what has been learned of a job's speed while it ran, and what was profiled of it before: how
long it would take alone, just as it was asked for. How fast it truly is elsewhere it never sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple, Protocol, runtime_checkable

from perdure.errors import ConfigError
from perdure.scheduling.tuning import App
from perdure.throughput.colocation import Colocation
from perdure.throughput.learned import LearnedJob
from perdure.throughput.speed import Floats


class Share(NamedTuple):
    """What a job is given: on these nodes, or where it fits on whole nodes and a part of one.

    Two jobs may share all of their GPUs: their shares are then the same, and each names the other.
    """

    gpu_type: int
    nodes: int
    gpus: int
    where: tuple[tuple[int, int], ...] = ()  # node, from 0 within its type, and GPUs on it
    shared_with: int | None = None  # the row of the other job

    @property
    def spot(self) -> Share:
        """The GPUs alone, whoever else is on them."""
        return self if self.shared_with is None else self._replace(shared_with=None)


@dataclass(frozen=True, slots=True)
class GpuType:
    """All nodes of a cluster with one type of GPU; they have the same number of them."""

    name: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class TrueSpeed(Protocol):
    """What is truly so: for policies that are published with an oracle, and as a baseline."""

    def step_s(self, gpu_type: int, gpus: int) -> float:
        """Seconds of a step with the batch asked for, on as few nodes as hold so many GPUs; NaN: not measured."""

    def steps_left(self) -> float:
        """Steps with that batch, from the end of the present epoch on."""

    def most_gpus(self) -> int:
        """That the batch asked for can be spread over."""


@dataclass(slots=True)
class ElasticJob:
    """A job that is there and not over, as a policy sees it."""

    submit_s: float
    asked_gpus: int
    restart_s: float  # what a restart is expected to take
    most_gpus: int  # that it can use at all; of a pipeline, replicas
    largest_batch: int  # that it can use at all
    learned: LearnedJob
    work: float  # in steps of its smallest batch
    alone_s: Floats  # of all of it, on the GPUs and with the batch asked for, on each type (n_types,); inf: it cannot
    rigid: bool = False  # it runs on the GPUs asked for, and with their batch, or not at all: no policy resizes it
    left: float = 1.0  # the part of its work that is still to be done
    share: Share | None = None
    restarting: bool = False
    restarts: int = 0
    gpu_s: float = 0.0  # that it held GPUs; half of it where it shared them
    oracle: TrueSpeed | None = None
    application: str = ""
    name: str = ""  # as the trace has it
    reach: Sequence[int] = ()  # the most GPUs of each type that its application was measured on; (): not known
    sizes: Sequence[int] = ()  # numbers of GPUs that it may have, rising; (): any up to what it asks for
    steps_per_s: float = 0.0  # as it was seen to train when it last ran, beside another job if there was one


@dataclass(slots=True)
class ElasticView:
    """The cluster and its jobs at `now_s`, by their rows."""

    types: tuple[GpuType, ...]
    jobs: Mapping[int, ElasticJob]
    now_s: float = 0.0
    fastest_first: Sequence[int] = ()  # places of the types, by the speed of one GPU to all applications
    pairs: Colocation = field(default_factory=Colocation)  # as profiled
    apps: Sequence[App] = ()  # that search with several jobs, some of which are there


Plan = Mapping[int, Share]
"""What each job has in the round that begins; jobs that are not named have nothing."""


class ElasticPolicy(Protocol):
    """Decides at the beginning of each round of `round_s` seconds. An object is of one run: it may remember.

    Under one that is `adaptive` each job chooses its batch itself; else it keeps to that asked for.
    """

    @property
    def name(self) -> str: ...

    @property
    def round_s(self) -> float: ...

    @property
    def adaptive(self) -> bool: ...

    def plan(self, view: ElasticView) -> Plan:
        """Shares that together fit on the cluster. A share that stays the same costs no restart."""


@runtime_checkable
class SelectivePolicy(Protocol):
    """A policy that cannot plan for all jobs and clusters."""

    def check(self, view: ElasticView) -> None:
        """Raises `PerdureError` for what it cannot plan; `view` has all jobs that will ever come."""


@runtime_checkable
class PipelinePolicy(Protocol):
    """A policy that gives a pipeline whole replicas, side by side; others may not be asked for one."""

    @property
    def pipelines(self) -> bool: ...


@runtime_checkable
class SuspendingPolicy(Protocol):
    """A policy under which a job that yields its GPUs stays in the memory of their nodes.

    Where it is next given the same GPUs, it goes on after `resume_s`, which is no restart.
    """

    @property
    def resume_s(self) -> float: ...


@runtime_checkable
class SettlingPolicy(Protocol):
    """A policy that can tell when rounds need no plan; others plan each round."""

    @property
    def round_s(self) -> float: ...

    def settled_until_s(self, view: ElasticView) -> float:
        """Its plans before this instant are the last one again, if no job comes, goes or fails."""


def is_placed(gpus: Sequence[int], kind: GpuType) -> bool:
    """Whether shares find their nodes together, the largest first: whole nodes, and a rest within one node.

    >>> is_placed([8, 2, 2], GpuType("t4", 3, 4)), is_placed([8, 3, 3], GpuType("t4", 3, 4))
    (True, False)
    """
    size = kind.gpus_per_node
    if all(leaves_no_hole(each, size) for each in gpus):
        return sum(gpus) <= kind.gpus  # halves of halves leave no hole
    free = [size] * kind.nodes
    for asked in sorted(gpus, reverse=True):
        whole, rest = divmod(asked, size)
        empty = [node for node, left in enumerate(free) if left == size]
        if len(empty) < whole:
            return False
        for node in empty[:whole]:
            free[node] = 0
        fitting = [(left, node) for node, left in enumerate(free) if left >= rest]
        if rest and not fitting:
            return False
        if rest:
            free[min(fitting)[1]] -= rest
    return True


@runtime_checkable
class ShrinkingPolicy(Protocol):
    """A policy under which a job that may be resized runs on fewer GPUs than it asks for."""

    @property
    def shrinks(self) -> bool: ...


def leaves_no_hole(gpus: int, size: int) -> bool:
    """Whether shares of so many GPUs find their nodes of `size` as long as there are GPUs enough."""
    return (size % gpus == 0 and gpus & (gpus - 1) == 0) or gpus % size == 0


def only_type(view: ElasticView, policy: str) -> GpuType:
    """The GPU type of a policy that knows but one. Raises `ConfigError` where there are more."""
    if len(view.types) > 1:
        names = ", ".join(kind.name for kind in view.types)
        raise ConfigError(f"--policy {policy}", f"it plans for one GPU type, not for {names}", "Name one in --cluster")
    return view.types[0]


def types_for(view: ElasticView, job: ElasticJob) -> list[int]:
    """Places of the GPU types that a job runs on, the fastest first."""
    return [place for place in view.fastest_first if isfinite(job.alone_s[place])]


def place_on_freest(free: list[int], gpus: int) -> tuple[tuple[int, int], ...]:
    """GPUs of the nodes that have most free, the first of equals; they are taken from `free`, which has enough.

    >>> free = [2, 4, 4]
    >>> place_on_freest(free, 6), free
    (((1, 4), (2, 2)), [2, 0, 2])
    """
    where = list[tuple[int, int]]()
    while gpus > 0:
        node = max(range(len(free)), key=free.__getitem__)
        taken = min(free[node], gpus)
        where.append((node, taken))
        free[node], gpus = free[node] - taken, gpus - taken
    return tuple(where)


def share_of(gpus: int, place: int, kind: GpuType) -> Share:
    """This many GPUs of the type at that place, on as few nodes as hold them."""
    return Share(place, -(-gpus // kind.gpus_per_node), gpus)
