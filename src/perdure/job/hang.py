"""Watching a program for a hang: by its beats, or where it never beats by the growth of its log."""

from __future__ import annotations

import time
from contextlib import suppress

from perdure.job.beats import BeatReader
from perdure.job.output import OutputFiles
from perdure.job.silence import HangRule, Silence, Tier


class HangWatch:
    """Listens at each look; see `perdure.job.silence` for what it makes of that."""

    def __init__(self, rule: HangRule, beats: BeatReader, output: OutputFiles, start_s: float) -> None:
        self._rule, self._beats, self._output = rule, beats, output
        self._silence, self._start_s = Silence(rule, start_s), start_s
        self._deaf_until_s = self._grew_s = start_s
        self.has_beaten = False
        self.step: int | None = None

    def look(self, now: float) -> Tier | None:
        """The tier that has just been reached."""
        self._listen(now)
        tier = self._silence.look(now) if self._can_judge else None
        if tier is Tier.ALARM:  # the stacks that the program may dump now into its log are no progress
            self._deaf_until_s = now + self._rule.soft_s / 2
        return tier

    @property
    def _can_judge(self) -> bool:
        return self.has_beaten or bool(self._output) or self._rule.must_beat

    def last_step(self) -> int | None:
        """The last step that the program has told, listening once more."""
        self._listen(time.monotonic())
        return self.step

    def skip(self, seconds: float) -> None:
        self._silence.skip(seconds)

    def silent_s(self, now: float) -> float | None:
        """Seconds since the last sign of life; None where the program can give none that we see."""
        return self._silence.silent_s(now) if self._can_judge else None

    def log_silent_s(self, now: float) -> float | None:
        """Seconds since the log has grown; None where it is no file."""
        return now - self._grew_s if self._output else None

    def _listen(self, now: float) -> None:
        with suppress(OSError):
            for beat in self._beats.news():
                if not self.has_beaten:  # from now on the log does not count, nor its pace
                    self.has_beaten, self._silence = True, Silence(self._rule, self._start_s)
                if beat.step is not None:
                    self.step = beat.step
                self._silence.heard(now, beat.quiet_s)
        if self._output.have_grown():
            self._grew_s = now
            if not self.has_beaten and now >= self._deaf_until_s:
                self._silence.heard(now)
