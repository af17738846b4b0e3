"""Verdicts on the foundry's records."""

from perdure.triage.foundry.records import published
from perdure.triage.judge import judge
from perdure.triage.verdict import Label


def test_most_are_right_and_few_transient_ones_are_stopped() -> None:
    verdicts = [(record.transient, judge(record.text.encode())) for record in published()]
    stopped = [verdict for transient, verdict in verdicts if transient and verdict.label is Label.DETERMINISTIC]
    right = sum((verdict.p_transient > 0.5) == transient for transient, verdict in verdicts)
    assert right / len(verdicts) > 0.9
    assert len(stopped) <= 2
