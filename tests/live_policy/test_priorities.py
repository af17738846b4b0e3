"""Changes of priorities: the wanted order is reached, by the fewest of them, and at nobody else's cost."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.live_policy.priorities import PriorityStanding, wanted_priorities

standings = st.lists(
    st.builds(
        lambda seen, lowered, submit_s, number: (seen, lowered, submit_s, number),
        st.integers(1, 30), st.integers(-5, 5), st.integers(0, 3), st.integers(1, 9),
    ),
    max_size=7,
).map(
    lambda found: [
        PriorityStanding(seen, max(1, seen + lowered), float(submit_s), 10 * number + at)
        for at, (seen, lowered, submit_s, number) in enumerate(found)
    ]
)  # fmt: skip


def is_in_order(jobs: list[PriorityStanding], priorities: list[int]) -> bool:
    """Whether a manager considers the jobs as they are given, by whichever of both rules it orders equals."""
    places = range(len(jobs))
    by_submit = sorted(places, key=lambda at: (-priorities[at], jobs[at].submit_s, jobs[at].number))
    by_number = sorted(places, key=lambda at: (-priorities[at], jobs[at].number))
    return by_submit == by_number == list(places)


def breaks(jobs: list[PriorityStanding]) -> int:
    pairs = pairwise(jobs)
    return sum(not (one.submit_s <= two.submit_s and one.number < two.number) for one, two in pairs)


def room(jobs: list[PriorityStanding]) -> int:
    """The highest priority that may be given."""
    return max(1 + breaks(jobs), *(job.base for job in jobs)) if jobs else 0


@given(standings)
def test_the_wanted_order_is_reached(jobs: list[PriorityStanding]) -> None:
    assert is_in_order(jobs, wanted_priorities(jobs))


@given(standings)
def test_no_job_rises_above_the_highest_base_nor_sinks_below_the_floor(jobs: list[PriorityStanding]) -> None:
    assert all(1 <= priority <= room(jobs) for priority in wanted_priorities(jobs))


@given(standings)
def test_a_second_time_nothing_changes(jobs: list[PriorityStanding]) -> None:
    first = wanted_priorities(jobs)
    again = [job._replace(seen=priority) for job, priority in zip(jobs, first, strict=True)]
    assert wanted_priorities(again) == first


def _can_keep(jobs: list[PriorityStanding], kept: tuple[int, ...]) -> bool:
    """Whether the others find places when these stay: the highest possible value for each job in turn."""
    high = room(jobs)
    for at, job in enumerate(jobs):
        before = jobs[at - 1] if at else None
        if before is not None and not (before.submit_s <= job.submit_s and before.number < job.number):
            high -= 1
        if at in kept:
            if job.seen > high:
                return False
            high = job.seen
        if high < 1:
            return False
    return True


@given(standings)
def test_no_fewer_changes_would_do(jobs: list[PriorityStanding]) -> None:
    changed = sum(job.seen != priority for job, priority in zip(jobs, wanted_priorities(jobs), strict=True))
    most = max(
        size
        for size in range(len(jobs) + 1)
        if any(_can_keep(jobs, kept) for kept in combinations(range(len(jobs)), size))
    )
    assert len(jobs) - most == changed


def test_of_jobs_that_came_in_the_wanted_order_equals_stay_equal() -> None:
    jobs = [PriorityStanding(100, 100, float(at), at) for at in range(1, 6)]
    assert wanted_priorities(jobs) == [100] * 5


def test_one_that_moves_goes_between_its_neighbours() -> None:
    first, last, moved = (PriorityStanding(*each) for each in ((90, 90, 0, 1), (10, 10, 2, 3), (5, 5, 1, 2)))
    assert wanted_priorities([first, moved, last]) == [90, 50, 10]


@pytest.mark.parametrize("n", [3, 50])
def test_where_the_floor_leaves_no_room_jobs_rise_by_no_more_than_they_have_to(n: int) -> None:
    jobs = [PriorityStanding(1, 1, float(n - at), n - at) for at in range(n)]
    assert wanted_priorities(jobs) == list(range(n, 0, -1))
