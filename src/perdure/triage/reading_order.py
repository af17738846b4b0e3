"""The order in which a person reads the lines of evidence: what named the cause first."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import FRAME, MESSAGE
from perdure.triage.verdict import CauseRole, Evidence, Verdict


def naming_rule(verdict: Verdict) -> str:
    """The rule that named the cause, where `perdure rules` can describe it; else "". A root is before a cascade."""
    causes = [
        rule.cause
        for line in verdict.evidence
        if line.role is not CauseRole.CONFIRMATION and (rule := own_rules().named(line.rule)) is not None
    ]
    fitting = [cause for cause in causes if cause.category == verdict.category]
    return next((cause.name for cause in fitting if cause.role is CauseRole.ROOT), fitting[0].name if fitting else "")


def in_order_of_reading(verdict: Verdict) -> Sequence[Evidence]:
    """The lines of evidence that are shown: what named the cause, what goes on with it, the place in the job's code,
    then the others.

    A root that no rule knows, but a table or the grammar, is before a rule's cascade.
    """
    shown, rule = verdict.shown_evidence, naming_rule(verdict)
    told = own_rules().named(rule)
    read = [line for line in shown if line.role is CauseRole.ROOT and own_rules().named(line.rule) is None]
    if told is not None and told.cause.role is CauseRole.CASCADE and read:
        rule = read[0].rule

    def place(line: Evidence) -> int:
        if line.rule == FRAME:
            return 2
        if line.rule == MESSAGE:
            return 1
        if rule and line.rule == rule:
            return 0
        return {CauseRole.ROOT: 3 if rule else 0, CauseRole.CASCADE: 4, CauseRole.CONFIRMATION: 5}[line.role]

    return sorted(shown, key=place)
