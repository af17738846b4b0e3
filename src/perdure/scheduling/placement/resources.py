"""Resources besides GPUs: what jobs ask for of CPUs and memory, what nodes have of them, and what of it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable

Shares = Sequence[tuple[int, int]]  # nodes, and a gang's GPUs on each
_COLUMNS = {"CPUs": "cpus", "MiB": "mem_mib"}  # of a cluster and of a table of jobs


@dataclass(frozen=True, slots=True)
class NodeResource:
    """A resource besides GPUs, in whole units."""

    unit: str  # in the plural
    asked: Sequence[int]  # by each job, for all of its gang; 0 for none, and where a trace does not say
    on_node: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.on_node)


def resources_of(cluster: Cluster, table: JobTable) -> tuple[NodeResource, ...]:
    """The resources that a cluster counts besides GPUs; none for a cluster that is told as nodes with GPUs."""
    told = ((unit, getattr(table, name), getattr(cluster, name)) for unit, name in _COLUMNS.items())
    return tuple(NodeResource(unit, asked.tolist(), has.tolist()) for unit, asked, has in told if len(has))


@dataclass(slots=True)
class Stock:
    """What is free of the resources besides GPUs, node by node; or in all, where GPUs are only counted.

    A gang holds them in proportion to its GPUs on each node, in whole units there: 10 CPUs of 4 GPUs are 8 and 3 on
    nodes that hold 3 and 1. So what limits a job is told as GPUs that it can use, and any placement chooses among them.

    >>> stock = Stock.of_nodes((NodeResource("CPUs", [10], [10, 4]),))
    >>> stock.usable(0, 4, [8, 8])
    [4, 1]
    >>> stock.hold(0, ((0, 3), (1, 1))); stock.free
    [[2, 1]]
    """

    resources: tuple[NodeResource, ...]
    free: list[list[int]] = field(default_factory=list)  # of each resource, on each node

    @classmethod
    def of_nodes(cls, resources: tuple[NodeResource, ...]) -> Stock:
        return cls(resources, [list(resource.on_node) for resource in resources])

    @classmethod
    def counted(cls, resources: tuple[NodeResource, ...]) -> Stock:
        """As of one node that has everything: the only one, so that node -1 of GPUs that are counted is it."""
        return cls(resources, [[resource.total] for resource in resources])

    def usable(self, row: int, gpus: int, free_gpus: list[int]) -> list[int]:
        """Of each node's free GPUs as many as the job's other resources are free for there."""
        for resource, free in zip(self.resources, self.free, strict=True):
            asked = resource.asked[row]
            if asked:
                free_gpus = [min(some, has * gpus // asked) for some, has in zip(free_gpus, free, strict=True)]
        return free_gpus

    def fits(self, row: int, shares: Shares) -> bool:
        """Whether what the job needs beside these very GPUs is free."""
        return all(
            amount <= free[node]
            for resource, free in zip(self.resources, self.free, strict=True)
            for node, amount in _amounts(resource.asked[row], shares)
        )

    def take(self, row: int, gpus: int) -> bool:
        """Hold what a job needs, where everything is counted; whether it was free."""
        shares = ((-1, gpus),)
        fits = self.fits(row, shares)
        if fits:
            self.hold(row, shares)
        return fits

    def hold(self, row: int, shares: Shares) -> None:
        self._add(row, shares, -1)

    def give_back(self, row: int, shares: Shares) -> None:
        self._add(row, shares, 1)

    def _add(self, row: int, shares: Shares, sign: int) -> None:
        for resource, free in zip(self.resources, self.free, strict=True):
            for node, amount in _amounts(resource.asked[row], shares):
                free[node] += sign * amount


def _amounts(asked: int, shares: Shares) -> list[tuple[int, int]]:
    """What a gang holds of a resource on each of its nodes."""
    gang = sum(gpus for _, gpus in shares)
    return [(node, -(-asked * gpus // gang)) for node, gpus in shares]
