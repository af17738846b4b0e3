"""Fair Tree on trees worked out by hand."""

from __future__ import annotations

from math import inf

import pytest

from perdure.scheduling.slurm.fair_tree import ShareTree, fair_shares, level_fs
from perdure.scheduling.slurm.usage import DecayedUsage, decay_of


def tree(*nodes: tuple[int, int, bool]) -> ShareTree:
    """From ``(parent, shares, is_user)`` of all nodes but the root."""
    parent, shares, is_user = zip((0, 1, False), *nodes, strict=True)
    return ShareTree(parent, shares, is_user)


def test_a_level_is_the_share_over_the_usage_among_siblings() -> None:
    found = level_fs(
        tree((0, 3, False), (0, 1, False), (1, 1, True), (1, 1, True), (2, 1, True)), [0, 0, 0, 30, 10, 10]
    )
    assert found[1:3] == pytest.approx([0.75 / 0.8, 0.25 / 0.2])
    assert found[3:] == pytest.approx([0.5 / 0.75, 0.5 / 0.25, 1.0])


def test_users_of_the_better_account_all_go_before_those_of_the_other() -> None:
    """Whatever they have used themselves: b1 has used most of all users."""
    siblings = tree((0, 1, False), (0, 9, False), (1, 1, True), (1, 1, True), (2, 1, True), (2, 1, True))
    assert fair_shares(siblings, [0, 0, 0, 10, 20, 50, 5])[3:] == [0.5, 0.25, 0.75, 1.0]


def test_users_with_the_same_level_share_the_higher_rank() -> None:
    assert fair_shares(tree((0, 1, True), (0, 1, True), (0, 1, True)), [0, 5, 5, 9])[1:] == [
        1.0,
        1.0,
        pytest.approx(1 / 3),
    ]


def test_accounts_with_the_same_level_are_taken_as_one() -> None:
    """Each account has used 10 of 20: their users are ranked together, by their levels within each."""
    siblings = tree((0, 1, False), (0, 1, False), (1, 1, True), (1, 1, True), (2, 1, True), (2, 1, True))
    assert fair_shares(siblings, [0, 0, 0, 2, 8, 4, 6])[3:] == [1.0, 0.25, 0.75, 0.5]


def test_who_has_used_nothing_is_first_and_who_has_no_share_last() -> None:
    nobody = tree((0, 1, True), (0, 1, True), (0, 0, True))
    assert level_fs(nobody, [0, 0, 4, 0])[1:] == [inf, 0.5, 0.0]
    assert fair_shares(nobody, [0, 0, 4, 0])[1:] == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]


def test_a_user_and_the_first_of_an_account_of_the_same_level_share_a_rank() -> None:
    mixed = tree((0, 1, False), (0, 1, True), (1, 1, True), (1, 1, True))
    assert fair_shares(mixed, [0, 0, 5, 1, 4])[2:] == [1.0, 1.0, pytest.approx(1 / 3)]


def test_usage_halves_in_a_half_life() -> None:
    assert decay_of(604_800, 604_800) == pytest.approx(0.5, abs=1e-3)
    assert decay_of(300, 0) == 1


def test_usage_is_what_was_held_up_to_the_last_calculation() -> None:
    usage = DecayedUsage(2, 100, 0.5)
    usage.hold(0, 4, 20)
    usage.hold(1, 1, 150)
    assert usage.used == [320.0, 0.0]
    usage.hold(0, -4, 210)
    usage.calculate(400)
    assert usage.used == [(320 / 2 + 400) / 4 + 40 / 2, 50 / 4 + 100 / 2 + 100]
