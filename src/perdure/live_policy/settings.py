"""What may be set of the policy that is in force."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from perdure.scheduling.live_limits import LiveLimits


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """A scheduling policy above the resource manager, for jobs that opted in."""

    name: str = ""
    """The policy: fifo, fjf, fewest-gpus, las, las-2d, las-2d:KNOB, gittins-2d, themis or sia; "": none."""
    partitions: tuple[str, ...] = ()
    """Jobs of these take part: their place in the queue may be changed."""
    qos: tuple[str, ...] = ()
    """Jobs of these qualities of service take part."""
    preempt_qos: tuple[str, ...] = ()
    """Jobs of these take part, and may be put back while they run."""
    owners: bool = True
    """Jobs whose owners wrote ``perdure:policy`` or ``perdure:preempt`` into the comment take part."""
    every_s: Annotated[float, Meta(ge=1, le=3600)] = 10.0
    """Seconds between two decisions. Each changes places with one call at most, and asks nothing by itself."""
    changes: Annotated[int, Meta(ge=1, le=1000)] = 200
    """Jobs whose place is changed by one decision, at most; the others follow with the next."""
    first_limit_s: Annotated[float, Meta(gt=0)] = 3250.0
    """Service at which a job sinks to the second queue of las (seconds), and of las-2d and gittins-2d (GPU-seconds)."""
    second_limit_s: Annotated[float, Meta(gt=0)] = 7200.0
    """The same for the third queue."""
    history: Path | None = None
    """Your own accounting (``sacct --parsable2``, or any trace that ``perdure whatif`` reads), for gittins-2d."""
    lease_s: Annotated[float, Meta(gt=0)] = 1200.0
    """Seconds for which themis gives GPUs; then they are on offer again."""
    round_s: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds of a round of themis, in which leases that have ended are on offer, and least time of a job under sia."""
    least_run_s: Annotated[float, Meta(ge=0)] = 1800.0
    """A job is not put back before it has run this long since its latest start."""
    checkpoint_age_s: Annotated[float, Meta(ge=0)] = 900.0
    """Nor while its last known checkpoint (``perdure.job.checkpointed`` under ``perdure exec``) is older than this."""
    needs_checkpoint: bool = False
    """Nor, where this is true, if no checkpoint of its latest start is known."""
    preemptions_per_job: int = 3
    """A job is put back this often at most."""
    preemptions_per_hour: int = 20
    """Jobs that are put back in an hour, at most."""

    def limits(self, look_every_s: float) -> LiveLimits:
        """Within what a running job may make room, as far as a simulation can hold to it."""
        every_s = max(self.every_s, look_every_s)
        return LiveLimits(every_s, self.least_run_s, self.preemptions_per_job, self.preemptions_per_hour)

    @property
    def queue_limits(self) -> tuple[float, float]:
        return (self.first_limit_s, max(self.first_limit_s, self.second_limit_s))
