"""What may be set of the core: what the controller decides by, and how much may be done in an hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from perdure.coordination.playbook import Playbook, own_playbook
from perdure.retry.rules import RetryRules


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller's decisions depend on."""

    retry: RetryRules = field(default_factory=RetryRules)
    playbook: Playbook = field(default_factory=own_playbook)
    action_ttl_s: Annotated[float, Meta(ge=1)] = 15 * 60.0
    """An action that was not begun this long after it was decided is not begun at all."""
    vanish_grace_s: float = 30.0
    """How long an attempt may be missing from what the resource manager says before it counts as ended."""
    ignore_before_s: float = 0.0
    """Attempts that ended before this instant are written down, and that is all: Perdure does not act on them."""
    mark: str = ""
    """Of this service, in the line that each decision leaves in the job's record; "": no line is written."""
    max_cases: Annotated[int, Meta(ge=1)] = 5000
    """Jobs with failures that are remembered; beyond it the oldest that are settled are forgotten."""


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
