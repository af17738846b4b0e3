"""How long GPUs wait for files, and what CoorDL saves (J. Mohan et al., "Analyzing data stalls", VLDB 2021).

Files are read while GPUs compute, so an epoch takes the longer of both. Each epoch reads every file once, in a new
order. A page cache that drops what was used longest ago keeps few of them till they are used again; one that never
drops what it has (MinIO) keeps as many as fit. With a cache of share c and random orders, the former finds a file with
chance 1 - t + t log t, t = 1 - c: that so few others come between its two uses. CoorDL joins the caches of nodes.
"""

from __future__ import annotations

from math import log

from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable, steps_of

MODELS = (
    "alexnet", "shufflenet_v2_x0_5", "resnet18", "mobilenet_v2", "resnet50", "vgg11",
)  # fmt: skip
IMAGE_BYTES = 146e9 / 1.28e6  # of ImageNet-1k
SSD, DISK, PEERS = 530e6, 15e6, 5e9 * 0.7  # bytes a second: of random reads, and from other nodes at 40 Gbit/s
GPUS, BATCH = 8, 256
PREPARED, PREPARED_BY_CPU = 24 * 350.0, 24 * 98.0
"""Images a second that 24 CPUs prepare, with GPUs that help and without; the former by what is published of AlexNet."""


def found_by_lru(share: float) -> float:
    """The share of files that a cache of `share` of them still has when they are used again.

    >>> round(found_by_lru(0.35), 3)
    0.07
    """
    left = 1 - share
    return 1.0 if left <= 0 else 1 - left + left * log(left)


def fetch_stalls(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - nothing is random
    """The share of an epoch in which 8 V100 wait for files, 35 % of them cached."""
    rows: list[tuple[str | float, ...]] = []
    for model, step in steps_of("v100", MODELS, BATCH, table).items():
        computing = min(PREPARED, GPUS * BATCH / (step.forward_s + step.backward_s))
        stalls = []
        for found in (found_by_lru(0.35), 0.35):
            reading = SSD / IMAGE_BYTES / (1 - found)
            stalls.append(max(0.0, 1 - reading / computing))
        rows.append((model, computing, *stalls))
    return StudyTable(
        ("model", "images a second", "stall, page cache", "stall, MinIO"), tuple(rows),
        f"8 V100, batch {BATCH}, ImageNet-1k on an SSD of 530 MB/s, 35 % of it cached; CPUs prepare {PREPARED:,.0f} "
        "images a second",
    )  # fmt: skip


def coordl(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - nothing is random
    """How many times as fast an epoch is where nodes share their caches, over page caches of their own."""
    step = steps_of("v100", ("alexnet",), BATCH, table)["alexnet"]
    computing = min(PREPARED_BY_CPU, GPUS * BATCH / (step.forward_s + step.backward_s))
    rows = []
    for cached in (0.40, 0.65):
        for nodes in (1, 2, 3):
            alone = min(computing, DISK / IMAGE_BYTES / max(1e-9, 1 - found_by_lru(cached)))
            missing = max(0.0, 1 - nodes * cached)  # each node reads its share of what no node has
            from_disk = DISK / IMAGE_BYTES / missing if missing else float("inf")
            from_peers = PEERS / IMAGE_BYTES / (1 - 1 / nodes) if nodes > 1 else float("inf")
            rows.append((cached, float(nodes), min(computing, from_disk, from_peers) / alone))
    return StudyTable(
        ("cached by a node", "nodes", "speed-up"), tuple(rows),
        "AlexNet on nodes of 8 V100 and 24 CPUs, ImageNet-1k on a disk of 15 MB/s, 40 Gbit/s between nodes",
    )  # fmt: skip
