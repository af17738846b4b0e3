"""When a silence is a hang: longer than all that this program has done before, and longer than anybody would wait.

    allowed = max(after, factor * median(gaps), 2 * longest gap so far, the start-up among them)

Before `min_gaps` gaps between signs of life are known, loading and compiling take as long as they take, but for
`start_within_s`: what waits for peers that never come falls silent just then. The start-up counts among the longest and
not in the median, so that a restart within the job has the time for another one; so do an evaluation or a checkpoint
that came once.

A limit that somebody has set (`is_exact`) holds from the program's first step on, as it stands; only where steps are
known to take longer does it give way, to twice the usual gap.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

KEPT_GAPS, FEW_GAPS = 256, 3
WORKING_S = 1800.0  # so long a silence is excused where a look at the program's processes sees them work


@dataclass(frozen=True, slots=True)
class HangRule:
    """When a program is held to hang, and how it is ended then."""

    after_s: float = 1800.0  # never before so long a silence; 0: nothing is ever held to hang
    is_exact: bool = False  # somebody has set it: after so long a silence, from the first step on
    factor: float = 10.0  # on the usual gap
    min_gaps: int = 10
    start_within_s: float | None = None  # the longest silence until this many gaps are known; 0, None: any
    beat_s: float = 0.0  # a step may be so much newer than the last beat, of a program that beats
    must_beat: bool = False  # within that also where its log cannot be seen
    soft_s: float = 60.0  # from the alarm until it is told to end
    grace_s: float = 60.0  # from then until it is killed; torchrun gives its workers 30 s


class Tier(StrEnum):
    """What a silence has come to."""

    ALARM = "alarm"  # it is written down; the program may still come back
    TERM = "term"
    KILL = "kill"


class Pace:
    """The gaps between a program's signs of life."""

    def __init__(self, start_s: float) -> None:
        self._last_s, self._begun, self._longest_s = start_s, False, 0.0
        self._steps = False  # it has come to its first step
        self._gaps: deque[float] = deque(maxlen=KEPT_GAPS)

    @property
    def last_s(self) -> float:
        return self._last_s

    def heard(self, now: float, *, usual: bool = True, is_step: bool = False) -> None:
        """Note a sign of life; one that is not `usual` ends a silence that was announced, which teaches nothing."""
        self._steps |= is_step
        gap, first, self._last_s, self._begun = now - self._last_s, not self._begun, now, True
        if not usual:
            return
        self._longest_s = max(self._longest_s, gap)
        if not first:
            self._gaps.append(gap)

    def skip(self, seconds: float) -> None:
        """Do not count time in which nothing could have been heard: a frozen machine, a stopped program."""
        self._last_s += seconds

    def allowed_s(self, rule: HangRule) -> float:
        """How long a silence raises no alarm, in seconds; infinite where hangs are not watched for."""
        is_known = len(self._gaps) >= rule.min_gaps
        if not is_known and not (rule.is_exact and self._steps):
            return rule.start_within_s or math.inf
        if not rule.after_s:
            return math.inf
        usual_s = sorted(self._gaps)[len(self._gaps) // 2] if is_known or len(self._gaps) >= FEW_GAPS else 0.0
        if rule.is_exact:
            return max(rule.after_s, 2 * usual_s)
        return max(rule.after_s, rule.factor * usual_s, 2 * self._longest_s)


class Silence:
    """From signs of life to tiers. Instants are seconds on one clock that never goes back."""

    def __init__(self, rule: HangRule, start_s: float) -> None:
        self._rule, self._pace = rule, Pace(start_s)
        self._quiet_until_s = -math.inf
        self._alarm_s: float | None = None
        self._term_s: float | None = None
        self._killed = False

    def heard(self, now: float, quiet_s: float = 0.0, *, is_step: bool = False) -> None:
        """Note a sign of life; nothing is expected for `quiet_s` from now."""
        self._pace.heard(now, usual=self._quiet_until_s == -math.inf, is_step=is_step)
        self._quiet_until_s = now + quiet_s if quiet_s else -math.inf
        self._alarm_s = None

    def excuse(self, now: float) -> bool:
        """Call the alarm off, as the program is seen to work; the silence goes on and is looked at again.

        False where it has lasted too long for that, or the end has begun.
        """
        if self._term_s is not None or self.silent_s(now) >= WORKING_S:
            return False
        self._alarm_s = None
        self._quiet_until_s = now
        return True

    def condemn(self, now: float) -> None:
        """The program has been told to end just now: KILL follows after the grace."""
        self._term_s, self._killed = now, False

    def skip(self, seconds: float) -> None:
        self._pace.skip(seconds)
        self._quiet_until_s += seconds
        if self._alarm_s is not None:
            self._alarm_s += seconds

    @property
    def is_alarmed(self) -> bool:
        return self._alarm_s is not None or self._term_s is not None

    @property
    def heard_s(self) -> float:
        return self._pace.last_s

    def silent_s(self, now: float) -> float:
        return now - self._pace.last_s

    def look(self, now: float) -> Tier | None:
        """ALARM and KILL once, when they are reached; TERM for as long as the program is to be told, by `condemn`.

        From there on there is no way back.
        """
        if self._term_s is not None:
            return self._look_for_end(now)
        if self._alarm_s is None:
            silent_s = min(self.silent_s(now), now - self._quiet_until_s)
            if silent_s <= self._pace.allowed_s(self._rule):
                return None
            self._alarm_s = now
            return Tier.ALARM
        return Tier.TERM if now - self._alarm_s >= self._rule.soft_s else None

    def _look_for_end(self, now: float) -> Tier | None:
        if self._killed or self._term_s is None or now - self._term_s < self._rule.grace_s:
            return None
        self._killed = True
        return Tier.KILL
