"""Caps: how much may be done in an hour, whatever is decided."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.model.actions import Action, Release


@dataclass(frozen=True, slots=True)
class Caps:
    """How much Perdure may do of its own accord in an hour.

    What a person asks for is not counted, nor what lets go of jobs that Perdure held itself.
    """

    actions_per_hour: int = 300
    jobs_share_per_hour: float = 0.5
    """Also at most this share of the jobs that are not over, but never fewer than `floor_per_hour`."""
    floor_per_hour: int = 30
    drains_per_hour: int = 4
    nodes_share_per_hour: float = 0.1
    """Drains: also at most this share of the nodes, but never fewer than one."""


def undoes_own(action: Action) -> bool:
    """Whether an action of Perdure's only lets go of what Perdure held: that is never too much, and never too late."""
    return isinstance(action, Release) and bool(action.episode)
