"""Inside a job: the fence against incarnations that have been given up, signs of life, and the launcher for both."""

from typing import TYPE_CHECKING, Any

from perdure.job.beats import beat
from perdure.job.fence import Claim, claim, current_claim
from perdure.job.leave import leave
from perdure.job.requested import asked, paused

if TYPE_CHECKING:
    from perdure.job.checkpoint import checkpointed

__all__ = ["Claim", "asked", "beat", "checkpointed", "claim", "current_claim", "leave", "paused"]


def __getattr__(name: str) -> Any:
    """What the launcher, which starts with each task, does not need is loaded where it is used."""
    if name == "checkpointed":
        from perdure.job.checkpoint import checkpointed

        return checkpointed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
