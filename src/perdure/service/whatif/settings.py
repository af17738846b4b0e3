"""How much the simulator may take of the machine that the service runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class WhatifSettings:
    """Simulations that are asked for on the page `/whatif`. One runs at a time, in a process of its own."""

    enabled: bool = True
    """False: none are taken, and the page says so."""
    upload_mib: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Largest trace that is taken, as it is sent."""
    unpacked_mib: Annotated[int, Meta(ge=1)] = 1024
    """Largest trace that is read, once it is unpacked."""
    memory_mib: Annotated[int, Meta(ge=1024)] = 4096
    """Address space of the process that simulates."""
    time_limit_s: Annotated[float, Meta(ge=1)] = 600.0
    """How long one comparison may take."""
    nice: Annotated[int, Meta(ge=0, le=19)] = 10
    """How far that process stands back behind others, from 0 to 19."""
    queue: Annotated[int, Meta(ge=1, le=100)] = 4
    """Comparisons that may wait for the one that runs."""
    profiles: Path | None = None
    """A folder of measured profiles, as `perdure whatif elastic` reads it; none: policies that plan are not offered."""
    keep: Annotated[int, Meta(ge=1, le=200)] = 20
    """Comparisons that are kept of each user; the oldest go first."""
