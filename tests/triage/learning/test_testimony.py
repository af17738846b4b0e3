"""What outcomes weigh: few users decide, one user moves only himself, and a minority never outvotes what more saw."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.triage.conformal import own_thresholds
from perdure.triage.learning.testimony import (
    MOST_OF_USER,
    PROBED_JOBS,
    Outcomes,
    Weighed,
    learnt,
    probed,
    weighed,
)
from perdure.triage.verdict import Label, Verdict

HONEST = {"ada": Outcomes(failed=2), "bob": Outcomes(failed=2), "cleo": Outcomes(failed=1)}


def verdict(p: float) -> Verdict:
    return Verdict(own_thresholds().label(p), p, "unknown", "new")


@pytest.mark.parametrize("p", [0.03, 0.2, 0.4, 0.54])
def test_three_outcomes_of_two_users_decide_what_no_rule_names(p: float) -> None:
    for seen, label in (
        ({"ada": Outcomes(passed=2), "bob": Outcomes(passed=1)}, Label.TRANSIENT),
        ({"ada": Outcomes(failed=1), "bob": Outcomes(failed=2)}, Label.DETERMINISTIC),
    ):
        found = learnt(verdict(p), weighed(seen, "eve", named=False), own_thresholds(), named=False)
        assert found.label is label
        assert found.summary.endswith("learnt from 3 outcomes here")


def test_what_one_user_saw_moves_his_own_verdicts_alone() -> None:
    seen = {"eve": Outcomes(passed=200)}
    assert weighed(seen, "bob", named=False).is_silent
    assert weighed(seen, "eve", named=False).weight > 0
    assert weighed(seen, "eve", named=True).is_silent


def test_two_users_move_no_cause_that_a_rule_names() -> None:
    seen = {"eve": Outcomes(passed=200), "mallory": Outcomes(passed=200)}
    assert weighed(seen, "bob", named=True).is_silent


def test_a_cause_that_a_rule_names_moves_by_half_as_much() -> None:
    seen = {name: Outcomes(passed=1) for name in ("ada", "bob", "cleo")}
    odds = {}
    for named in (False, True):
        p = learnt(verdict(0.5), weighed(seen, "dora", named), own_thresholds(), named).p_transient
        odds[named] = math.log(p / (1.0 - p))
    assert odds[True] == pytest.approx(odds[False] / 2, abs=0.01)
    assert odds[True] > 0


@pytest.mark.parametrize("hostile", [("eve",), ("eve", "mallory")])
def test_forged_passes_of_one_user_or_two_do_not_outvote_three(hostile: tuple[str, ...]) -> None:
    forged = {name: Outcomes(passed=200) for name in hostile}
    before = learnt(verdict(0.4), weighed(HONEST, "dora", named=False), own_thresholds(), named=False)
    after = learnt(verdict(0.4), weighed({**HONEST, **forged}, "dora", named=False), own_thresholds(), named=False)
    assert before.label is after.label is Label.DETERMINISTIC


def test_half_of_the_evidence_against_is_doubt_and_no_erasure() -> None:
    split = {**HONEST, "dan": Outcomes(passed=2), "eve": Outcomes(passed=2), "fay": Outcomes(passed=2)}
    found = weighed(split, "gil", named=False)
    assert found.doubted
    assert learnt(verdict(0.03), found, own_thresholds(), named=False).label is Label.UNSURE


def test_what_goes_both_ways_teaches_nothing() -> None:
    flaky = {name: Outcomes(passed=3, failed=3) for name in "abcdef"}
    assert weighed(flaky, "a", named=False).weight == 0
    assert weighed(flaky, "z", named=False).is_silent


@given(
    seen=st.dictionaries(st.sampled_from("abcdefgh"), st.builds(Outcomes, st.integers(0, 300), st.integers(0, 300))),
    user=st.sampled_from("abcxyz"),
    named=st.booleans(),
    p=st.floats(0.0, 1.0),
)
def test_a_verdict_stays_a_probability_and_no_user_weighs_more_than_his_share(
    seen: dict[str, Outcomes], user: str, named: bool, p: float
) -> None:
    found = weighed(seen, user, named)
    assert abs(found.weight) <= MOST_OF_USER * max(2, len(seen))
    after = learnt(verdict(p), found, own_thresholds(), named)
    assert 0.0 <= after.p_transient <= 1.0
    turned = {name: Outcomes(one.failed, one.passed) for name, one in seen.items()}
    assert weighed(turned, user, named).weight == -found.weight


def test_the_first_jobs_with_a_new_message_are_probed_and_no_more() -> None:
    stopped = verdict(0.05)
    assert probed(stopped, 1, own_thresholds()).label is Label.UNSURE
    assert probed(stopped, PROBED_JOBS, own_thresholds()).label is Label.UNSURE
    assert probed(stopped, PROBED_JOBS + 1, own_thresholds()) is stopped
    assert probed(verdict(0.9), 1, own_thresholds()).label is Label.TRANSIENT


def test_without_outcomes_nothing_changes() -> None:
    one = verdict(0.3)
    assert learnt(one, Weighed(), own_thresholds(), named=False) is one


def test_what_users_saw_themselves_is_doubted_and_not_overruled() -> None:
    seen = {"ada": Outcomes(passed=3), "eve": Outcomes(failed=200), "mallory": Outcomes(failed=200)}
    assert weighed(seen, "ada", named=False).doubted
    assert weighed(seen, "bob", named=False).weight < 0
    assert weighed({**seen, "ada": Outcomes(passed=1)}, "ada", named=False).weight < 0
