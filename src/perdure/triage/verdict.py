"""What triage says of a failed attempt: a label, its probability, and the lines that show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perdure.model.output import LogMark
from perdure.model.value import quick

MAX_LOGS = 16
"""So many files are remembered with a verdict, those of the job itself before those of its ranks."""


class Label(StrEnum):
    """Would the same job, submitted again unchanged and perhaps elsewhere, get past this point?"""

    DETERMINISTIC = "deterministic"  # no
    TRANSIENT = "transient"  # plausibly
    UNSURE = "unsure"


class Role(StrEnum):
    """What a line of evidence means for the cause."""

    ROOT = "root"  # it names the cause
    CASCADE = "cascade"  # it follows from a failure elsewhere
    CONFIRMATION = "confirmation"  # it says that there was a failure, not which


class Bound(StrEnum):
    """What a transient cause is tied to, hence what a retry must do otherwise."""

    NOTHING = "nothing"
    NODE = "node"  # go elsewhere
    SERVICE = "service"  # wait until it is back


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of the log, or one fact of the resource manager, that speaks for the verdict."""

    line: int  # 1-based, in the text that was judged; 0 for a fact that stands in no log
    text: str
    role: Role
    rule: str  # name of the rule that matched, or of the fact
    source: str = ""  # the file or task that it comes from, where the log has several


@quick
@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt failed, as far as can be told."""

    label: Label
    p_transient: float  # probability in [0, 1] that a retry elsewhere gets past this point
    category: str  # of the root cause: "shape", "node_loss", ...; "unknown"
    summary: str  # one sentence for a person
    evidence: tuple[Evidence, ...] = ()
    bound: Bound = Bound.NOTHING
    infrastructure: bool = False  # whose budget a retry is charged to: the site's, or the user's
    fingerprint: str = ""  # the same for failures that look alike; "" where nothing was recognised
    advice: str = ""  # what a person can do about it, one sentence
    wait_s: float = 0.0  # how long to wait before a retry makes sense
    hearsay: bool = False  # it blames the site, and only the job's own log says so
    logs: tuple[LogMark, ...] = ()  # what it was made from, `MAX_LOGS` at most
    resubmits: bool = False  # the job's batch script submits jobs, or puts itself back
    hardware: str = ""  # the line that shows broken hardware, where that is the cause
    rank: str = ""  # of the task that failed first; "" where it is not known, or the job is one task
    node: str = ""  # on which that task ran, as its launcher calls it
    steps: int | None = None  # the last step that the log of a job that ran out of walltime tells of
    first_step: int | None = None  # the first that it tells of
