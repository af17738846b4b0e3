"""How often the service says when waiting jobs will start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class WaitsSettings:
    """Starts of waiting jobs, on the page `/waits`; on Slurm alone."""

    every_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """Seconds between two forecasts of all waiting jobs; 0: no forecasts."""
