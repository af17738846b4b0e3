"""What may be set of HTCondor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class CondorSettings:
    """How HTCondor is asked."""

    schedd: str = ""
    """Name of the ``condor_schedd`` whose jobs are looked at; "" takes this machine's."""
    pool: str = ""
    """Address of the collector; "" takes that of ``COLLECTOR_HOST``."""
    constraint: str = ""
    """ClassAd expression that jobs must satisfy to be looked at, as ``Owner != "dagrobot"``; "" looks at all."""
    tool_timeout_s: Annotated[float, Meta(ge=1)] = 30.0
    """How long one of its command-line tools may take."""


def identity_of(schedd: str, settings: CondorSettings) -> str:
    """What tells a schedd from all others."""
    return f"condor {schedd} {settings.pool}".strip()
