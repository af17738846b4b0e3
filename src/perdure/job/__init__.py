"""Inside a job: the fence against incarnations that have been given up, signs of life, and the launcher for both."""

from perdure.job.beats import beat
from perdure.job.checkpoint import checkpointed
from perdure.job.fence import Claim, claim, current_claim
from perdure.job.leave import leave
from perdure.job.requested import asked, paused

__all__ = ["Claim", "asked", "beat", "checkpointed", "claim", "current_claim", "leave", "paused"]
