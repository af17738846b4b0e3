"""The settings of ``perdure exec``."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.errors import ConfigError
from perdure.job.beats import DEFAULT_BEAT_S
from perdure.job.framework import Framework, signal_of
from perdure.job.silence import HangRule


@dataclass(frozen=True, slots=True)
class Care:
    """How a program is looked after."""

    hang: HangRule = field(default_factory=HangRule)
    dump_signal: int | None = None  # sent at the alarm to the processes that have a handler for it
    warn_s: float | None = None  # seconds before walltime at which the program is told; None: it is not
    warn_signal: int | None = None  # None: what its framework expects
    framework: Framework = Framework.AUTO
    poll_s: float = 0.2  # between two looks at the claim
    look_s: float = 5.0  # between two looks for signs of life
    heartbeat_s: float = 5.0  # of local rank 0; the others of a node write once a minute
    beat_s: float = DEFAULT_BEAT_S  # of the program's own


def warn_before(text: str) -> tuple[float, int | None]:
    """Read ``120`` or ``120:USR1``: seconds before walltime, and the signal. Raises `ConfigError`."""
    seconds, colon, name = text.partition(":")
    if not (seconds.isascii() and seconds.isdecimal()) or (colon and not name):
        raise ConfigError("--signal-before", f"{text[:40]!r} is not SECONDS[:SIGNAL]", "Say for example 120:USR1")
    return float(seconds), signal_of(name, "--signal-before") if name else None
