"""When a silence is a hang: closed forms on a clock of our own."""

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.job.silence import WORKING_S, HangRule, Pace, Silence, Tier
from tests.copying import replace

RULE = HangRule(after_s=100.0, factor=10.0, min_gaps=3, soft_s=20.0, grace_s=5.0)


def beaten(gaps: Sequence[float], rule: HangRule = RULE) -> tuple[Silence, float]:
    silence, now = Silence(rule, 0.0), 0.0
    for gap in gaps:
        now += gap
        silence.heard(now)
    return silence, now


def tiers(silence: Silence, instants: Sequence[float]) -> list[tuple[float, Tier]]:
    """What each look gives that gives something; the program is told to end when it is to be."""
    found = []
    for now in instants:
        if (tier := silence.look(now)) is not None:
            found.append((now, tier))
        if tier is Tier.TERM:
            silence.condemn(now)
    return found


def test_alarm_then_term_then_kill_each_once() -> None:
    silence, now = beaten([5.0, 1.0, 1.0, 1.0])
    assert tiers(silence, range(int(now), 400)) == [
        (now + 101, Tier.ALARM), (now + 121, Tier.TERM), (now + 126, Tier.KILL),
    ]  # fmt: skip


def test_nothing_is_judged_before_enough_gaps_are_known() -> None:
    silence, now = beaten([5.0, 1.0, 1.0])
    assert tiers(silence, [now + 1e9]) == []


def test_a_silence_at_the_start_has_a_limit_of_its_own() -> None:
    """Also before the first sign of life; once the pace is known the limit does not count."""
    rule = replace(RULE, start_within_s=1000.0)
    assert tiers(Silence(rule, 0.0), [999.0, 1001.0]) == [(1001.0, Tier.ALARM)]
    for known in ([5.0], [5.0, 1.0, 1.0]):
        silence, now = beaten(known, rule)
        assert tiers(silence, [now + 999, now + 1001]) == [(now + 1001, Tier.ALARM)]
    silence, now = beaten([5.0, 1.0, 1.0, 1.0], rule)
    assert tiers(silence, [now + 99, now + 101]) == [(now + 101, Tier.ALARM)]


def test_the_start_can_be_watched_alone() -> None:
    silence, now = beaten([1.0] * 50, HangRule(after_s=0.0, start_within_s=10.0))
    assert tiers(silence, [now + 1e9]) == []
    assert Silence(HangRule(after_s=0.0, start_within_s=10.0), 0.0).look(11.0) is Tier.ALARM


def test_the_floor_of_zero_turns_it_off() -> None:
    silence, now = beaten([1.0] * 50, HangRule(after_s=0.0))
    assert tiers(silence, [now + 1e9]) == []


def test_a_sign_of_life_after_the_alarm_calls_it_off_and_teaches() -> None:
    silence, now = beaten([1.0] * 5)
    assert silence.look(now + 101) is Tier.ALARM
    silence.heard(now + 110)
    assert silence.look(now + 310) is None  # twice the longest gap, 110 s, is 220 s
    assert silence.look(now + 331) is Tier.ALARM


def test_until_it_is_told_to_end_it_may_come_back() -> None:
    silence, now = beaten([1.0] * 5)
    assert [silence.look(now + late) for late in (101, 121, 122)] == [Tier.ALARM, Tier.TERM, Tier.TERM]
    silence.heard(now + 123)
    assert silence.look(now + 150) is None


def test_there_is_no_way_back_from_the_end() -> None:
    silence, now = beaten([1.0] * 5)
    assert tiers(silence, [now + 101, now + 121])[-1][1] is Tier.TERM
    silence.heard(now + 122)
    assert silence.look(now + 126) is Tier.KILL


@given(
    gap=st.floats(0.01, 1e4), pauses=st.lists(st.floats(0.0, 1.0), max_size=30), floor=st.floats(0.01, 1e3),
)  # fmt: skip
def test_slow_but_regular_is_never_a_hang(gap: float, pauses: list[Any], floor: float) -> None:
    """Whatever the floor: gaps up to `factor` times the usual one raise nothing."""
    silence, now = beaten([gap] * 6, HangRule(after_s=floor, min_gaps=3))
    for _ in pauses:
        now += gap
        assert silence.look(now - 1e-6 * gap) is None
        silence.heard(now)
    assert silence.look(now + 9.9 * gap) is None


@given(startup=st.floats(0.0, 1e5), evaluation=st.floats(0.0, 1e5))
def test_what_took_long_once_may_take_twice_as_long_again(startup: float, evaluation: float) -> None:
    pace = Pace(0.0)
    now = 0.0
    for gap in (startup, 1.0, 1.0, evaluation, 1.0, 1.0, 1.0):
        now += gap
        pace.heard(now)
    assert pace.allowed_s(RULE) >= 2 * max(startup, evaluation) - 1e-6 * now
    assert pace.allowed_s(RULE) <= max(100.0, 10.0, 2 * max(startup, evaluation)) + 1e-6 * now + 1.0


