"""From an alarm to a finding: look at this launcher's ranks, hear what the others see of theirs, judge once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from perdure.job.background import Background
from perdure.job.culprit import HangFinding, finding_of
from perdure.job.gang import SKEW_S, Gang
from perdure.job.rank_state import RankState

LOOK_MOST_S = 8.0  # that a look at this launcher's ranks may take
OTHERS_MOST_S = 3.0  # that the others have for theirs, after that

Told = Callable[[int | None], tuple[int | None, float | None]]
"""The last step of a rank, and the seconds since it told one."""


class HangDiagnosis:
    """One look at all ranks. `look` looks at this launcher's own, and may hang; begun with the instant `now`."""

    def __init__(self, look: Callable[[], list[RankState]], told: Told, gang: Gang, slack_s: float, now: float) -> None:
        self._told, self._gang, self._slack_s = told, gang, slack_s
        self._looking, self._begun_s, self._since_s = Background(look), now, time.time() - SKEW_S
        self._seen_s = 0.0
        self.own: list[RankState] | None = None  # what is seen of this launcher's ranks; None while that is not known
        self._looking.start(now)

    def look(self, now: float) -> bool:
        """Whether this launcher's ranks have been seen; then the others are told."""
        if self.own is None and (not self._looking.is_running or now - self._begun_s > LOOK_MOST_S):
            self.own, self._seen_s = [self._with_step(sight) for sight in self._looking.result or ()], now
            self._gang.tell(self.own)
        return self.own is not None

    def finding(self, now: float) -> HangFinding | None:
        """The judgement of all ranks; None before all is known, for a few seconds at most."""
        if not self.look(now):
            return None
        failed, told = self._gang.failed(), self._gang.told(self._since_s)
        alive = {sight.rank for sights in (self.own or (), *told) for sight in sights}
        ended = [sight for sight in self._gang.ended() if sight.rank not in alive]
        known = 1 + len(told) + (failed is not None) + len(ended)
        if known < self._gang.size and now - self._seen_s < OTHERS_MOST_S:
            return None
        sights = [*(self.own or ()), *(sight for each in told for sight in each), *([failed] if failed else []), *ended]
        return finding_of(sights, self._slack_s, unseen=max(0, self._gang.size - known))

    def _with_step(self, sight: RankState) -> RankState:
        step, silent_s = self._told(sight.rank)
        return replace(sight, step=step, silent_s=silent_s)
