"""Watching a program for a hang: by its beats, or where it never beats by the growth of its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from perdure.job.beats import Beat, BeatReader
from perdure.job.output import Growth, OutputFiles
from perdure.job.silence import HangRule, Silence, Tier


class HangWatch:
    """Listens at each look; see `perdure.job.silence` for what it makes of that."""

    def __init__(
        self,
        rule: HangRule,
        beats: BeatReader,
        output: OutputFiles,
        start_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._rule, self._beats, self._output = rule, beats, output
        self._silence, self._start_s = Silence(rule, start_s), start_s
        self._grew_s = start_s
        self._last: dict[int | None, tuple[Beat, float]] = {}  # of each rank, and when it was heard
        self.has_beaten = self.has_stepped = False
        self.step: int | None = None

    def look(self, now: float) -> Tier | None:
        """The tier that has just been reached."""
        self._listen(now)
        return self._silence.look(now) if self.can_judge or self.is_alarmed else None

    @property
    def can_judge(self) -> bool:
        """Whether there is anything that the program can be judged by."""
        return self.has_beaten or bool(self._output) or self._rule.must_beat

    @property
    def is_alarmed(self) -> bool:
        """Whether the silence has become too long, and goes on."""
        return self._silence.is_alarmed

    @property
    def heard_s(self) -> float:
        """When the last sign of life was heard."""
        return self._silence.heard_s

    @property
    def is_exact(self) -> bool:
        """Whether somebody has set the limit, and wants it held."""
        return self._rule.is_exact and self._rule.after_s > 0

    def last_step(self) -> int | None:
        """The last step that the program has told, listening once more."""
        self._listen(self._clock())
        return self.step

    def told(self, rank: int | None) -> tuple[int | None, float | None]:
        """The last step of a rank, and the seconds since it was heard."""
        beat, heard_s = self._last.get(rank, (None, 0.0))
        return (None, None) if beat is None else (beat.step, self._clock() - heard_s)

    def watch_files(self, paths: Iterable[str], *, only_steps: bool = False) -> None:
        """Take the growth of these files for the program's log, too; with `only_steps` that by lines of steps alone."""
        self._output.add(paths, only_steps=only_steps)

    def excuse(self, now: float) -> bool:
        """Call the alarm off, as the program is seen to work; False where it has lasted too long for that."""
        return self._silence.excuse(now)

    def condemn(self, now: float) -> None:
        """The program is told to end: it is killed where it does not."""
        self._silence.condemn(now)

    def skip(self, seconds: float) -> None:
        self._silence.skip(seconds)

    def silent_s(self, now: float) -> float | None:
        """Seconds since the last sign of life; None where the program can give none that we see."""
        return self._silence.silent_s(now) if self.can_judge else None

    def log_silent_s(self, now: float) -> float | None:
        """Seconds since the log has grown; None where it is not a file."""
        return now - self._grew_s if self._output else None

    def _listen(self, now: float) -> None:
        with suppress(OSError):
            for beat in self._beats.news():
                self._hear(beat, now)
        growth = self._output.look()
        if growth >= Growth.LIFE:
            self._grew_s = now
            self.has_stepped |= growth is Growth.STEP
            if not self.has_beaten:
                self._silence.heard(now, is_step=growth is Growth.STEP)

    def _hear(self, beat: Beat, now: float) -> None:
        if not self.has_beaten:  # from now on the log does not count, nor its pace
            rule = replace(self._rule, after_s=self._rule.after_s and self._rule.after_s + self._rule.beat_s)
            self.has_beaten, self._silence = True, Silence(rule, self._start_s)
        if beat.step is not None:
            self.step = beat.step
        self._last[beat.rank] = beat, now
        self._silence.heard(now, beat.quiet_s, is_step=True)
