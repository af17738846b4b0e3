"""The usage of each user, in GPU-ticks that decay: the past counts for less the longer it is over.

Usage is brought up to date when priorities are calculated: what was there decays by the factor of a period, and what
was held since is added. slurmctld multiplies the former by 1 - 0.693 / half-life for each second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_LN2 = 0.693  # as in the source


def decay_of(period_s: float, half_life_s: float) -> float:
    """The share of a usage that is left after a period; a half-life of 0 never decays. Both are in seconds.

    >>> round(decay_of(7 * 86_400, 7 * 86_400), 4)  # 0.693 is a little less than ln 2
    0.5001
    """
    return (1.0 - _LN2 / half_life_s) ** period_s if half_life_s else 1.0


@dataclass(slots=True)
class DecayedUsage:
    """The decayed usage of each user, shape (users,), and what they hold now.

    Usage at an instant is `used`, as of the last calculation: what was held since is in `added` and counts from the
    next one on. `calculated` is a multiple of `period`.
    """

    users: int
    period: int  # ticks
    decay: float  # of a period
    initial: tuple[float, ...] = ()  # before the first event; empty: nothing
    used: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)  # GPUs, now
    added: list[int] = field(default_factory=list)  # GPU-ticks since the last calculation
    since: list[int] = field(default_factory=list)  # up to when these are counted
    calculated: int = 0  # the tick of the last calculation

    def __post_init__(self) -> None:
        self.used = list(self.initial) or [0.0] * self.users
        self.held, self.added, self.since = [0] * self.users, [0] * self.users, [0] * self.users

    def hold(self, user: int, gpus: int, now: int) -> None:
        """Change by `gpus` what the user holds from now on; negative where a job ends."""
        self.calculate(now)
        self._count(user, now)
        self.held[user] += gpus

    def calculate(self, now: int) -> None:
        """Make the calculations that are due, one for each period that has passed: decay is compounded, usage added
        undecayed.
        """
        while self.calculated + self.period <= now:
            self.calculated += self.period
            for user in range(self.users):
                self._count(user, self.calculated)
                self.used[user] = self.used[user] * self.decay + self.added[user]
                self.added[user] = 0

    def count_from(self, now: int) -> None:
        """Start counting: usage is that before the first event, plus what is held from now on."""
        self.used = list(self.initial) or [0.0] * self.users
        self.added, self.since = [0] * self.users, [now] * self.users
        self.calculated = now - now % self.period

    def _count(self, user: int, now: int) -> None:
        """Add what a user held since it was last counted."""
        self.added[user] += self.held[user] * (now - self.since[user])
        self.since[user] = now
