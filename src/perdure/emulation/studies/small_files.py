"""A cache that keeps the smallest files first, against one that keeps what came first.

A read from storage takes a time of its own and a time for its bytes; many small files save more of the former. Result
of GPEmu (M. Wang et al.); sizes are lognormal, as those of ImageNet about are.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable

FILES, MEDIAN_BYTES, SPREAD = 200_000, 100e3, 0.8
SEEK_S, BYTES_PER_S = 5e-3, 150e6


def small_files(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - of files alone
    """Hits and epoch times of both caches, for caches of a tenth to half of all bytes."""
    sizes = MEDIAN_BYTES * np.exp(SPREAD * rng.standard_normal(FILES))
    read_s, total = SEEK_S + sizes / BYTES_PER_S, sizes.sum()
    ordered = np.sort(sizes)
    rows = []
    for share in (0.1, 0.2, 0.35, 0.5):
        first, small = (int(np.searchsorted(np.cumsum(each), share * total)) for each in (sizes, ordered))
        left = [float(read_s[first:].sum()), float((SEEK_S + ordered[small:] / BYTES_PER_S).sum())]
        rows.append((share, first / FILES, small / FILES, left[0] / left[1]))
    return StudyTable(
        ("cached bytes", "hits, first come", "hits, small first", "speed-up"), tuple(rows),
        f"{FILES:,} files, median 100 kB, lognormal of spread {SPREAD}; disk of 5 ms and 150 MB/s",
    )  # fmt: skip
