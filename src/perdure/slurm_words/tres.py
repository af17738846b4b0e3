"""Resources as Slurm lists them (TRES, gres): how many GPUs, nodes and CPUs a text names, and how much memory."""

from __future__ import annotations

from functools import lru_cache

import re2

_GPUS = re2.compile(r"(?:^|,)gres/gpu(?::([^=,]{1,64}))?=(\d{1,9})")
_CPUS = re2.compile(r"(?:^|,)cpu=(\d{1,9})(?:$|,)")
_MEMORY = re2.compile(r"(?:^|,)mem=(\d{1,12}(?:\.\d{1,6})?)([KMGTP]?)(?:$|,)")
_MIB = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}
_NODE_TOTAL = re2.compile(r"(?:^|,)node=(\d{1,6})(?:$|,)")


def gpus(text: str) -> int | None:
    """GPUs in a list of resources, however this version of Slurm writes them. None where no GPU is named.

    Where counts with and without a type are side by side, the one without holds the others.

    >>> gpus("cpu=2,gres/gpu=4,gres/gpu:h100=4"), gpus("gpu:h100:4(S:0-1),gpu:a100:2"), gpus("gres:gpu"), gpus("cpu=1")
    (4, 6, 1, None)
    """
    plain = typed = 0
    found = False
    for item in text.split(","):
        kind, *rest = item.partition("(")[0].removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
        if kind != "gpu" or len(rest) > 2:
            continue
        found = True
        count = int(rest[-1]) if rest and rest[-1].isdecimal() and len(rest[-1]) < 10 else 1
        if rest and not rest[0].isdecimal():
            typed += count
        else:
            plain += count
    return max(plain, typed) if found else None


@lru_cache(maxsize=1 << 16)
def gpus_and_types(tres: str) -> tuple[int, str]:
    """How many GPUs a list of resources names, and of which kind; (0, "") where it names none.

    Where counts with and without a kind are side by side, the one without holds the others.

    >>> gpus_and_types("billing=97,cpu=1,gres/gpu=8,gres/gpu:h100=8"), gpus_and_types("cpu=4,node=1")
    ((8, 'h100'), (0, ''))
    """
    plain = typed = 0
    kinds = []
    for kind, count in _GPUS.findall(tres):
        if kind:
            typed += int(count)
            kinds.append(kind)
        else:
            plain += int(count)
    return max(plain, typed), "|".join(sorted(set(kinds)))


@lru_cache(maxsize=1 << 16)
def cpus_and_mem_mib(tres: str) -> tuple[int, int]:
    """How many CPUs and MiB a list of resources names; 0 where it names none. Memory without a unit is in MiB.

    >>> cpus_and_mem_mib("cpu=4,mem=1.50G,node=1"), cpus_and_mem_mib("gres/gpu=1,mem=512")
    ((4, 1536), (0, 512))
    """
    cpus, memory = _CPUS.search(tres), _MEMORY.search(tres)
    return int(cpus[1]) if cpus else 0, round(float(memory[1]) * _MIB[memory[2]]) if memory else 0


def node_total(text: str) -> int | None:
    """Nodes in a list of resources; None where none are named.

    >>> node_total("cpu=2,mem=128M,node=2,billing=2"), node_total("(null)")
    (2, None)
    """
    found = _NODE_TOTAL.search(text)
    return int(found[1]) if found else None
