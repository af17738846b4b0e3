"""The log of a running job, followed: a hang, losses that became NaN and storms of errors are reported before it ends.

Pure: it is given what was written and what time it is, and holds a few KiB. `Follower.state` is where it stands; one
that is made of it goes on there, at `Follower.offset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from perdure.errors import InputError
from perdure.triage.evidence.gather import Signs
from perdure.triage.text.clean import PIECE, decode, scrub, tidy
from perdure.triage.text.logtext import TextWindow, blocks
from perdure.triage.text.patterns import compiled

FORMAT = 1
FIX = "Follow the log from its beginning: omit the state"
MAX_PARTIAL_BYTES = 64 * 1024
"""A line without an end is taken as one after this many bytes."""


class FollowTrouble(StrEnum):
    """What is reported of a running job."""

    HANG = "hang"
    NAN = "nan"
    STORM = "storm"


@dataclass(frozen=True, slots=True)
class FollowAlarm:
    """Trouble, seen once; it is reported again only after it had ended."""

    trouble: FollowTrouble
    at_s: float  # when it was seen
    line: int  # the last of the log at that time
    says: str  # half a sentence for a person
    text: str = ""  # the line that shows it


@dataclass(frozen=True, slots=True)
class Patience:
    """When trouble is reported."""

    silent_times: float = 4.0  # the longest usual silence, this many times
    silent_at_least_s: float = 120.0
    silent_unknown_s: float = 1800.0  # before it is known what is usual
    nan_lines: int = 3  # losses in a row
    storm_lines: float = 60.0  # failure lines within about `storm_s`
    storm_s: float = 60.0


@dataclass(slots=True)
class Gaps:
    """The longest silence of late: the maximum of this and of the last generation of gaps between writes."""

    GENERATION = 1000
    KNOWN_FROM = 8

    this: float = 0.0
    last: float = 0.0
    count: int = 0

    def add(self, gap_s: float) -> None:
        if self.count and self.count % self.GENERATION == 0:
            self.last, self.this = self.this, 0.0
        self.count += 1
        self.this = max(self.this, gap_s)

    @property
    def longest_s(self) -> float | None:
        """None while too few are known."""
        return max(self.this, self.last) if self.count >= self.KNOWN_FROM else None


@dataclass(slots=True)
class _Seen:
    """All that is remembered of a log, as JSON can hold it."""

    offset: int = 0
    line: int = 0  # complete lines so far
    wrote_s: float | None = None  # when something was last written
    hang_told: bool = False
    nans: int = 0  # losses in a row
    nan_told: bool = False
    storm: float = 0.0  # failure lines, those of long ago counting less
    storm_s: float = 0.0  # when that was so
    storm_told: bool = False
    gaps: Gaps = field(default_factory=Gaps)


class Follower:
    """Takes what a job writes, and reports what is wrong with it."""

    def __init__(self, signs: Signs, patience: Patience | None = None) -> None:
        self._signs, self._patience = signs, patience or Patience()
        self._seen = _Seen()
        self._partial = b""

    @property
    def offset(self) -> int:
        """Bytes of the log that need not be read again; a line that was not complete must be."""
        return self._seen.offset

    def catch_up(self, piece: bytes, wrote_s: float) -> None:
        """Take what was written before anybody followed, the last of it at `wrote_s`: nothing of it is reported."""
        self._seen.wrote_s = wrote_s
        for _ in self._nan_losses(scrub(self._taken(piece).data)):
            pass

    def restart(self) -> None:
        """The log begins again: it was truncated, or another has taken its place. What is usual stays known."""
        self._seen.offset = self._seen.line = 0
        self._partial = b""

    def feed(self, piece: bytes, now: float) -> list[FollowAlarm]:
        """Take what was written since the last call."""
        if not piece:
            return self.tick(now)
        seen = self._seen
        if seen.wrote_s is not None:
            seen.gaps.add(max(0.0, now - seen.wrote_s))
        seen.wrote_s, seen.hang_told = now, False
        window = self._taken(piece)
        return [*self._nans(window, now), *self._storms(window, now)]

    def _taken(self, piece: bytes) -> TextWindow:
        """The lines and pictures that are complete now."""
        data = self._partial + piece
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > MAX_PARTIAL_BYTES:
            end = len(data)
        self._partial = data[end:]
        window = TextWindow(data[:end], self._seen.line + 1)
        self._seen.offset += end
        self._seen.line += window.data.count(b"\n")
        return window

    def tick(self, now: float) -> list[FollowAlarm]:
        """Nothing was written: has it been so for too long?"""
        seen, patience = self._seen, self._patience
        if seen.wrote_s is None or seen.hang_told:
            return []
        usual, silent_s = seen.gaps.longest_s, now - seen.wrote_s
        if usual is None:
            limit, known = patience.silent_unknown_s, "what is usual is not known yet"
        else:
            limit = max(patience.silent_at_least_s, patience.silent_times * usual)
            known = f"usually {usual:.0f} s at most"
        if silent_s <= limit:
            return []
        seen.hang_told = True
        return [FollowAlarm(FollowTrouble.HANG, now, seen.line, f"no new line for {silent_s:.0f} s; {known}")]

    def _nans(self, window: TextWindow, now: float) -> Iterator[FollowAlarm]:
        seen, data = self._seen, scrub(window.data)
        for start, end in self._nan_losses(data):
            if seen.nans >= self._patience.nan_lines and not seen.nan_told:
                seen.nan_told = True
                line = window.first_line + data.count(b"\n", 0, start)
                says = f"the loss is NaN or infinite, {seen.nans} times in a row"
                yield FollowAlarm(FollowTrouble.NAN, now, line, says, decode(tidy(data[start:end])).strip())

    def _nan_losses(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where each line that shows a NaN loss begins and ends, and count them; a finite loss resets the
        count.
        """
        position = 0
        while position < len(data):
            found = compiled(_NAN).search(data, position)
            start, end = _picture(data, position, found.start()) if found else (len(data), len(data))
            if compiled(_FINITE).search(data, position, start):
                self._seen.nans, self._seen.nan_told = 0, False
            if found:
                self._seen.nans += 1
                yield start, end
            position = end + 1

    def _storms(self, window: TextWindow, now: float) -> Iterator[FollowAlarm]:
        seen, patience = self._seen, self._patience
        seen.storm *= math.exp(-max(0.0, now - seen.storm_s) / patience.storm_s)
        seen.storm_s = now
        for block in blocks(window):
            for match in self._signs(block):
                seen.storm += 1
                if seen.storm >= patience.storm_lines and not seen.storm_told:
                    seen.storm_told = True
                    says = f"{seen.storm:.0f} failure lines within about {patience.storm_s:.0f} s"
                    yield FollowAlarm(FollowTrouble.STORM, now, match.line, says, decode(match.tidied).strip())
        if seen.storm < patience.storm_lines / 2:
            seen.storm_told = False

    def state(self) -> dict[str, Any]:
        """Where this stands, as JSON can hold it."""
        return {"format": FORMAT, **asdict(self._seen)}

    @classmethod
    def of_state(
        cls,
        state: Mapping[str, Any],
        signs: Signs,
        patience: Patience | None = None,
        source: str = "state",
    ) -> Self:
        """One that goes on where `state` was taken. Raises `InputError`, naming `source`, for anything else."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise InputError(source, f"not a follower's state of format {FORMAT}", FIX)
        follower = cls(signs, patience)
        try:
            follower._seen = _seen_of(state)
        except (KeyError, TypeError, ValueError, OverflowError) as err:
            raise InputError(source, f"damaged ({err})", FIX) from err
        return follower


def _seen_of(state: Mapping[str, Any]) -> _Seen:
    """Checked field by field; raises `KeyError`, `TypeError`, `ValueError` or `OverflowError`."""
    wrote, gaps = state["wrote_s"], state["gaps"]
    seen = _Seen(
        int(state["offset"]),
        int(state["line"]),
        None if wrote is None else float(wrote),
        bool(state["hang_told"]),
        int(state["nans"]),
        bool(state["nan_told"]),
        float(state["storm"]),
        float(state["storm_s"]),
        bool(state["storm_told"]),
        Gaps(float(gaps["this"]), float(gaps["last"]), int(gaps["count"])),
    )
    if min(seen.offset, seen.line) < 0 or not math.isfinite(
        seen.storm + seen.storm_s + seen.gaps.this + seen.gaps.last
    ):
        raise ValueError("a number is out of its range")
    return seen


_TOLD = r"(?i)(?:\b|_)loss(?:[ _/][\w/]{0,16})?[\"']?[ \t]*[:=|]?[ \t]*(?:tensor\()?[-+]?"
_FINITE = _TOLD + r"(?:\d|\.\d)"
_NAN = _TOLD + r"(?:nan|inf(?:inity)?)\b"


def _picture(data: bytes, lowest: int, at: int) -> tuple[int, int]:
    """Where the line around `at` starts and ends, or its picture where it was redrawn; not before `lowest`."""
    start = max(lowest, data.rfind(b"\n", lowest, at) + 1, data.rfind(PIECE, lowest, at) + 1)
    ends = [end for end in (data.find(b"\n", at), data.find(PIECE, at)) if end >= 0]
    return start, min(ends, default=len(data))
