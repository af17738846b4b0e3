"""Why a job waits, in Slurm's own words (squeue's NODELIST(REASON))."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlurmReason:
    """What holds a waiting job."""

    reason: str
    planned: int | None = None  # the tick at which the last backfill cycle planned to start it
    ahead: int = 0  # jobs before it in the order of the last pass
    forever: bool = False  # no passing of time ends it
