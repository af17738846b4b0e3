"""From an alarm to a finding: look at this launcher's ranks, hear what the others see of theirs, judge once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from perdure.hangs.culprit import HangFinding, finding_of
from perdure.hangs.flight_recorder import Dump
from perdure.hangs.live import with_recorder
from perdure.hangs.rank_state import RankState
from perdure.job.background import BackgroundRun
from perdure.job.flight_recorder import DUMP_MOST_S
from perdure.job.gang import SKEW_S, Gang

LOOK_MOST_S = 8.0  # that a look at this launcher's ranks may take
OTHERS_MOST_S = 3.0  # that the others have for theirs, after that

Look = Callable[[], list[RankState]]
AskDumps = Callable[[float], list[Dump]]
Told = Callable[[int | None], tuple[int | None, float | None]]
"""The last step of a rank, and the seconds since it told one."""


class HangDiagnosis:
    """One look at all ranks. `look` looks at this launcher's own, and may hang; begun with the instant `now`.

    Then `dump` has them dump their flight recorders, within this many seconds: not during the look, since a rank that
    writes its dump seems to work.
    """

    def __init__(self, look: Look, dump: AskDumps | None, told: Told, gang: Gang, slack_s: float, now: float) -> None:
        self._look, self._dump, self._told, self._gang, self._slack_s = look, dump, told, gang, slack_s
        self._looking, self._begun_s, self._since_s = BackgroundRun(self._see), now, time.time() - SKEW_S
        self._seen_s = 0.0
        self._seen: list[RankState] = []
        self.dumps: list[Dump] = []
        self.own: list[RankState] | None = None  # what is seen of this launcher's ranks; None while that is not known
        self._looking.start(now)

    def look(self, now: float) -> bool:
        """Whether this launcher's ranks have been seen; then the others are told."""
        if self.own is None and (not self._looking.is_running or now - self._begun_s > LOOK_MOST_S):
            self.own, self._seen_s = [self._with_step(sight) for sight in self._seen], now
            self._gang.tell(self.own, self.dumps)
        return self.own is not None

    def finding(self, now: float) -> HangFinding | None:
        """The judgement of all ranks; None before all is known, for a few seconds at most."""
        if not self.look(now):
            return None
        failed, told = self._gang.failed(), self._gang.told(self._since_s)
        alive = {sight.rank for sights in (self.own or (), *told) for sight in sights}
        ended = [sight for sight in self._gang.ended() if sight.rank not in alive]
        known = 1 + len(told) + (failed is not None) + len(ended)
        most_s = OTHERS_MOST_S + (DUMP_MOST_S if self.dumps else 0.0)  # theirs dump, too
        if known < self._gang.size and now - self._seen_s < most_s:
            return None
        sights = [*(self.own or ()), *(sight for each in told for sight in each), *([failed] if failed else []), *ended]
        found = finding_of(sights, self._slack_s, unseen=max(0, self._gang.size - known))
        self.dumps += self._gang.dumps(self._since_s)
        return with_recorder(found, sights, self.dumps)

    def _see(self) -> None:
        self._seen = self._look()
        if self._dump is not None:
            self.dumps = self._dump(self._begun_s + LOOK_MOST_S - time.monotonic())

    def _with_step(self, sight: RankState) -> RankState:
        step, silent_s = self._told(sight.rank)
        return replace(sight, step=step, silent_s=silent_s)
