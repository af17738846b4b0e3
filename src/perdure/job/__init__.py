"""Inside a job: the fence against incarnations that have been given up, and the launcher that uses it."""

from perdure.job.checkpoint import checkpointed
from perdure.job.fence import Claim, claim, current_claim

__all__ = ["Claim", "checkpointed", "claim", "current_claim"]
