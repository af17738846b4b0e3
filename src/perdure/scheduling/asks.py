"""What jobs asked for besides GPUs and a time limit, as far as a trace shows.

The policy `slurm` reads it; the others see GPUs, time limits, users and virtual clusters alone. CPUs and memory that a
cluster counts are in `placement/resources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]


class After(IntEnum):
    """The condition of a dependency, in the words of sbatch(1): ``afterany``, ``afterok``, ``afternotok``, ``after``.

    The numbers are those in the column `Needs.kind`.
    """

    ANY = 0  # that the other has ended
    OK = 1  # that it has ended well
    NOTOK = 2  # that it has failed
    START = 3  # that it has started
    SINGLETON = 4  # that all earlier singletons of its user have ended


@dataclass(frozen=True, slots=True)
class Needs:
    """Dependencies among jobs as columns of one length: the job in row `of` waits for the job in row `on`.

    A job with several rows waits for all of them. The order of the rows means nothing.
    """

    of: Ints
    on: Ints
    kind: NDArray[np.int8]  # After


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts as numbers: job i has ``words[of[i]]``. A million jobs of ten partitions hold ten texts."""

    of: Ints
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Asks:
    """Columns of one length, row i being job i; None where a trace says nothing of it."""

    partition: Texts | None = None
    account: Texts | None = None
    qos: Texts | None = None
    nice: Ints | None = None
    nodes: Ints | None = None
    cpus: Ints | None = None
    eligible: Ints | None = None  # ticks from which on a job may start
    needs: Needs | None = None
    array: Texts | None = None  # "12%2": of the tasks of array 12 two may run at once
