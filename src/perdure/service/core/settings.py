"""What may be set of the controller."""

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
