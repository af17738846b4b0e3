"""Jobs in groups: by virtual cluster, by user, and by how many GPUs they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable

SIZES = ((1, 1), (2, 4), (5, 8), (9, 10**9))  # classes of GPU counts, as in Philly's study


class GroupKind(StrEnum):
    """What the jobs of a group have in common."""

    CLUSTER = "virtual cluster"
    USER = "user"
    GPUS = "GPUs"


@dataclass(frozen=True, slots=True)
class Grouping:
    """All jobs, parted by what they have in common."""

    kind: GroupKind
    names: tuple[str, ...]
    of: NDArray[np.intp]  # the group of each job, as a place in `names`


def groupings(table: JobTable) -> tuple[Grouping, ...]:
    """The jobs by virtual cluster, by user and by size; no group is empty.

    >>> users = np.array(["eve", "bob"])
    >>> table = JobTable(np.array(["a", "b"]), np.zeros(2), np.array([1, 16]), np.ones(2), user=users)
    >>> [(each.kind.value, each.names, each.of.tolist()) for each in groupings(table)]
    [('virtual cluster', ('',), [0, 0]), ('user', ('bob', 'eve'), [1, 0]), ('GPUs', ('1', '9+'), [0, 1])]
    """
    names = (size_name(*size) for size in SIZES)
    classes, size = np.unique(np.searchsorted([high for _, high in SIZES], table.gpus), return_inverse=True)
    there = np.array([*names])[classes].tolist()
    words = (GroupKind.CLUSTER, table.vc), (GroupKind.USER, table.user)
    return (*(Grouping(kind, *_named(column)) for kind, column in words), Grouping(GroupKind.GPUS, tuple(there), size))


def size_name(low: int, high: int) -> str:
    """A class of `SIZES` in short: 1, 2-4, 9+."""
    return str(low) if low == high else f"{low}+" if high >= 10**9 else f"{low}-{high}"


def _named(column: NDArray[np.str_]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The different words of a column, sorted, and the place of each row's word among them."""
    if len(column) and (column == column[0]).all():  # sorting ten million blanks takes long
        return (str(column[0]),), np.zeros(len(column), np.intp)
    names, of = np.unique(column, return_inverse=True)
    return tuple(names.tolist()), of
