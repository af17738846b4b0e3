"""Verdicts on the foundry's records."""

from foundry.records import published
from perdure.triage.judge import judge
from perdure.triage.verdict import Label


def test_most_are_right_but_for_pairs_and_few_transient_ones_are_stopped() -> None:
    verdicts = [(record, judge(record.text.encode())) for record in published()]
    plain = [(verdict.p_transient > 0.5) == record.transient for record, verdict in verdicts if not record.pair]
    stopped = [record.transient and verdict.label is Label.DETERMINISTIC for record, verdict in verdicts]
    assert sum(plain) / len(plain) > 0.9
    assert sum(stopped) < 0.1 * sum(record.transient for record, _ in verdicts)
