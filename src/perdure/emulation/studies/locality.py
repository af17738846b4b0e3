"""Nodes that load the files they have cached (C. Yang and G. Cong, HiPC 2019).

Each node loads its share of all files in an epoch. Where that share is drawn for each epoch, others' files come between
two uses of one; where it stays the same, only the node's own do. A page cache drops what was used longest ago.

Source: "Accelerating data loading in deep neural network training".
"""

from __future__ import annotations

from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable

FILES, CACHED = 4000, 0.25
READING_S, COMPUTING_S = 3.4, 1.0
"""An epoch of one node that reads all files from storage, and one that finds all in memory; the ratio as published."""

WARM, COUNTED = 4, 8  # epochs


def read_share(nodes: int, drawn: bool, rng: Generator, cached: float = CACHED) -> float:
    """The share of a node's files that its page cache, of `cached` of all files, has not when they are used."""
    room, own, missed = int(cached * FILES), FILES // nodes, 0
    cache: dict[int, None] = {}
    for epoch in range(WARM + COUNTED):
        for file in (rng.permutation(FILES)[:own] if drawn else rng.permutation(own)).tolist():
            missed += file not in cache and epoch >= WARM
            cache.pop(file, None)
            cache[file] = None
            if len(cache) > room:
                del cache[next(iter(cache))]
    return missed / COUNTED / own


def locality(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - nothing is measured
    """Epochs of one, two and four nodes, over that of one; each reads from storage at a rate of its own."""
    found = {
        (nodes, drawn): max(read_share(nodes, drawn, rng) * READING_S, COMPUTING_S) / nodes
        for nodes in (1, 2, 4)
        for drawn in (True, False)
    }
    rows = tuple(
        (float(nodes), found[nodes, True] / found[1, True], found[nodes, False] / found[1, True],
         found[nodes, True] / found[nodes, False])
        for nodes in (1, 2, 4)
    )  # fmt: skip
    return StudyTable(
        ("nodes", "epoch, drawn", "epoch, own files", "speed-up"), rows,
        f"a page cache of {CACHED:.0%} of all files a node; reading takes {READING_S:g} times as long as computing",
    )  # fmt: skip
