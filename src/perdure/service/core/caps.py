"""Caps: how much may be done in an hour, whatever is decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class Caps:
    """How much Perdure may do of its own accord in an hour.

    What a person asks for is not counted, nor the release of jobs that Perdure held itself. What a cap holds back
    waits and says until when. A drain does not expire meanwhile; a retry is put back at once, to start when there is
    room.
    """

    actions_per_hour: int = 10_000
    jobs_share_per_hour: Annotated[float, Meta(ge=0, le=100)] = 2.0
    """Also at most this many for each job that is not over, but never fewer than `floor_per_hour`: twice what the
    retries of the same jobs may be, of which a user has half. One user's jobs cause at most half of all actions."""
    floor_per_hour: int = 200
    drains_per_hour: int = 4
    nodes_share_per_hour: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Drains: also at most this share of the nodes, but never fewer than `drains_floor_per_hour`."""
    drains_floor_per_hour: int = 2
    nodes_out_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """No node is drained where more than this share of the nodes would then take no work, for whatever reason."""
