"""What is done about a program that stands still: find out which rank stopped first, say so, end it.

Of the launchers of one step the first that raises an alarm leads: it hears what the others see of their ranks, judges,
and says to all when the program is to end. A program whose ranks are seen to work is left alone for a while.
"""

from __future__ import annotations

import math
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.job.background import BackgroundRun
from perdure.job.files import write_json
from perdure.job.gang import Gang
from perdure.job.hang_watch import HangWatch
from perdure.job.identity import Task
from perdure.job.logfiles import files_of, own_logs_of
from perdure.job.options import ExecOptions
from perdure.job.output import say
from perdure.job.processes import Family
from perdure.job.service_report import ServiceReporter
from perdure.job.silence import Tier
from perdure.model.exits import FAILED_SAID, HANG_ENDED, HANG_SAID, SILENCE_SAID

if TYPE_CHECKING:
    from perdure.hangs.culprit import HangFinding
    from perdure.hangs.rank_state import RankState
    from perdure.job.flight_recorder import FlightRecorder
    from perdure.job.hang_diagnosis import HangDiagnosis

HANG_SCHEMA = "perdure.hang/1"
FILES_EVERY_S, EARLY_S = 30.0, 5.0
LEADER_S = 30.0  # beyond the two graces, after which a leader is not waited for any more
FAILED_S, FAILED_AGAIN_S = 5.0, 30.0  # from a rank's failure until it is told, and between two looks at who waits
MAX_STACKS = 8
_OTHERS_WORD = "another rank's launcher has found that the step hangs"
UNSEEN = "the program's output goes where nobody can look at it: only its beats will count (perdure.job.beat)"


