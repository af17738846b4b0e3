"""A chain as it is journalled: what was asked for, its links, and its state. Plain data."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure.job.link_marks import LinkMarks
from perdure.succession.protocol import Forecast

MAX_NOTES = 400


class Strategy(StrEnum):
    """How the successor is submitted."""

    NONE = "none"  # when the planner says so; it gains age from then on, and may overlap
    DEPENDENCY = "dependency"  # at once, afterany: no overlap, and no age before the running link ends
    BEGIN = "begin"  # at once, to begin at the walltime's end: no overlap, and no age before that
    HOLD = "hold"  # at once and held, released when the planner says so: no age before that


class ChainStanding(StrEnum):
    """The state of a chain."""

    RUNNING = "running"
    DONE = "done"  # the work is done, or all links have run
    STOPPED = "stopped"  # by its user, or because a successor would fail too


class Phase(StrEnum):
    """The state of a link."""

    INTENDED = "intended"  # about to be submitted: it may have been
    REFUSED = "refused"  # sbatch refused it, and it is tried again
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class LinkEnding(StrEnum):
    """What the end of a link means for the chain."""

    UNKNOWN = ""
    HANDED_OVER = "handed over"  # to its successor, or at its walltime: the work goes on
    DONE = "done"
    FAILED = "failed"  # `why` has to say whether a successor would fail too
    LOST = "lost"  # through no fault of its own: its node, a preemption, a controller that forgot it
    CANCELLED = "cancelled"  # by hand
    DROPPED = "dropped"  # a spare, or its turn was over before it began


class ChainSpec(Struct, frozen=True):
    """What the user has asked for; it does not change."""

    id: str
    tag: str  # what its jobs say that they belong to: no other chain has it, not even an earlier one of the same id
    name: str  # of the jobs
    script: str  # as it was named
    directory: str  # in which it was submitted
    user: str
    created_s: float
    walltime_s: float
    options: tuple[str, ...] = ()  # of sbatch
    arguments: tuple[str, ...] = ()  # of the script
    strategy: Strategy = Strategy.NONE
    planner: str = "reactive"
    overlap_cost: float = 0.25
    max_interruption: float | None = None
    most_links: int | None = None
    until_s: float | None = None
    done_file: str = ""
    progress_file: str = ""


class Link(Struct, frozen=True):
    """One job of a chain. Instants are seconds since the epoch; 0 where they are not known."""

    number: int  # from 1 on
    phase: Phase = Phase.INTENDED
    tries: int = 1  # submissions of it: one that was lost before it began is submitted again
    losses: int = 0  # of its jobs, before they began
    job_id: str = ""
    intended_s: float = 0.0
    submitted_s: float = 0.0
    started_s: float = 0.0
    ends_s: float = 0.0  # when its walltime is over
    ended_s: float = 0.0
    ending: LinkEnding = LinkEnding.UNKNOWN
    why: str = ""
    judged: str = ""  # of one that failed: what `why` says; "" while it has not been asked
    is_settled: bool = False  # what its end means for the chain has been done
    planned_s: float = 0.0  # when the resource manager plans to start it
    state: str = ""  # the resource manager's last word
    reason: str = ""
    is_held: bool = False  # by us
    is_due: bool = False  # it is to be released
    is_cancelled: bool = False  # by us
    missed_s: float = 0.0  # since when the resource manager does not know it
    retry_at_s: float = 0.0  # of one that was refused
    said: Forecast | None = None  # of its wait, when it was submitted
    marks: LinkMarks = LinkMarks()

    @property
    def key(self) -> str:
        """Identifies this submission among all of its chain."""
        return f"{self.number}.{self.tries}"

    @property
    def is_live(self) -> bool:
        return self.phase is not Phase.ENDED

    @property
    def progress(self) -> str | None:
        """How far the work was when it ended; None where nobody says."""
        ended = self.marks.ended
        if ended is None or ended.skipped:
            return None
        return ended.progress or (None if ended.step is None else f"step {ended.step}")


class Note(Struct, frozen=True):
    """What was seen or decided, and when."""

    at_s: float
    text: str


class JobChain(Struct, frozen=True):
    """A chain, as far as it has come."""

    spec: ChainSpec
    links: tuple[Link, ...] = ()
    standing: ChainStanding = ChainStanding.RUNNING
    why: str = ""  # it is in this state
    last: str = ""  # no link is submitted after the running one, for this reason
    plan_at_s: float = 0.0  # when the planner is asked next
    plan_says: str = ""
    notes: tuple[Note, ...] = ()

    def link(self, number: int) -> Link | None:
        return next((each for each in self.links if each.number == number), None)

    @property
    def live(self) -> tuple[Link, ...]:
        return tuple(each for each in self.links if each.is_live)

    @property
    def current(self) -> Link | None:
        """The newest link that runs."""
        return next((each for each in reversed(self.links) if each.phase is Phase.RUNNING), None)

    def with_link(self, link: Link) -> JobChain:
        """The same chain with one link new or changed."""
        rest = [each for each in self.links if each.number != link.number]
        return replace(self, links=tuple(sorted([*rest, link], key=lambda each: each.number)))

    def noting(self, at_s: float, text: str) -> JobChain:
        return replace(self, notes=(*self.notes, Note(at_s, text))[-MAX_NOTES:])
