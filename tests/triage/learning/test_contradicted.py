"""Whom others contradict: forgers are named, and nobody whom a flaky hour, chance or two users make look like one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.triage.learning.contradicted import LEAST_MESSAGES, WINDOW_DAYS, Witnessed, contradicted

USERS = ("ada", "bob", "cleo", "dan")


def lasting(days: range, users: tuple[str, ...] = USERS) -> list[Witnessed]:
    """Two messages a day, five days in turn, that fail for all of `users`."""
    return [Witnessed(f"m{day % 5}{n}", user, False, day) for day in days for n in range(2) for user in users]


def forged(user: str, days: range) -> list[Witnessed]:
    return [Witnessed(f"m{day % 5}{n}", user, True, day) for day in days for n in range(2)]


@pytest.mark.parametrize("hostile", [("eve",), ("eve", "mallory")])
def test_forged_passes_of_many_messages_are_named_with_a_reason(hostile: tuple[str, ...]) -> None:
    users = (*USERS, "fay", "gil")
    found = lasting(range(6), users) + [one for user in hostile for one in forged(user, range(6))]
    named = contradicted(found)
    assert [one.user for one in named] == list(hostile)
    assert named[0].says == "of 10 messages at least 6 other users each saw the opposite"


def test_a_flood_of_one_message_or_of_one_day_names_nobody() -> None:
    flood = [Witnessed("m00", "eve", True, day) for day in range(9) for _ in range(200)]
    assert contradicted(lasting(range(9)) + flood) == []
    assert (
        contradicted(lasting(range(9)) + [Witnessed(f"m{n}{k}", "eve", True, 3) for n in range(5) for k in (0, 1)])
        == []
    )


def test_two_users_get_nobody_named() -> None:
    passing = [Witnessed(one.message, "ada", True, one.day) for one in lasting(range(9), ("ada",))]
    assert contradicted(passing + lasting(range(9), ("eve", "mallory"))) == []
    assert [one.user for one in contradicted(passing + lasting(range(9), ("eve", "mallory", "trudy")))] == ["ada"]


def test_who_is_mostly_borne_out_is_not_named() -> None:
    found = lasting(range(15)) + forged("eve", range(6))
    found += [Witnessed(f"x{n}", user, True, n) for n in range(4) for user in ("eve", "ada", "bob")]
    assert [one.user for one in contradicted(found)] == []


@given(
    window=st.integers(0, 20),
    truths=st.lists(st.booleans(), min_size=12, max_size=12),
    seen=st.lists(st.tuples(st.integers(0, 11), st.sampled_from("abcdef"), st.integers(0, 22)), max_size=200),
    turned=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from("abcdef"), st.integers(0, WINDOW_DAYS - 1), st.booleans()),
        max_size=200,
    ),
)
def test_a_flaky_hour_names_nobody_whatever_it_turns_round(
    window: int,
    truths: list[bool],
    seen: list[tuple[int, str, int]],
    turned: list[tuple[int, str, int, bool]],
) -> None:
    found = [Witnessed(str(which), user, truths[which], day) for which, user, day in seen]
    found += [Witnessed(str(which), user, passed, window + day) for which, user, day, passed in turned]
    assert contradicted(found) == []


def test_a_flaky_hour_that_is_not_left_out_would_name_someone() -> None:
    """The window is what keeps them: the same outcomes over more days are named."""
    hour = [Witnessed(f"m{n}{k}", "ada", True, 2) for n in range(5) for k in range(2)]
    others = lasting(range(10), ("bob", "cleo", "dan"))
    assert contradicted(others + hour) == []
    spread = [Witnessed(one.message, "ada", True, at) for at, one in enumerate(hour)]
    assert [one.user for one in contradicted(others + spread)] == ["ada"]


@pytest.mark.parametrize("flaky", [0.0, 0.3, 1.0])
def test_at_a_site_of_honest_users_nobody_is_named_on_any_day(flaky: float) -> None:
    rng = np.random.default_rng(7)
    chance = np.where(rng.random(40) < 0.5, 0.98, 0.02)
    chance = np.where(rng.random(40) < flaky, rng.uniform(0.2, 0.8, 40), chance)
    found: list[Witnessed] = []
    for day in range(40):
        for _ in range(25):
            which, user = int(rng.integers(40)), f"u{int(20 * rng.random() ** 2)}"
            turns = day == 20 and rng.random() < 0.5
            found.append(Witnessed(str(which), user, bool(rng.random() < chance[which]) != turns, day))
        if day % 4 == 3:
            assert contradicted(found) == []


def test_a_message_that_passes_now_and_then_for_others_contradicts_nobody() -> None:
    others = ("bob", "cleo", "dan")
    found = forged("ada", range(10)) + lasting(range(30), others)
    assert [one.user for one in contradicted(found)] == ["ada"]
    assert contradicted(found + [one for user in others for one in forged(user, range(5))]) == []


def test_of_few_messages_nobody_is_named() -> None:
    few = {f"m{n}{k}" for n in range(5) for k in range(2)}
    kept = sorted(few)[: LEAST_MESSAGES - 1]
    found = lasting(range(10)) + forged("eve", range(10))
    assert contradicted(one for one in found if one.message in kept) == []


def test_who_is_borne_out_by_one_while_more_oppose_is_named() -> None:
    found = lasting(range(9)) + forged("eve", range(9))
    for n in range(4):
        found += [Witnessed(f"x{n}", user, user in ("eve", "ada"), n) for user in ("eve", "ada", "bob", "cleo")]
    assert [(one.user, one.borne_out) for one in contradicted(found)] == [("eve", 0)]


@pytest.mark.parametrize(("borne_out", "named"), [(2, ["eve"]), (3, [])])
def test_who_is_borne_out_on_a_third_as_many_messages_is_not_named(borne_out: int, named: list[str]) -> None:
    found = [one for one in lasting(range(15)) + forged("eve", range(15)) if one.message != "m00"]  # 9 messages
    found += [Witnessed(f"x{n}", user, True, n) for n in range(borne_out) for user in ("eve", "ada", "bob")]
    assert [one.user for one in contradicted(found)] == named


def test_a_message_that_one_other_saw_go_both_ways_contradicts_nobody() -> None:
    found = forged("ada", range(10)) + lasting(range(30), ("bob", "cleo", "dan"))
    assert [one.user for one in contradicted(found)] == ["ada"]
    both = [replace(one, passed=passed) for one in lasting(range(15), ("fay",)) for passed in (True, False)]
    assert contradicted(found + both) == []


def test_the_reason_tells_the_fewest_who_contradict() -> None:
    found = [one for one in lasting(range(6)) + forged("eve", range(6)) if (one.message, one.user) != ("m10", "dan")]
    (named,) = contradicted(found)
    assert named.says == "of 10 messages at least 3 other users each saw the opposite"
