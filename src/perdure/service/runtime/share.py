"""Which clusters a controller serves: its share of all, as many as any other one's or one more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class ShareChange(NamedTuple):
    """What a controller changes now."""

    start: tuple[str, ...]  # clusters that nobody has, to take over
    stop: tuple[str, ...]  # clusters to let go


def share_of(clusters: int, controllers: int, rank: int) -> int:
    """How many of the clusters the controller of this rank, from 0, serves; over all ranks they sum to all clusters.

    >>> [share_of(5, 3, rank) for rank in range(3)]
    [2, 2, 1]
    """
    return clusters // controllers + (rank < clusters % controllers)


def share_change(
    names: Sequence[str], mine: Sequence[str], held: Collection[str], controllers: int, rank: int
) -> ShareChange:
    """What brings a controller to its share.

    `names` are all clusters, in the same order for all controllers; `mine` those that it serves, the oldest first;
    `held` those that anybody serves. Controllers begin at different places of the list, so that few want the same.
    """
    kept = [name for name in mine if name in names]
    most, first = share_of(len(names), controllers, rank), rank * len(names) // controllers
    free = [name for name in (*names[first:], *names[:first]) if name not in held and name not in mine]
    gone = [name for name in mine if name not in names]
    return ShareChange(tuple(free[: max(0, most - len(kept))]), (*gone, *kept[most:]))
