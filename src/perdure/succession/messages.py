"""What a chain hears (events) and what it wants done (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.job.link_marks import LinkMarks
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.protocol import Decision, Forecast

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class LinksSeen:
    """One look: at the marks of links, and at what the resource manager said when it was asked last."""

    now: float
    marks: Mapping[int, LinkMarks] = field(default_factory=dict)
    jobs: tuple[LinkJob, ...] | None = None  # None: it has never answered
    looked_s: float = 0.0  # when it was asked
    done_file: bool = False  # the work's own file is there
    in_flight: bool = False  # an `sbatch` of an earlier life still runs
    unsure_s: float = 0.0  # what was done before is not all written down: only a look from then on shows it

    @property
    def is_stale(self) -> bool:
        """Whether jobs may be missing: nothing is submitted then."""
        return self.unsure_s > 0 and (self.jobs is None or self.looked_s < self.unsure_s)


@dataclass(frozen=True, slots=True)
class LinkSubmitted:
    """The resource manager took a link's job."""

    now: float
    number: int
    job_id: str


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """It did not take it; at a `limit` of the user it will take it once other jobs have ended."""

    now: float
    number: int
    why: str
    limit: bool = False


@dataclass(frozen=True, slots=True)
class EndTold:
    """What is known of a job that has ended, or that a look did not show; None: nobody knows it."""

    now: float
    number: int
    job: LinkJob | None


@dataclass(frozen=True, slots=True)
class LinkJudged:
    """Whether a successor of a failed link would fail too."""

    now: float
    number: int
    is_transient: bool
    says: str


@dataclass(frozen=True, slots=True)
class LinkPlanned:
    """A planner's decision."""

    now: float
    decision: Decision
    said: Forecast | None = None  # of the wait, where there was one


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Its user wants it to stop: after the running link, or at once."""

    now: float
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class LinkReleased:
    """A link's job is not held any more."""

    now: float
    number: int


Event = LinksSeen | LinkSubmitted | LinkReleased | LinkRefused | EndTold | LinkJudged | LinkPlanned | StopAsked

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class SubmitLink:
    """Submit a link's job; what is said of it in the chain was journalled before."""

    number: int
    after_job: str = ""  # not before this job has ended
    begin_s: float = 0.0  # not before this instant
    hold: bool = False


@dataclass(frozen=True, slots=True)
class CancelLink:
    """Cancel a link's job, which is not needed any more."""

    number: int
    job_id: str


@dataclass(frozen=True, slots=True)
class ReleaseLink:
    """Release a link's job, which was submitted held."""

    number: int
    job_id: str


@dataclass(frozen=True, slots=True)
class AskEnd:
    """Ask how a job ended."""

    number: int
    job_id: str


@dataclass(frozen=True, slots=True)
class JudgeLink:
    """Ask why a link failed."""

    number: int


@dataclass(frozen=True, slots=True)
class PlanLink:
    """Ask the planner about the successor of a running link."""

    number: int


Effect = SubmitLink | CancelLink | ReleaseLink | AskEnd | JudgeLink | PlanLink
