"""The line that named the cause is read first, and a cascade after its root."""

from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import FRAME, MESSAGE
from perdure.triage.reading_order import in_order_of_reading
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict


def test_a_root_that_a_rule_named_is_before_one_that_no_rule_knows() -> None:
    cause = next(rule.cause for rule in own_rules().rules if rule.cause.role is CauseRole.ROOT)
    of_grammar = Evidence(2, "read by its words", CauseRole.ROOT, "grammar")
    named = Evidence(5, "named by its rule", CauseRole.ROOT, cause.name)
    place, goes_on = Evidence(4, "a.py:1", CauseRole.ROOT, FRAME), Evidence(6, "more", CauseRole.ROOT, MESSAGE)
    verdict = Verdict(Label.UNSURE, 0.5, cause.category, summary="", evidence=(of_grammar, place, named, goes_on))
    assert list(in_order_of_reading(verdict)) == [named, goes_on, place, of_grammar]
