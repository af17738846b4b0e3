"""How the service looks for culprits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class BlameSettings:
    """Suspects: what the attempts that ended recently have in common, on the page `/blame` and in `perdure who`."""

    enabled: bool = True
    """False: nobody is suspected, and the page stays empty."""
    window_s: Annotated[float, Meta(ge=60, le=86_400)] = 3600.0
    """Attempts that ended within this time are looked at together."""
    step_s: Annotated[float, Meta(ge=1, le=3600)] = 300.0
    """How often they are looked at."""
    confirm: Annotated[int, Meta(ge=1, le=100)] = 2
    """Looks in a row that must accuse a suspect before it is named; one where the evidence is overwhelming."""
    release: Annotated[int, Meta(ge=1, le=100)] = 3
    """Looks in a row without it, until a suspect is cleared."""
    switches: Path | None = None
    """Slurm's topology.conf: with it leaf and spine switches can be suspected too."""
    storage: tuple[str, ...] = ()
    """Where file systems are mounted (``/scratch``, ``/home``): that of a job's output can be suspected too."""
