"""A cluster as a simulation sees it: nodes with GPUs of one kind, in racks, perhaps with CPUs and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import re2
from numpy.typing import NDArray

from perdure.errors import InputError

MAX_NODES = 1_000_000
_MOST_DIGITS = 7  # of MAX_NODES
_FIX = "Write it like 32x8 or 321x2+231x8, with racks of 4 nodes 32x8/4, with CPUs and memory 32x8:cpu=96:mem=1T"
_GROUP = re2.compile(r"(\d{1,7})x(\d{1,5})(?::([A-Za-z0-9_.-]{1,64}))?(?::cpu=(\d{1,7}))?(?::mem=(\d{1,9})([MGT]))?")
_MIB = {"M": 1, "G": 2**10, "T": 2**20}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes as columns of one length, shape (n_nodes,)."""

    gpus: NDArray[np.int64]  # of each node
    rack: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # nodes of one rack share RDMA
    gpu_type: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))
    cpus: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # of each node; none: not counted
    mem_mib: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # likewise

    def __post_init__(self) -> None:
        n = len(self.gpus)
        if n and not len(self.rack):
            object.__setattr__(self, "rack", np.zeros(n, np.int64))
        if n and not len(self.gpu_type):
            object.__setattr__(self, "gpu_type", np.full(n, "", "U1"))
        further = [len(column) or n for column in (self.cpus, self.mem_mib)]
        if len({n, len(self.rack), len(self.gpu_type), *further}) > 1:
            raise ValueError("Cluster columns differ in length")

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def total_gpus(self) -> int:
        return int(self.gpus.sum())

    @property
    def counts_gpus_alone(self) -> bool:
        return not len(self.cpus) and not len(self.mem_mib)

    @classmethod
    def parse(cls, spec: str, rack_nodes: int = 0) -> Cluster:
        """Read "321x2+231x8": so many nodes of so many GPUs; "32x8:v100" names the kind of GPU, "32x8/4" the racks.

        `rack_nodes`, or the number behind the slash, puts that many consecutive nodes into a rack; 0 is one rack for
        all. "32x8:cpu=96:mem=1T" also gives CPUs and memory, of all groups or of none. Raises `InputError`.

        >>> Cluster.parse("2x4+1x8").total_gpus
        16
        >>> Cluster.parse("4x8/2").rack.tolist()
        [0, 0, 1, 1]
        >>> Cluster.parse("2x8:v100:cpu=96:mem=2G").mem_mib.tolist()
        [2048, 2048]
        """
        groups, slash, nodes = spec.partition("/")
        if slash:
            rack_nodes = _rack_nodes(spec, nodes)
        counts: list[int] = []
        gpus: list[int] = []
        kinds: list[str] = []
        further: list[tuple[int, int]] = []
        for part in groups.split("+"):
            found = _GROUP.fullmatch(part.strip())
            if found is None or not int(found[1]) or not int(found[2]):
                raise InputError(f"cluster {spec!r}", f"{part!r} is not NODESxGPUS", _FIX)
            counts.append(int(found[1]))
            gpus.append(int(found[2]))
            kinds.append(found[3] or "")
            further.append((int(found[4] or 0), int(found[5] or 0) * _MIB[found[6] or "M"]))
        if sum(counts) > MAX_NODES:
            raise InputError(f"cluster {spec!r}", f"more than {MAX_NODES} nodes", "Name fewer")
        rack = np.arange(sum(counts)) // rack_nodes if rack_nodes else np.zeros(sum(counts), np.int64)
        cpus, mem_mib = (
            told_of_all(spec, name, column)
            for name, column in zip(("cpu", "mem"), zip(*further, strict=True), strict=True)
        )
        return cls(
            np.repeat(np.array(gpus, np.int64), counts),
            rack.astype(np.int64),
            np.repeat(kinds, counts),
            *(np.repeat(column, counts if len(column) else 1) for column in (cpus, mem_mib)),
        )


def told_of_all(where: str, name: str, column: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """What groups of nodes have of a resource; empty where none tells it. Raises `InputError` where some do."""
    if any(column) and not all(column):
        raise InputError(
            f"cluster {where!r}", f"some of its nodes tell no {name}", f"Give {name} of all nodes, or of none"
        )
    return np.array(column if any(column) else (), np.int64)


def _rack_nodes(spec: str, nodes: str) -> int:
    if not nodes.isdecimal() or len(nodes) > _MOST_DIGITS or not 0 < int(nodes) <= MAX_NODES:
        raise InputError(f"cluster {spec!r}", f"{nodes!r} is not a number of nodes a rack", _FIX)
    return int(nodes)
