"""The top-of-rack switch as a single point of failure: how available are the nodes below it at best?

Source: Q. Zhang et al., "Deepview", NSDI 2018: 0.1 % of ToRs a month, 90 % of them soft failures of 20 minutes, 10 %
hard ones of 120 minutes, give 99.99993 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10

from perdure.errors import InputError

MONTH_MIN = 30 * 24 * 60.0
EXTRA = 10.0
"""The one-extra-nine rule: what others rest on may use up a tenth of the downtime that is promised."""


@dataclass(frozen=True, slots=True)
class TorStudy:
    """How often ToRs fail and how long they are down. Raises `InputError` for shares and times that cannot be."""

    failing_share: float = 0.001  # of the ToRs, in a month
    soft_share: float = 0.9  # of the failures: a reboot fixes it
    soft_min: float = 20.0
    hard_min: float = 120.0  # it must be replaced

    def __post_init__(self) -> None:
        for name in ("failing_share", "soft_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"study tor, {name}", f"{getattr(self, name):g} is not a share", "Give 0 to 1")
        for name in ("soft_min", "hard_min"):
            if not 0 <= getattr(self, name) <= MONTH_MIN:
                raise InputError(f"study tor, {name}", f"{getattr(self, name):g} min", "Give up to a month, 43200")

    @property
    def repair_min(self) -> float:
        """Mean time down of one failure."""
        return self.soft_share * self.soft_min + (1 - self.soft_share) * self.hard_min

    @property
    def unavailability(self) -> float:
        """The share of time that a ToR is down, hence all that hangs on it alone.

        >>> print(f"{1 - TorStudy().unavailability:.5%}")
        99.99993%
        """
        return self.failing_share * self.repair_min / MONTH_MIN

    @property
    def nines(self) -> float:
        """Of its availability: 99.9 % has 3."""
        return -log10(self.unavailability) if self.unavailability else inf

    @property
    def bearable(self) -> float:
        """The highest availability that may be promised to what hangs on one ToR, by the one-extra-nine rule."""
        return 1 - EXTRA * self.unavailability
