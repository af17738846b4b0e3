"""Fair Tree on arrays, against the plain form: factors are the same to the last bit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.scheduling.slurm.fair_tree import ShareTree, fair_shares
from perdure.scheduling.slurm.usage import DecayedUsage
from perdure.simulation.compiled.fair_shares import FairShares, fair_shares_of
from tests.simulation.compiled.in_python import in_python

kernels = in_python("fair_shares")
PERIOD, DECAY = 5, 0.75


@st.composite
def trees(draw: st.DrawFn) -> tuple[ShareTree, DecayedUsage]:
    """A few accounts, nested, with users among them and of few different shares and usages, so that levels tie."""
    parent, shares, is_user = [0], [1], [False]
    for node in range(1, draw(st.integers(2, 12))):
        accounts = [each for each in range(node) if not is_user[each]]
        parent.append(draw(st.sampled_from(accounts)))
        shares.append(draw(st.integers(0, 2)))
        is_user.append(draw(st.booleans()))
    is_user[-1] = True
    used = tuple(float(draw(st.sampled_from([0, 4, 8]))) if user else 0.0 for user in is_user)
    return ShareTree(tuple(parent), tuple(shares), tuple(is_user)), DecayedUsage(len(parent), PERIOD, DECAY, used)


def check(fair: FairShares, tree: ShareTree, usage: DecayedUsage) -> None:
    wanted = fair_shares(tree, usage.used)
    assert [float(fair.node[node].used) for node in range(len(wanted))] == usage.used
    users = [node for node, user in enumerate(tree.is_user) if user]
    assert [float(fair.node[node].factor) for node in users] == [wanted[node] for node in users]


@settings(max_examples=30)
@given(trees(), st.lists(st.tuples(st.integers(0, 11), st.integers(-2, 3), st.integers(0, 12)), max_size=12))
def test_factors_and_usage_are_those_of_the_plain_form(
    made: tuple[ShareTree, DecayedUsage], steps: list[tuple[int, int, int]]
) -> None:
    tree, usage = made
    fair, now = fair_shares_of(tree, usage), 0
    check(fair, tree, usage)
    users = [node for node, user in enumerate(tree.is_user) if user]
    for place, gpus, later in steps:
        now, user = now + later, users[place % len(users)]
        kernels.hold(fair, user, gpus, now)
        usage.hold(user, gpus, now)
        kernels.rank(fair, now)
        check(fair, tree, usage)


@settings(max_examples=30)
@given(trees(), st.integers(0, 30), st.integers(0, 30))
def test_to_start_counting_again_drops_what_was_used_and_keeps_what_is_held(
    made: tuple[ShareTree, DecayedUsage], first: int, later: int
) -> None:
    tree, usage = made
    fair, user = fair_shares_of(tree, usage), tree.is_user.index(True)
    kernels.hold(fair, user, 3, 2)
    usage.hold(user, 3, 2)
    kernels.add_up(fair, 2 + first)
    kernels.count_from(fair, 2 + first)
    usage.count_from(2 + first)
    kernels.rank(fair, 2 + first + later)
    usage.calculate(2 + first + later)
    check(fair, tree, usage)


def test_two_gpus_held_for_two_periods_decay_once() -> None:
    tree = ShareTree((0, 0, 0), (1, 1, 1), (False, True, True))
    fair = fair_shares_of(tree, DecayedUsage(3, PERIOD, DECAY))
    kernels.hold(fair, 1, 2, 0)
    kernels.rank(fair, 11)
    assert float(fair.node[1].used) == 10 * DECAY + 10  # the eleventh tick counts from the next calculation on
    assert [float(fair.node[user].factor) for user in (1, 2)] == [0.5, 1.0]
    assert (fair.tally[0].calculated, fair.node[1].added) == (10, 0)


def test_where_no_priority_depends_on_them_there_are_no_shares() -> None:
    assert len(fair_shares_of(ShareTree((0,), (1,), (False,)), None).node) == 0
