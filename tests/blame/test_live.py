"""Windows that slide, and a list of suspects that does not flap."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.blame.accuse import Accusation, accused, accused_by
from perdure.blame.builders.attempts import AttemptRow
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Standing, SuspectPatience, follow
from tests.copying import replace

HOUR = 3600.0


def row(end_s: float, user: str = "ann", node: str = "n1", failed: bool = False, job: str = "train") -> AttemptRow:
    return AttemptRow(end_s, user, job, (node,), failed)


def accusation(name: str, strength: float = 10.0, *others: tuple[str, str]) -> Accusation:
    return Accusation((("node", name), *others), "hard", 0.9, 0.5, 1.0, 5, 0, 2, strength)


def site(now: float, sick: int | None = None, each: int = 4) -> list[Any]:
    """Every user on every node so many times in the hour before `now`; what runs on `sick` fails."""
    spread = itertools.product(range(6), range(8), range(each))
    return [row(now - 60.0 * k, f"u{u}", f"n{n}", n == sick, f"j{u}") for u, n, k in spread]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=60))
def test_what_is_in_the_window_is_what_ended_within_it(ends: list[Any]) -> None:
    """Late, unordered, twice: only the instant of the end counts."""
    sliding, seen = Sliding(100.0), {}
    now = 0.0
    for at, later in ends:
        now += later
        seen.setdefault(at, row(float(at)))
        inside = sliding.slide([(str(at), row(float(at)))], now)
        known = {key for key in seen if now - 100 < key}
        assert {one.end_s for one in inside} == {float(key) for key in known}
        assert list(inside) == sorted(inside, key=lambda one: one.end_s)
        assert len(inside) == len({one.end_s for one in inside}) == len(sliding)


def test_it_holds_no_more_than_it_may_and_lets_the_oldest_go() -> None:
    sliding = Sliding(HOUR, most=3)
    kept = sliding.slide(((str(k), row(float(k))) for k in range(10)), 10.0)
    assert [one.end_s for one in kept] == [7.0, 8.0, 9.0]


def test_a_sick_node_is_accused_by_name() -> None:
    (found,) = accused(site(HOUR, sick=3))
    assert found.components == (("node", "n3"),)
    assert (found.kind, found.failed, found.passed, found.users) == ("hard", 24, 0, 6)


def test_a_sound_site_accuses_nobody() -> None:
    assert accused(site(HOUR)) == ()
    rng = np.random.default_rng(4)
    unlucky = [row(one.end_s, one.user, one.nodes[0], bool(rng.random() < 0.05), one.job) for one in site(HOUR)]
    assert accused(unlucky) == ()


def test_forged_failures_of_one_user_accuse_no_node() -> None:
    forged = [row(HOUR - 1, "eve", "n3", True, f"j{k % 40}") for k in range(1000)]
    named = {one for each in accused([*site(HOUR), *forged]) for one in each.components}
    assert {tier for tier, _ in named} <= {"user", "code"}
    assert all(name.startswith("eve") for _, name in named)


def test_what_failed_lately_is_seen_though_it_did_well_before() -> None:
    before = site(0.3 * HOUR, each=12)
    after = site(HOUR, sick=3, each=1)
    (found,) = accused_by(HOUR, HOUR, [*before, *after])
    assert found.name == "n3"
    assert found.rate > 0.5  # of its latest attempts, not of the hour


def test_a_weak_suspect_is_named_at_its_second_window_and_a_strong_one_at_once() -> None:
    first = follow((), [accusation("n1"), accusation("n2", 100.0)], 300.0)
    assert [each.accusation.name for each in first.named] == ["n2"]
    second = follow(first.standing, [accusation("n1"), accusation("n2", 100.0)], 600.0)
    assert [each.accusation.name for each in second.named] == ["n1"]
    assert [(each.since_s, each.last_s) for each in second.standing] == [(300.0, 600.0)] * 2


def test_one_window_without_it_clears_nobody_and_three_do() -> None:
    turn = follow((), [accusation("n1", 100.0)], 0.0)
    for window in (1, 2):
        turn = follow(turn.standing, [], 300.0 * window)
        assert (len(turn.standing), turn.cleared, turn.named) == (1, (), ())
    turn = follow(turn.standing, [], 900.0)
    assert (turn.standing, [each.accusation.name for each in turn.cleared]) == ((), ["n1"])


def test_a_passing_shadow_is_never_named() -> None:
    turn = follow((), [accusation("n1")], 0.0)
    assert follow(turn.standing, [], 300.0).standing == ()


def test_a_class_that_gains_a_member_is_still_the_same_suspect() -> None:
    turn = follow((), [accusation("n1", 100.0)], 0.0)
    more = accusation("n1", 100.0, ("leaf", "l1"))
    again = follow(turn.standing, [more], 300.0)
    assert (again.named, again.cleared) == ((), ())
    assert again.standing[0].accusation == more


@given(st.lists(st.sets(st.sampled_from(["n1", "n2", "n3"])), max_size=30), st.integers(1, 3), st.integers(1, 4))
def test_each_name_is_called_and_cleared_in_turn(windows: list[Any], confirm: int, release: int) -> None:
    """Nobody is named twice without being cleared between; both take the windows in a row that they should."""
    standing: tuple[Standing, ...] = ()
    called, runs, absent = set(), {}, {}
    for number, names in enumerate(windows):
        turn = follow(standing, [accusation(name) for name in sorted(names)], number, SuspectPatience(confirm, release))
        standing = turn.standing
        runs = {name: runs.get(name, 0) + 1 for name in names}
        absent = {name: absent.get(name, 0) + 1 for name in called - names}
        for each in turn.cleared:
            assert each.accusation.name in called
            assert absent[each.accusation.name] == release
            called.discard(each.accusation.name)
        for each in turn.named:
            assert each.accusation.name not in called
            assert runs[each.accusation.name] >= confirm
            called.add(each.accusation.name)
        assert {each.accusation.name for each in standing if each.named} == called


@pytest.mark.parametrize("least", [0, 1])
def test_no_attempts_accuse_nobody(least: int) -> None:
    assert accused([row(1.0)] * least) == ()


def test_the_users_are_those_whose_attempts_failed() -> None:
    rows = site(HOUR, sick=3)
    sick = next(one for one in rows if one.failed)
    (found,) = accused([*rows, replace(sick, user="zoe", job="fine", failed=False)])
    assert found.users == 6


def test_a_node_without_a_mount_is_accused_and_no_user_is() -> None:
    """Four users whose files the node lost: the words are those of a mistake of their own, and all pass elsewhere."""
    rows = [row(float(n), f"u{n % 4}", f"n{3 + n % 2}", job=f"j{n % 4}") for n in range(0, 3000, 49)]
    lost = [(33, "u0"), (13, "u1"), (9, "u2"), (28, "u3")]
    for times, user in lost:
        rows += [
            replace(row(100.0 + 2800.0 * n / times, user, "n2", True, f"j{user[1:]}"), deterministic=True, lacked=True)
            for n in range(times)
        ]
    rows += [replace(row(50.0 + n, "u3", "n3", True, f"old{n}"), deterministic=True) for n in range(2)]
    named = {one for each in accused(rows) for one in each.components}
    assert ("node", "n2") in named
    assert not {name for tier, name in named if tier == "user"}
    mistakes = [replace(each, lacked=False) for each in rows]
    assert ("node", "n2") not in {one for each in accused(mistakes) for one in each.components}
