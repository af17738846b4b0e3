"""What triage says of a failed attempt: a label, its probability, and the lines that show it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.output import LogMark

MAX_LOGS = 16
"""This many files are remembered with a verdict, those of the job itself before those of its ranks."""

LITTLE = 0.005  # a share that rounds to nothing
CANCELLED = "cancelled"  # the category of what somebody ended on purpose
CORRECTED = "corrected"
"""What the evidence of a person's word is called that outranks triage."""

LEARNT = "learnt"
"""What the evidence is called of what retries of the same message proved at this site."""

NEW_HERE = "new-here"
"""What the evidence is called of a message that the site has too little experience of to stop its job."""

UNNAMED = "~"
"""Begins the fingerprint of a failure that nothing recognised: of its message alone."""

CRASHED = "native_crash"  # the category
TRACEBACK = "Traceback (most recent call last)"


class Label(StrEnum):
    """Would the same job, submitted again unchanged and perhaps elsewhere, get past this point?"""

    DETERMINISTIC = "deterministic"  # no
    TRANSIENT = "transient"  # plausibly
    UNSURE = "unsure"


class CauseRole(StrEnum):
    """What a line of evidence means for the cause."""

    ROOT = "root"  # it names the cause
    CASCADE = "cascade"  # it follows from a failure elsewhere
    CONFIRMATION = "confirmation"  # it says that there was a failure, not which


class Bound(StrEnum):
    """What a transient cause is tied to, hence what a retry must do otherwise."""

    NOTHING = "nothing"
    NODE = "node"  # go elsewhere
    SERVICE = "service"  # wait until it is back
    CALLER = "caller"  # what lies outside of all nodes refuses whoever asks, or cannot be reached by name: wait


class Evidence(Struct, frozen=True, omit_defaults=True):
    """One line of the log, or one fact of the resource manager, that speaks for the verdict."""

    line: int  # 1-based, in the text that was judged; 0 for a fact that is in no log
    text: str
    role: CauseRole
    rule: str  # name of the rule that matched, or of the fact
    source: str = ""  # the file or task that it comes from, where the log has several


class Reached(Struct, frozen=True):
    """What a log shows of an attempt's work. None and "": it does not say."""

    step: int | None = None  # the last
    first_step: int | None = None
    saved_step: int | None = None  # at which the last checkpoint was saved
    checkpoint: str = ""  # that one, as the log calls it
    whole: bool = False  # all of the log was read: a checkpoint that it does not name was not reported

    @property
    def lost_frac(self) -> float | None:
        """The share of the attempt's steps that came after its last checkpoint; None where that is not known."""
        if self.step is None or self.first_step is None:
            return None
        if self.saved_step is None:
            return 1.0 if self.whole and not self.checkpoint else None
        done = self.step - self.first_step + 1
        return min(1.0, max(0, self.step - self.saved_step) / done) if done > 0 else None

    def words(self, gpu_hours: float) -> str:
        """Half a sentence for a person; "" where the log tells nothing. `gpu_hours` are the attempt's."""
        said = [f"came to step {self.step}"] if self.step is not None else []
        at = f" at step {self.saved_step}" if self.saved_step is not None else ""
        if self.checkpoint:
            said.append(f"saved {self.checkpoint}{at}")
        elif self.whole and said:
            said.append("its log names no checkpoint")
        if (lost := self.lost_frac) is not None and lost < LITTLE:
            said.append("none of its steps is lost")
        elif lost is not None:
            hours = f", {lost * gpu_hours:.2g} GPU-h" if gpu_hours else ""
            share = f"about {lost:.0%} of" if lost < 1.0 else "all"
            said.append(f"{share} its steps {'are' if self.checkpoint else 'seem'} lost{hours}")
        return "; ".join(said)


class Verdict(Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, as far as can be told."""

    label: Label
    p_transient: float  # probability in [0, 1] that a retry elsewhere gets past this point
    category: str  # of the root cause: "shape", "node_loss", ...; "unknown"
    summary: str  # one sentence for a person
    evidence: tuple[Evidence, ...] = ()
    bound: Bound = Bound.NOTHING
    infrastructure: bool = False  # whose budget a retry is charged to: the site's, or the user's
    fingerprint: str = ""  # the same for failures that look alike; "" where there is not even a message
    advice: str = ""  # what a person can do about it, one sentence
    wait_s: float = 0.0  # how long to wait before a retry makes sense
    hearsay: bool = False  # it blames the site, and only the job's own log says so
    logs: tuple[LogMark, ...] = ()  # what it was made from, `MAX_LOGS` at most
    resubmits: bool = False  # the job's batch script submits jobs, or puts itself back
    hardware: str = ""  # the line that shows broken hardware, where that is the cause
    rank: str = ""  # of the task that failed first; "" where it is not known, or the job is one task
    node: str = ""  # on which that task ran, as its launcher calls it
    steps: int | None = None  # the last step in the log of a job that ran out of walltime
    first_step: int | None = None  # the first in it
    reached: Reached | None = None  # how far it came, as far as its log shows
    ending: str = ""  # what the end of its log says, where no line names a cause
    work_done: bool = False  # its log says that all of the work was done before it failed
    quoted: str = ""  # `summary` in the log's own words, for whoever may read it; "" where the summary knows all
    full_store: str = ""  # where the file system is mounted that was full as it failed, if that is the cause

    def lost_gpu_hours(self, gpu_hours: float) -> float:
        """Of an attempt's `gpu_hours` those that the next must run again: all, where its log names no checkpoint."""
        share = self.reached.lost_frac if self.reached else None
        return gpu_hours if share is None else share * gpu_hours

    def remarked(self, *remarks: str) -> Verdict:
        """The verdict with more said of it, in its summary and in the log's own words."""
        summary, quoted = ("; ".join([said, *remarks]) if said else "" for said in (self.summary, self.quoted))
        return replace(self, summary=summary, quoted=quoted)

    @property
    def is_recognised(self) -> bool:
        """Whether its fingerprint is of something that rules, tables or the grammar know."""
        return bool(self.fingerprint) and not self.fingerprint.startswith(UNNAMED)

    @property
    def headline(self) -> str:
        """The label as a person reads it: what somebody cancelled has not failed by itself."""
        return CANCELLED if self.category == CANCELLED and self.label is Label.DETERMINISTIC else str(self.label)

    @property
    def shown_evidence(self) -> tuple[Evidence, ...]:
        """The evidence as a person reads it: a crash that follows from nothing in the log is the root itself.

        That a traceback begins tells nothing that its last line and the job's own frame do not.

        Decisions go by `evidence`: by its log alone, nobody knows that the crash did not follow from something else.
        """
        lines = tuple(line for line in self.evidence if not line.text.startswith(TRACEBACK)) or self.evidence
        crash = next((line for line in lines if line.role is CauseRole.CASCADE), None)
        if self.category != CRASHED or crash is None or any(line.role is CauseRole.ROOT for line in lines):
            return lines
        return tuple(replace(line, role=CauseRole.ROOT) if line is crash else line for line in lines)
