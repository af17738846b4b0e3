"""Laws of what is remembered of retries and troubles: each job, user and node has its own, at any hour."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.budget import earliest, room, standing
from perdure.retry.history import HOUR_S, Fleet, NodeTrouble, Spent
from perdure.retry.rules import RetryRules
from tests.copying import replace
from tests.laws.beside import MARK, Mine, as_other, together
from tests.laws.moved import Moved

NOW = 1_600_000_000.0
SHIFT_S = -7 * 24 * HOUR_S
RULES = RetryRules(per_user_per_hour=3, per_node_per_hour=2, cluster_floor_per_hour=10_000, user_share=1.0)
JOB = Job("sim", "4711001", "train", "ada", JobState.FAILED, NOW - 5000.0)
FAILED = Attempt(AttemptId("sim", "4711001", 1), AttemptState.FAILED, ("n1", "n2"), NOW - 500.0, NOW, user="ada")
quick = settings(max_examples=100, deadline=None)

instants = st.integers(-5000, 4000).map(lambda second: NOW + second)
spending = st.lists(
    st.builds(
        Spent,
        time_s=instants,
        job_id=st.sampled_from(("4711001", "4711002")),
        user=st.sampled_from(("ada", "bob")),
        nodes=st.sampled_from((("n1",), ("n2",), ("n3",), ("n1", "n3"))),
    ),
    max_size=8,
)
troubles = st.lists(
    st.tuples(
        st.sampled_from(("n1", "n2")),
        st.builds(
            NodeTrouble,
            time_s=instants,
            job_id=st.sampled_from(("4711001", "4711002")),
            user=st.sampled_from(("ada", "bob")),
            category=st.sampled_from(("gpu", "network")),
            witnessed=st.booleans(),
            shared=st.booleans(),
        ),
    ),
    max_size=8,
)


def spent_by(spending: Iterable[Spent]) -> Fleet:
    fleet = Fleet()
    for each in spending:
        fleet = fleet.with_spent(each, NOW)
    return fleet


def troubled(troubles: Sequence[tuple[str, NodeTrouble]]) -> Fleet:
    fleet = Fleet()
    for node, each in sorted(troubles, key=lambda pair: pair[1].time_s):
        fleet = fleet.with_trouble((node,), each, 86_400.0)
    return fleet


@quick
@given(spending, spending)
def test_what_one_has_spent_is_the_same_whatever_others_spend(mine: list[Spent], others: list[Spent]) -> None:
    alone = spent_by(mine)
    both = together(alone, spent_by(map(Moved(as_other), others)))
    keeps = Mine()
    for job_id in ("4711001", "4711002"):
        assert keeps(both.without_spent(job_id)).spent == alone.without_spent(job_id).spent
        left = both.without_spent(job_id).spent
        assert [each for each in left if MARK in each.user] == [each for each in both.spent if MARK in each.user]
    asked = partial(room, JOB, FAILED, rules=RULES, start_s=NOW, now=NOW)
    assert asked(fleet=both) == asked(fleet=alone)
    told = {each.name: each for each in standing(both, RULES, NOW) if each.of != "cluster"}
    assert {name: each for name, each in told.items() if MARK not in name} == {
        each.name: each for each in standing(alone, RULES, NOW) if each.of != "cluster"
    }


@quick
@given(spending)
def test_a_budget_is_the_same_a_week_later(mine: list[Spent]) -> None:
    moved = Moved(shift_s=SHIFT_S)
    found = room(JOB, FAILED, spent_by(mine), RULES, NOW, NOW)
    later = room(moved(JOB), moved(FAILED), moved(spent_by(mine)), RULES, NOW + SHIFT_S, NOW + SHIFT_S)
    assert (later.instant_s - SHIFT_S, later.waits_for) == found


seconds = st.lists(st.integers(0, 100).map(float), max_size=8)


@quick
@given(seconds, st.integers(1, 4), st.integers(0, 150).map(float))
def test_the_first_instant_with_room_is_the_first(wanted: list[float], limit: int, start_s: float) -> None:
    """By counting, in all windows of 30 s; what is 30 s old is out of them."""

    def fits(starts: list[Any]) -> bool:
        return all(sum(first <= each < first + 30.0 for each in starts) <= limit for first in starts)

    times = []
    for each in wanted:
        times += [each] if fits([*times, each]) else []
    at_s = earliest(sorted(times), limit, start_s, 30.0)
    assert at_s >= start_s
    assert fits([*times, at_s])
    assert not any(fits([*times, second]) for second in range(int(start_s), int(at_s)))


@quick
@given(troubles, troubles)
def test_a_node_is_suspected_for_what_happened_on_it(
    mine: list[tuple[str, NodeTrouble]], others: list[tuple[str, NodeTrouble]]
) -> None:
    alone, moved = troubled(mine), Moved(as_other)
    both = together(alone, troubled([(moved(node), moved(each)) for node, each in others]))
    assert {node for node in both.suspects(NOW, HOUR_S) if MARK not in node} == alone.suspects(NOW, HOUR_S)


@quick
@given(troubles)
def test_who_is_suspected_is_the_same_a_week_later(mine: list[tuple[str, NodeTrouble]]) -> None:
    moved = Moved(shift_s=SHIFT_S)
    assert moved(troubled(mine)).suspects(NOW + SHIFT_S, HOUR_S) == troubled(mine).suspects(NOW, HOUR_S)


def test_trouble_that_is_as_old_as_the_memory_is_forgotten() -> None:
    seen = NodeTrouble(NOW, "1", "ada", "gpu", witnessed=True)
    fleet = troubled([("n1", seen), ("n1", replace(seen, job_id="2"))])
    assert fleet.suspects(NOW + HOUR_S - 1, HOUR_S) == {"n1"}
    assert fleet.suspects(NOW + HOUR_S, HOUR_S) == frozenset()