@dataclass(slots=True)
class HangResponse:
    """One program's. `ended_why` is what is to be said of its end, "" while it is not to end for a hang."""

    family: Family
    hang: HangWatch
    gang: Gang
    task: Task
    raiser: ServiceReporter
    note_file: Path
    options: ExecOptions
    recorder: FlightRecorder | None = None  # None where its dumps are not asked for
    ended_why: str = ""
    _inquiry: HangDiagnosis | None = None
    _leads: bool = False
    _follows: bool = False
    _finding: HangFinding | None = None
    _is_due: bool = False  # the grace is over
    _excused_s: float = -math.inf  # the last sign of life before a silence that was excused
    _alarm_s: float = math.inf
    _begun_s: float = math.inf
    _files_s: float = -math.inf
    _is_deaf_said: bool = False
    _failed_look: BackgroundRun[list[RankState]] | None = None
    _failed_s: float = -math.inf
    _is_failed_told: bool = False

    def look(self, now: float) -> Tier | None:
        """Listen once, and do what is to be done; returns the tier that has just been reached."""
        self._find_files(now)
        tier = self.hang.look(now)
        if self.ended_why:
            return tier
        if not self.hang.is_alarmed and not self._follows:
            self._stand_down()
        self._is_due = tier is Tier.TERM
        self._follow_or_lead(now)
        if self._leads:
            self._judge(now)
        self._hear_of_failed(now)
        return None

    def _find_files(self, now: float) -> None:
        """Look for the files that the program's processes write, more often while none is known."""
        if math.isinf(self._begun_s):
            self._begun_s = now
        every_s = FILES_EVERY_S if not self.hang.is_exact else 0.0 if now - self._begun_s < EARLY_S else EARLY_S
        if now - self._files_s >= every_s:
            self._files_s = now
            members = self.family.members()
            self.hang.watch_files(files_of(members, self.task, is_exact=self.hang.is_exact))
            if self.hang.is_exact and not (self.hang.has_stepped or self.hang.has_beaten):
                self.hang.watch_files(own_logs_of(members), only_steps=True)
            self._say_if_deaf(now)

    def _say_if_deaf(self, now: float) -> None:
        """Say once that a limit cannot be held unless the program beats, where its output cannot be seen."""
        if not self._is_deaf_said and now - self._begun_s >= EARLY_S:
            self._is_deaf_said = True
            if self.hang.is_exact and not self.hang.can_judge and not self.task.rank:
                say(f"perdure exec: --hang-after: {UNSEEN}")

    def _stand_down(self) -> None:
        """It gives signs of life, or is excused."""
        if self._leads:
            self.gang.call_off()
        self._inquiry, self._finding, self._leads, self._is_due = None, None, False, False
        self._alarm_s = math.inf

    # ------------------------------------------------------------ several launchers

    def _follow_or_lead(self, now: float) -> None:
        alarm = self.gang.alarm()
        is_others = alarm is not None and not alarm.is_own and alarm.rank != self.task.rank and not self._leads
        if self._follows and not is_others:
            self._stand_down()
        self._follows = is_others
        if is_others and alarm is not None:
            self._follow(now, ends=alarm.ends)
        elif self.hang.is_alarmed and not self._leads and self.gang.call():
            self._lead(now)

    def _follow(self, now: float, *, ends: bool) -> None:
        silent_s = self.hang.silent_s(now)
        if silent_s is not None and silent_s < self.options.hang.after_s / 2:
            return  # this one goes on, whatever happens to the others
        if ends:
            self._end(_OTHERS_WORD, "perdure exec: ")
            return
        if self._inquiry is None:
            self._alarm_s = now
            self._inquiry = self._inquire(now)
        self._inquiry.look(now)
        hang = self.options.hang
        if self.hang.is_alarmed and now - self._alarm_s > hang.soft_s + hang.grace_s + LEADER_S:
            self._lead(now)

    def _lead(self, now: float) -> None:
        self._leads, self._alarm_s = True, now
        if self.hang.heard_s != self._excused_s:
            say(f"{SILENCE_SAID}{self._silence()}: its processes are looked at")
        self._note("")
        self._inquiry = self._inquire(now)

    def _inquire(self, now: float) -> HangDiagnosis:
        from perdure.job.hang_diagnosis import HangDiagnosis  # only here: few programs hang

        dump = self.recorder.collect if self.recorder else None
        return HangDiagnosis(self._look, dump, self.hang.told, self.gang, self.options.beat_s, now)

    def _look(self) -> list[RankState]:
        from perdure.job.inspection import look_at

        return look_at(self.family.members(), self.task, self.options.dump_signal)

    # ------------------------------------------------------------ the leader's judgement

    def _judge(self, now: float) -> None:
        if self._finding is None and self._inquiry is not None:
            self._finding = self._inquiry.finding(now)
            if self._finding is not None and not self._is_excused(self._finding, now):
                self._tell(self._finding)
        if self._is_due and self._finding is not None:
            if self.gang.end():
                self._end(self._sentence(self._finding))
            else:
                self._end(_OTHERS_WORD, "perdure exec: ")

    def _is_excused(self, finding: HangFinding, now: float) -> bool:
        if not finding.works or not self.hang.excuse(now):
            return False
        if self.hang.heard_s != self._excused_s:
            self._excused_s = self.hang.heard_s
            say(f"perdure exec: it is left alone: {finding.sentence}")
        self._stand_down()
        return True

    def _tell(self, finding: HangFinding) -> None:
        """Say who stopped first, in the log, in a file and to the service; it may still come back."""
        note = self._sentence(finding)
        say(f"{HANG_SAID}{note}; it is ended in {self.options.hang.soft_s:.0f} s unless it gives one")
        for sight in (self._inquiry.own or [])[:MAX_STACKS] if self._inquiry else ():
            if sight.stack:
                say(f"perdure exec: stack of {sight.name}: {' < '.join(sight.stack)}")
        self._say_where_dumps_are()
        self._note(note)
        self.raiser.raise_("app.hang", severity=3, note=note, about=finding.culprits)

    def _say_where_dumps_are(self) -> None:
        if self.recorder and self._inquiry and self._inquiry.dumps:
            count, where = len(self._inquiry.dumps), self.recorder.directory
            say(f"perdure exec: flight recorder dumps of {count} ranks: perdure why ranks {where}")
            self.recorder.keep_few()

    def _note(self, note: str) -> None:
        sights = [asdict(sight) for sight in (self._inquiry.own or [])] if self._inquiry else []
        said = {"time_s": time.time(), "step": self.hang.step, "note": note or f"no sign of life for {self._silence()}"}
        with suppress(OSError):
            write_json(self.note_file, {"schema": HANG_SCHEMA, **said, "sights": sights})

    def _end(self, why: str, said: str = HANG_ENDED) -> None:
        self.ended_why = why
        self.hang.condemn(self.options.clock())
        say(f"{said}{why}")
        self.family.signal_group(signal.SIGTERM)

    def _sentence(self, finding: HangFinding) -> str:
        return f"{finding.sentence}; no sign of life for {self._silence()}"

    def _silence(self) -> str:
        silent_s, step = self.hang.silent_s(self.options.clock()) or 0.0, self.hang.step
        return f"{silent_s:.0f} s" + (f", last at step {step}" if step is not None else "")

    # ------------------------------------------------------------ a rank that has failed while others wait

    def _hear_of_failed(self, now: float) -> None:
        """Tell once of a rank that has failed, where this launcher's ranks are seen to wait."""
        if self._is_failed_told or now - self._failed_s < FAILED_S:
            return
        failed = self.gang.failed()
        if failed is None or failed.rank == self.task.rank or (failed.silent_s or 0.0) < FAILED_S:
            self._failed_s = now if failed is None else self._failed_s
            return
        if self._failed_look is None:
            self._failed_look = BackgroundRun(self._look)
            self._failed_look.start(now)
        if self._failed_look.is_running:
            return
        from perdure.hangs.rank_state import Life

        sights, self._failed_look = self._failed_look.result or [], None
        if not sights or any(sight.life is Life.WORKS for sight in sights):
            self._failed_s = now + FAILED_AGAIN_S - FAILED_S
            return
        self._is_failed_told = True
        if self.gang.takes_word():
            note = f"{failed.name} {failed.ending} {failed.silent_s:.0f} s ago, and {_waiting(sights)}"
            say(f"{FAILED_SAID}{note}")
            self.raiser.raise_("app.rank-lost", severity=3, note=note)


def _waiting(sights: list[RankState]) -> str:
    """What the first of some ranks, that wait for a dead one, is at."""
    where = f": {sights[0].where}" if sights[0].where else ""
    return f"{sights[0].name} waits{where}"
