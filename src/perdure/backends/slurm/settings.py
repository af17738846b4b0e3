"""What may be set of Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How Slurm is asked."""

    conf: Path | None = None
    """slurm.conf of the cluster; not set: what SLURM_CONF names, or the one of this machine."""
    cluster: str = ""
    """Another cluster of the same slurmdbd than that of slurm.conf, as for ``squeue -M NAME``."""
    tool_timeout_s: Annotated[float, Meta(ge=1)] = 30.0
    """How long one of its command-line tools may take."""
    spool: Path | None = None
    """Directory into which the site's epilog or jobcomp hook drops a file for each job that ended."""
    looks_per_minute: Annotated[int, Meta(ge=1)] | None = None
    """Most looks at all jobs and nodes in any minute, whatever happens; not set: 10, or as many as `service.poll_s`
    asks for."""
    start_wait_s: float = 0.0
    """How long `perdure up` waits at its start for a controller that does not answer, as after a reboot of both."""
