"""What outcomes weigh: few users decide, one user moves only himself, and a minority never outvotes what more saw."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.triage.conformal import own_thresholds
from perdure.triage.learning.testimony import (
    MOST_OF_USER,
    PROBED_JOBS,
    Outcomes,
    Weighed,
    decided,
    learnt,
    probed,
    weighed,
)
from perdure.triage.verdict import CANCELLED, Label, Verdict
from tests.copying import replace


def after(one: Verdict, seen: dict[str, Outcomes], user: str, jobs: int = 1) -> Verdict:
    """The verdict on a job of `user` with a message that no rule names."""
    return decided(one, weighed(seen, user, named=False), jobs, own_thresholds(), named=False)


HONEST = {"ada": Outcomes(failed=2), "bob": Outcomes(failed=2), "cleo": Outcomes(failed=1)}


def verdict(p: float) -> Verdict:
    return Verdict(own_thresholds().label(p), p, "unknown", "new")


@pytest.mark.parametrize("p", [0.03, 0.2, 0.4, 0.54])
def test_three_outcomes_of_two_users_decide_what_no_rule_names(p: float) -> None:
    for seen, label in (
        ({"ada": Outcomes(passed=2), "bob": Outcomes(passed=1)}, Label.TRANSIENT),
        ({"ada": Outcomes(failed=1), "eve": Outcomes(failed=2)}, Label.DETERMINISTIC),
    ):
        found = after(verdict(p), seen, "eve")
        assert found.label is label
        assert found.summary.endswith("learnt from 3 outcomes here")


@pytest.mark.parametrize("p", [0.2, 0.4, 0.6])
def test_two_users_stop_no_job_of_others_and_a_third_does(p: float) -> None:
    seen = {"eve": Outcomes(failed=200), "mallory": Outcomes(failed=200)}
    assert after(verdict(p), seen, "ada").label is Label.UNSURE
    assert after(verdict(p), seen, "ada", jobs=9).label is Label.UNSURE
    assert after(verdict(p), seen, "eve").label is Label.DETERMINISTIC
    seen["bob"] = Outcomes(failed=1)
    assert after(verdict(p), seen, "ada").label is Label.DETERMINISTIC


def test_what_two_users_saw_takes_no_probe_from_others() -> None:
    seen = {"eve": Outcomes(failed=200), "mallory": Outcomes(failed=200)}
    assert after(verdict(0.05), seen, "ada").label is Label.UNSURE
    assert after(verdict(0.05), seen, "ada", jobs=PROBED_JOBS + 1).label is Label.DETERMINISTIC  # by its words


@pytest.mark.parametrize("p", [0.2, 0.4])
@pytest.mark.parametrize("forged", [1, 200])
def test_passes_that_two_users_forge_have_few_jobs_of_others_retried(p: float, forged: int) -> None:
    """In whatever order others fail with that message: three jobs of theirs, at most, are retried for it."""
    most = 0
    for users in product("abcd", repeat=6):
        seen = {"eve": Outcomes(passed=forged), "mallory": Outcomes(passed=forged)}
        retried = 0
        for user in users:
            retried += after(verdict(p), seen, user).label is Label.TRANSIENT
            seen[user] = Outcomes(failed=seen.get(user, Outcomes()).failed + 1)
        most = max(most, retried)
        assert after(verdict(p), seen, "z").label is not Label.TRANSIENT or len(set(users)) == 1
    assert most <= 3


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


@pytest.mark.parametrize(("more", "fewer"), [((2, 2), (1, 1)), ((2, 2, 2, 2), (1, 1, 1, 1)), ((2,) * 5, (2, 2, 1))])
def test_exactly_half_against_is_doubt_and_less_is_none(more: tuple[int, ...], fewer: tuple[int, ...]) -> None:
    passed = {f"more{row}": Outcomes(passed=lean) for row, lean in enumerate(more)}
    failed = {f"fewer{row}": Outcomes(failed=lean) for row, lean in enumerate(fewer)}
    assert weighed({**passed, **failed}, "gil", named=False).doubted
    failed.popitem()
    assert not weighed({**passed, **failed}, "gil", named=False).doubted


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


def test_what_one_user_saw_go_both_ways_by_half_is_doubt_for_that_user() -> None:
    assert weighed({"eve": Outcomes(passed=4, failed=2)}, "eve", named=False).doubted
    assert not weighed({"eve": Outcomes(passed=5, failed=2)}, "eve", named=False).doubted


def test_what_few_saw_of_a_cause_that_a_rule_names_makes_no_doubt() -> None:
    seen = {**{name: Outcomes(passed=1) for name in ("ada", "bob", "cleo")}, "eve": Outcomes(failed=3)}
    assert weighed(seen, "eve", named=False).doubted
    assert weighed(seen, "eve", named=True).weight > 0


def test_outcomes_that_cancel_each_other_are_not_counted() -> None:
    assert weighed({"ada": Outcomes(passed=4, failed=3), "bob": Outcomes(passed=1)}, "eve", named=False).outcomes == 2


def test_a_job_that_was_cancelled_is_not_probed() -> None:
    cancelled = replace(verdict(0.05), category=CANCELLED)
    assert probed(cancelled, 1, own_thresholds()) is cancelled


def test_whose_job_is_tried_again_once_is_told_why() -> None:
    seen = {"ada": Outcomes(failed=2), "bob": Outcomes(failed=2)}
    assert "no more than 2 users saw this message fail" in after(verdict(0.3), seen, "eve").evidence[0].text
