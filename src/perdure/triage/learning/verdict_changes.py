"""Which verdicts a site's learning changed: the one given beside the one that would have been given without it.

A reading keeps both where they differ, so what is told of a message is counted from what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from perdure.triage.verdict import CORRECTED, LEARNT, NEW_HERE, Label, Verdict

DEEDS = {Label.DETERMINISTIC: "stop", Label.UNSURE: "probe", Label.TRANSIENT: "retry"}
"""What a label leads to, within the limits of retries."""


class ChangedBy(StrEnum):
    """What made a verdict another than it would have been."""

    OUTCOMES = "outcomes"
    NEW = "new"  # its message is new here: the first jobs with it are probed
    PERSON = "person"


_THROUGH = {CORRECTED: ChangedBy.PERSON, LEARNT: ChangedBy.OUTCOMES, NEW_HERE: ChangedBy.NEW}
"""By the evidence that was added last, which comes first."""


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """The label without what the site learnt, the one that was given, and through what."""

    was: Label
    became: Label
    by: ChangedBy


@dataclass(frozen=True, slots=True)
class ChangedJobs:
    """How many jobs with one message one change was made for, and since when."""

    change: VerdictChange
    jobs: int
    since_s: float

    @property
    def says(self) -> str:
        """What changed, in the words of decisions.

        >>> ChangedJobs(VerdictChange(Label.UNSURE, Label.TRANSIENT, ChangedBy.OUTCOMES), 4, 0.0).says
        'probe -> retry'
        """
        return f"{DEEDS[self.change.was]} -> {DEEDS[self.change.became]}"


def change_of(alone: Verdict, given: Verdict) -> VerdictChange | None:
    """What learning made of the verdict `alone`; None where the label stayed."""
    if alone.label is given.label:
        return None
    through = next((_THROUGH[line.rule] for line in given.evidence if line.rule in _THROUGH), None)
    return VerdictChange(alone.label, given.label, through) if through else None


def in_total(found: Iterable[ChangedJobs]) -> list[ChangedJobs]:
    """The same change told once: its jobs added up, since the first; the change of most jobs first."""
    jobs: dict[VerdictChange, int] = {}
    since_s: dict[VerdictChange, float] = {}
    for each in found:
        jobs[each.change] = jobs.get(each.change, 0) + each.jobs
        since_s[each.change] = min(since_s.get(each.change, each.since_s), each.since_s)
    every = (ChangedJobs(change, count, since_s[change]) for change, count in jobs.items())
    return sorted(every, key=lambda each: (-each.jobs, each.since_s))
