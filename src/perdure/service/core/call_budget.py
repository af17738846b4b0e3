"""How often a resource manager is asked: budgets that no storm of events exceeds. Pure: time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Holds up to `capacity` tokens; one is added every `every_s` seconds, each use takes one.

    In any ``n * every_s`` seconds at most ``capacity + n`` are taken by those who wait as told.
    """

    capacity: int
    every_s: float
    tokens: float
    at_s: float = -math.inf

    @classmethod
    def per_minute(cls, most: float, burst: int = 2) -> TokenBucket:
        """At most `most` (at least 1) in any minute, up to `burst` of them at once."""
        burst = max(1, min(burst, int(most)))
        return cls(burst, MINUTE_S / max(1.0, most - burst + 1), float(burst))

    def wait_s(self, now: float) -> float:
        """How long until one may be taken; 0 where one may now."""
        return max(0.0, (1.0 - self._filled(now)) * self.every_s)

    def take(self, now: float) -> TokenBucket:
        """The bucket after a use, which may leave it in debt where nobody waited."""
        return replace(self, tokens=self._filled(now) - 1.0, at_s=max(now, self.at_s))

    def _filled(self, now: float) -> float:
        """A clock that was set back adds nothing."""
        if math.isinf(self.at_s):
            return self.tokens
        return min(self.capacity, self.tokens + max(0.0, now - self.at_s) / self.every_s)


@dataclass(slots=True)
class CallMeter:
    """A budget that one thread keeps to; without one it never waits."""

    bucket: TokenBucket | None

    @classmethod
    def per_minute(cls, most: float | None, burst: int = 2) -> CallMeter:
        return cls(None if most is None else TokenBucket.per_minute(most, burst))

    def wait_s(self, now: float) -> float:
        return 0.0 if self.bucket is None else self.bucket.wait_s(now)

    def take(self, now: float) -> None:
        if self.bucket is not None:
            self.bucket = self.bucket.take(now)
