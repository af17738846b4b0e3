"""Which verdicts learning changed, through what, and how they are added up."""

from __future__ import annotations

import pytest

from perdure.triage.learning.verdict_changes import ChangedBy, ChangedJobs, VerdictChange, change_of, in_total
from perdure.triage.verdict import CORRECTED, LEARNT, NEW_HERE, CauseRole, Evidence, Label, Verdict


def verdict(label: Label, *rules: str) -> Verdict:
    evidence = tuple(Evidence(0, "why", CauseRole.CONFIRMATION, rule) for rule in rules)
    return Verdict(label, 0.5, "unknown", "new", evidence=evidence)


@pytest.mark.parametrize(
    ("rules", "through"),
    [
        ((CORRECTED, LEARNT, "a.rule"), ChangedBy.PERSON),
        ((CORRECTED, NEW_HERE), ChangedBy.PERSON),
        ((NEW_HERE, LEARNT), ChangedBy.NEW),
        ((LEARNT, "a.rule"), ChangedBy.OUTCOMES),
    ],
)
def test_what_was_added_last_changed_the_verdict(rules: tuple[str, ...], through: ChangedBy) -> None:
    given = verdict(Label.TRANSIENT, *rules)
    assert change_of(verdict(Label.UNSURE), given) == VerdictChange(Label.UNSURE, Label.TRANSIENT, through)


def test_a_verdict_that_kept_its_label_is_not_changed() -> None:
    assert change_of(verdict(Label.UNSURE), verdict(Label.UNSURE, LEARNT)) is None
    assert change_of(verdict(Label.UNSURE), verdict(Label.TRANSIENT, "a.rule")) is None  # by nothing that was learnt


def test_the_same_change_is_told_once_since_its_first_job_and_that_of_most_jobs_first() -> None:
    one = VerdictChange(Label.UNSURE, Label.TRANSIENT, ChangedBy.OUTCOMES)
    other = VerdictChange(Label.UNSURE, Label.DETERMINISTIC, ChangedBy.PERSON)
    found = [ChangedJobs(other, 4, 1.0), ChangedJobs(one, 2, 9.0), ChangedJobs(one, 3, 5.0), ChangedJobs(one, 1, 7.0)]
    assert in_total(found) == [ChangedJobs(one, 6, 5.0), ChangedJobs(other, 4, 1.0)]
