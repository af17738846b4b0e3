"""What a link of a chain leaves in the chain's directory about itself: each mark is one small file, whole or not there.

A link writes its marks from inside its job; its successor and ``perdure keep`` read them. They come sooner than any
look at the resource manager, but they are the job's word: what it does not say, the resource manager decides.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.model.exits import STOP_HERE


class LinkBegun(Struct, frozen=True):
    """The job of a link runs. Times are seconds since the epoch by its own clock."""

    job_id: str
    came_s: float  # when its job began, which may have waited for its predecessor since
    ran_s: float = 0.0  # when its program began; 0 while it waits for its predecessor
    progress: str = ""  # what the progress file said just before its program began
    host: str = ""
    stdout: str = ""  # where its output goes; "" where that is not known


class HandoverAsked(Struct, frozen=True):
    """The successor's job runs, and asks this link to write its checkpoint and to end."""

    by_job: str
    at_s: float
    end_s: float  # until when it has time


class HandoverTold(Struct, frozen=True):
    """This link's answer: how many of its processes were told."""

    count: int
    at_s: float


class LinkEnded(Struct, frozen=True):
    """The program of a link has ended, or was never begun (`skipped` says why)."""

    job_id: str
    at_s: float
    exit_code: int
    signals: tuple[str, ...] = ()  # that came for it before it ended
    progress: str = ""
    step: int | None = None  # the last that it told
    skipped: str = ""


class LinkMarks(Struct, frozen=True):
    """All that one link has said."""

    begun: LinkBegun | None = None
    asked: HandoverAsked | None = None
    told: HandoverTold | None = None
    ended: LinkEnded | None = None

    @property
    def is_live(self) -> bool:
        """Whether its job runs, as far as it says itself."""
        return self.begun is not None and self.ended is None

    @property
    def is_done(self) -> bool:
        """Whether its program ended well without having been told to end: the work is done."""
        ended = self.ended
        if ended is None or ended.skipped or ended.exit_code or ended.signals:
            return False
        return self.asked is None or (self.told is not None and not self.told.count)

    @property
    def was_fenced(self) -> bool:
        return self.ended is not None and self.ended.exit_code == STOP_HERE
