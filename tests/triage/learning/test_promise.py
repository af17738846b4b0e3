"""Verdicts are held against their outcomes; where the promise is broken, thresholds widen, and come back."""

import numpy as np
import pytest

from perdure.model.identity import AttemptId
from perdure.triage.conformal import ALPHA_TRANSIENT, Thresholds
from perdure.triage.learning.promise import HIGHEST, LOWEST, WINDOW_S, PromiseCheck, ProvenVerdict, at_least, check
from perdure.triage.verdict import Label

BASE = Thresholds(0.2, 0.54)
NOW = 1000 * 86400.0


def proven(p: list[float], transient: bool, time_s: float = NOW, same: bool = False) -> list[ProvenVerdict]:
    jobs = ("1" if same else f"{transient}{number}" for number in range(len(p)))
    return [
        ProvenVerdict(AttemptId("c", job, number), time_s, "f", each, transient)
        for number, (job, each) in enumerate(zip(jobs, p, strict=True))
    ]


def test_what_keeps_its_promise_changes_nothing() -> None:
    found = check(BASE, proven([0.9] * 97 + [0.1] * 3, True) + proven([0.05] * 95 + [0.9] * 5, False), NOW)
    assert (found.thresholds, found.is_widened) == (BASE, False)
    assert "kept their promise in 200" in found.says


def test_stops_that_passed_when_run_again_become_probes() -> None:
    found = check(BASE, proven([0.9] * 20 + [0.05, 0.1, 0.12, 0.15, 0.18], True), NOW)
    assert found.stops.is_broken
    assert not found.retries.is_broken
    assert found.thresholds.deterministic_to == BASE.deterministic_to
    stopped = [p for p in (0.05, 0.1, 0.12, 0.15, 0.18) if found.thresholds.label(p) is Label.DETERMINISTIC]
    assert stopped == [0.05]  # 6 % of 25 is one
    assert "5 of 25 failures that passed when run again had been stopped" in found.says


def test_retries_that_failed_the_same_way_become_probes() -> None:
    found = check(BASE, proven([0.1] * 20 + [0.6, 0.7, 0.7, 0.8, 0.8, 0.9], False), NOW)
    assert found.retries.is_broken
    assert found.thresholds.transient_from == BASE.transient_from
    assert found.thresholds.label(0.7) is Label.UNSURE
    assert found.thresholds.label(0.95) is Label.TRANSIENT
    assert "6 of 26 failures that came back had been retried" in found.says


@pytest.mark.parametrize("p", [[0.1], [0.1] + [0.9] * 5])
def test_a_single_error_proves_nothing(p: list[float]) -> None:
    assert check(BASE, proven(p, True), NOW).thresholds == BASE


@pytest.mark.parametrize("honest", [0, 10, 200])
def test_two_users_alone_widen_nothing_however_much_they_stage(honest: int) -> None:
    staged = [
        ProvenVerdict(AttemptId("c", f"{user}{n}", 1), NOW, f"f{n}", 0.05, True, user)
        for user in ("eve", "mallory")
        for n in range(200)
    ]
    kept = [ProvenVerdict(AttemptId("c", f"h{n}", 1), NOW, f"h{n}", 0.9, True, f"u{n % 20}") for n in range(honest)]
    assert check(BASE, [*staged, *kept], NOW).thresholds == BASE


def test_a_job_that_repeats_one_failure_counts_once() -> None:
    assert check(BASE, proven([0.1] * 30, True, same=True), NOW).stops.proven == 1


def test_the_window_slides_and_the_thresholds_come_back() -> None:
    wrong = proven([0.1] * 9, True, NOW - WINDOW_S / 2)
    assert check(BASE, wrong, NOW).is_widened
    assert check(BASE, wrong, NOW + WINDOW_S).thresholds == BASE
    assert check(BASE, wrong, NOW - WINDOW_S).thresholds == BASE  # they are still to come


def test_a_verdict_made_under_wider_thresholds_counts_as_before() -> None:
    """Else the first month of probes would prove the old thresholds right."""
    wrong = proven([0.1] * 9, True)
    widened = check(BASE, wrong, NOW).thresholds
    assert widened.label(0.1) is Label.UNSURE
    assert check(BASE, wrong, NOW).thresholds == widened


def test_the_surest_verdicts_stay_what_they_are() -> None:
    found = check(BASE, proven([0.001] * 9, True) + proven([0.999] * 9, False), NOW).thresholds
    assert found == Thresholds(LOWEST, HIGHEST)


def test_widening_only_ever_widens_and_then_keeps_the_promise() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        n, m = rng.integers(0, 60, 2)
        seen = proven(list(rng.beta(2, 1, n)), True) + proven(list(rng.beta(1, 2, m)), False)
        found = check(BASE, seen, NOW)
        assert found.thresholds.transient_from <= BASE.transient_from
        assert found.thresholds.deterministic_to >= BASE.deterministic_to
        if found.stops.is_broken and found.thresholds.transient_from > LOWEST:
            labels = [found.thresholds.label(each.p_transient) for each in seen if each.transient]
            assert labels.count(Label.DETERMINISTIC) <= ALPHA_TRANSIENT * len(labels)


def test_a_promise_that_holds_is_seldom_taken_for_broken() -> None:
    rng = np.random.default_rng(3)
    broken = 0
    for _ in range(300):
        wrong = rng.random(40) < ALPHA_TRANSIENT
        broken += check(BASE, proven([0.1 if each else 0.9 for each in wrong], True), NOW).stops.is_broken
    assert broken <= 24  # 5 % of 300, and what chance adds


def test_the_chance_of_errors_is_that_of_a_binomial() -> None:
    assert at_least(1, 3, 0.5) == pytest.approx(0.875)
    assert at_least(4, 3, 0.5) == pytest.approx(0.0)


def test_nothing_proven_says_so() -> None:
    assert PromiseCheck().says == "no verdict is proven yet"


def test_of_one_user_no_more_count_than_a_fifth_of_all_others() -> None:
    of_eve = [ProvenVerdict(AttemptId("c", f"e{n}", 1), NOW, f"e{n}", 0.05, True, "eve") for n in range(40)]
    found = check(BASE, proven([0.9] * 20, True) + of_eve, NOW)
    assert (found.stops.proven, found.stops.wrong) == (24, 4)