def test_an_announced_pause_is_no_silence_and_teaches_nothing() -> None:
    silence, now = beaten([1.0] * 5)
    silence.heard(now, quiet_s=10_000.0)
    assert silence.look(now + 10_050) is None
    assert silence.look(now + 10_101) is Tier.ALARM
    silence.heard(now + 10_102)
    assert silence.look(now + 10_102 + 101) is Tier.ALARM  # the floor still, not twice the pause


def test_an_announced_pause_is_over_with_the_next_sign_of_life() -> None:
    silence, now = beaten([1.0] * 5)
    silence.heard(now, quiet_s=10_000.0)
    silence.heard(now + 10)
    assert silence.look(now + 10 + 99) is None
    assert silence.look(now + 10 + 101) is Tier.ALARM


def test_time_in_which_nothing_could_be_heard_is_no_part_of_an_announced_pause() -> None:
    silence, now = beaten([1.0] * 5)
    silence.heard(now, quiet_s=1000.0)
    silence.skip(5000.0)
    assert silence.look(now + 6099) is None
    assert silence.look(now + 6101) is Tier.ALARM


def test_time_in_which_nothing_could_be_heard_does_not_count() -> None:
    silence, now = beaten([1.0] * 5)
    silence.skip(5000.0)
    assert silence.look(now + 5099) is None
    assert silence.look(now + 5101) is Tier.ALARM


def test_nor_does_it_count_in_the_respite_after_the_alarm() -> None:
    """A machine that is frozen and thawed leaves a program the time that it was promised to come back."""
    silence, now = beaten([1.0] * 5)
    assert silence.look(now + 101) is Tier.ALARM
    silence.skip(5000.0)
    assert silence.look(now + 5120) is None
    assert silence.look(now + 5121) is Tier.TERM


def test_too_little_known_allows_everything() -> None:
    assert Pace(0.0).allowed_s(RULE) == math.inf


EXACT = replace(RULE, after_s=20.0, is_exact=True)


def stepped(gaps: list[Any], rule: HangRule = EXACT) -> tuple[Silence, float]:
    silence, now = Silence(rule, 0.0), 0.0
    for gap in gaps:
        now += gap
        silence.heard(now, is_step=True)
    return silence, now


@given(startup=st.floats(0.0, 1e5), gaps=st.lists(st.floats(0.0, 9.0), max_size=20))
def test_a_limit_that_somebody_has_set_holds_from_the_first_step_on(startup: float, gaps: list[Any]) -> None:
    silence, now = stepped([startup, *gaps])
    assert silence.look(now + 19.9) is None
    assert silence.look(now + 20.1) is Tier.ALARM


@given(gaps=st.lists(st.floats(0.0, 1e4), max_size=2), silent_s=st.floats(0.0, 1e6))
def test_before_its_first_step_no_limit_holds_but_the_one_of_the_start(gaps: list[Any], silent_s: float) -> None:
    """Lines of a start-up, of which nobody knows how long it takes."""
    silence, now = beaten(gaps, EXACT)
    assert silence.look(now + silent_s) is None


@given(gap=st.floats(20.0, 1e4))
def test_steps_that_take_longer_than_the_limit_are_no_hang(gap: float) -> None:
    silence, now = stepped([gap] * 4)
    assert silence.look(now + 1.9 * gap) is None
    assert silence.look(now + 2.1 * gap) is Tier.ALARM


def test_an_excused_silence_is_looked_at_again_but_not_for_ever() -> None:
    silence, now = stepped([1.0] * 3)
    looked = now
    for _ in range(3):
        looked += 20.1
        assert silence.look(looked) is Tier.ALARM
        assert silence.excuse(looked)
        assert silence.look(looked + 19.0) is None
    assert silence.look(now + WORKING_S) is Tier.ALARM
    assert not silence.excuse(now + WORKING_S)


def test_a_program_that_has_come_to_its_first_step_is_past_its_start_for_good() -> None:
    pace = Pace(0.0)
    pace.heard(1.0, is_step=True)
    pace.heard(2.0)  # a word between two steps
    assert pace.allowed_s(EXACT) == EXACT.after_s


def test_the_usual_gap_is_the_median() -> None:
    pace, now = Pace(0.0), 0.0
    for gap in (1.0, 1.0, 1.0, 30.0, 30.0, 30.0):  # the first is the start's, and is no gap
        now += gap
        pace.heard(now)
    assert pace.allowed_s(EXACT) == 60.0
