"""What a simulation asks a retry policy, and what that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class FailedRun(NamedTuple):
    """A failed attempt, as a retry policy sees it. Nodes are numbered from 0."""

    row: int  # of the job
    number: int  # 1 for the job's first attempt
    record: int  # row of the recorded attempt that says how this one ended
    now_s: float
    ran_s: float
    nodes: tuple[int, ...] = ()  # that it had; none where GPUs are only counted
    bad: int = -1  # of these, the one whose fault ended it; -1 where none did
    avoided: frozenset[int] = frozenset()  # nodes that the job is kept off already
    all_nodes: int = 0  # of the cluster; 0 where GPUs are only counted


class Again(NamedTuple):
    """The job comes back after this many seconds, from now on kept off more nodes if it finds a place elsewhere."""

    delay_s: float = 0.0
    avoid: tuple[int, ...] = ()


Retry = Callable[[FailedRun], Again | None]
"""Whether a job goes on after a failed attempt; None if it does not.

A job without a further recorded attempt is over, and nobody is asked.
"""
