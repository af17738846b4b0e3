"""Jobs in levels: keys as the table of the docstring has them, lines by level and size, the last that runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.gpu_places import COUNT, empty_places
from perdure.simulation.compiled.levels import (
    ATTAINED,
    GITTINS,
    GPUS,
    REMAINING,
    REMAINING_SERVICE,
    Levels,
    Rules,
    levels_of,
)
from perdure.simulation.compiled.state import State, state_of
from perdure.simulation.workload import Workload
from tests.simulation.compiled.in_python import in_python
from tests.simulation.tables import jobs

kernels, running, indices = in_python("levels"), in_python("running_jobs"), in_python("gittins_indices")
WIDTHS = [1, 1, 2, 4, 1, 2, 8, 4]
N, TOTAL = len(WIDTHS), 64
STEPS, RANKS = np.array([3, 10, 24]), np.array([2, 0, 3, 1])
ROWS = st.integers(0, N - 1)


def world(rules: Rules) -> tuple[State, Levels]:
    """Jobs of these widths, of 100 ticks more one after another, none of which has come."""
    work = Workload.of(jobs(*((gpus, 0, 100 * (i + 1)) for i, gpus in enumerate(WIDTHS))))
    state = state_of(work, empty_places(Cluster.parse("8x8"), COUNT, 0, N), None)
    return state, levels_of(work, rules, TOTAL)


@pytest.mark.parametrize(
    ("rules", "waiting", "runs"),
    [
        (Rules(REMAINING), 400 - 30, 50 + 370),
        (Rules(REMAINING_SERVICE), 370 * 4, 50 + 370),
        (Rules(GPUS), 4, 4),
        (Rules(ATTAINED, limits=np.array([5, 9])), 2, 2),
        (Rules(GITTINS, limits=np.array([5, 9]), steps=STEPS, ranks=RANKS), 2 * 4 + 3, 2 * 4 + 3),
    ],
)
def test_keys_are_those_of_the_table(rules: Rules, waiting: int, runs: int) -> None:
    """Job 3, of 4 GPUs and 400 ticks, has run 30 of them, is on level 2, and has been served 4 ticks since the top."""
    state, levels = world(rules)
    state.tally[0].now, state.job[3].before = 50, 30
    levels.job[3].level, levels.job[3].served = 2, 4
    assert kernels.waiting_key(state, levels, 3) == waiting
    levels.order[3].key = kernels.running_key(state, levels, 3)
    assert levels.order[3].key == runs
    assert kernels.key_now(state, levels, 3) == waiting


@pytest.mark.parametrize("by", [REMAINING, REMAINING_SERVICE])
def test_the_key_of_a_job_that_runs_stands_still_and_means_what_is_left(by: int) -> None:
    state, levels = world(Rules(by))
    state.tally[0].now = state.job[2].resumed = 10
    levels.order[2].key = kernels.running_key(state, levels, 2)
    for now in (10, 11, 250):
        state.tally[0].now = now
        assert kernels.running_key(state, levels, 2) == levels.order[2].key
        assert kernels.key_now(state, levels, 2) == (310 - now) * (2 if by == REMAINING_SERVICE else 1)


def test_no_tick_of_service_is_counted_twice_and_none_while_a_job_restarts() -> None:
    state, levels = world(Rules(ATTAINED, widths=True))
    levels.job[3].counted = 5
    for now, served in ((5, 0), (9, 4), (9, 4), (12, 7)):
        state.tally[0].now = now
        kernels.count(state, levels, 3)
        assert (levels.job[3].served, kernels.service(state, levels, 3)) == (served, 4 * served)
    levels.job[3].counted = 20  # it works from then on
    kernels.count(state, levels, 3)
    assert (levels.job[3].served, levels.job[3].counted) == (7, 20)


@settings(max_examples=30)
@given(st.lists(st.tuples(ROWS, st.integers(0, 2), st.integers(0, 3)), max_size=20), st.sets(st.integers(0, 3)),
       st.integers(0, 9))  # fmt: skip
def test_the_first_of_a_level_is_the_least_of_those_that_may_start(
    steps: list[tuple[int, int, int]], closed: set[int], below: int
) -> None:
    _, levels = world(Rules(ATTAINED, limits=np.array([5, 9])))
    there: dict[int, tuple[int, int, int]] = {}  # level, key, label
    for label, (row, level, key) in enumerate(steps):
        if row in there:
            kernels.take_out(levels, row)
            del there[row]
        else:
            levels.job[row].level, levels.order[row].key, levels.order[row].label = level, key, label
            kernels.put_in_line(levels, row)
            there[row] = level, key, label
    levels.sizes["closed"][list(closed)] = True
    shut = set(levels.sizes["gpus"][list(closed)].tolist())
    for level in range(3):
        may = [
            row for row, (at, *_) in there.items() if at == level and WIDTHS[row] < below and WIDTHS[row] not in shut
        ]
        assert kernels.first_waiting(levels, level, below) == min(may, key=lambda row: there[row][1:], default=-1)


@settings(max_examples=30)
@given(st.sampled_from([REMAINING, REMAINING_SERVICE, GPUS]),
       st.lists(st.tuples(ROWS, st.integers(20, 26), st.booleans()), max_size=30), st.integers(0, 25))  # fmt: skip
def test_the_last_that_runs_is_the_greatest_at_this_instant(
    by: int, steps: list[tuple[int, int, bool]], now: int
) -> None:
    state, levels = world(Rules(by))
    state.tally[0].now = now
    there: dict[int, tuple[int, int]] = {}  # key as it comes to now, and label
    for label, (row, key, moves) in enumerate(steps):
        if row in there and moves:
            running.resort(levels, row, key)
            there[row] = int(kernels.key_now(state, levels, row)), there[row][1]
        elif row in there:
            running.withdraw(levels, row)
            del there[row]
        else:
            levels.order[row].key, levels.order[row].label = key, label
            running.enter(levels, row)
            there[row] = int(kernels.key_now(state, levels, row)), label
        assert running.last_running(state, levels) == max(there, key=lambda each: there[each], default=-1)
        check_places(levels, set(there), {each for each, *_ in steps[: label + 1]})


def test_the_last_entry_may_have_to_go_up_where_it_takes_the_place_of_one_that_left() -> None:
    """Below an early left branch leaves a job, and the last entry, of the late right branch, comes into its place."""
    state, levels = world(Rules(GPUS))
    for row, key in enumerate([100, 50, 90, 40, 30, 80, 70]):
        levels.order[row].key = key
        running.enter(levels, row)
    running.withdraw(levels, 3)
    check_places(levels, {0, 1, 2, 4, 5, 6}, {3})
    out = []
    while (row := int(running.last_running(state, levels))) >= 0:
        out.append(int(levels.order[row].key))
        running.withdraw(levels, row)
    assert out == [100, 90, 80, 70, 50, 30]


def check_places(levels: Levels, there: set[int], ran: set[int]) -> None:
    """Each class is a heap of its own size; each job in it knows its place, and those that ran before are out."""
    found = set()
    for one in levels.classes:
        rows = levels.running["row"][one.begin : one.begin + one.many].tolist()
        assert [int(levels.job[row].place) for row in rows] == list(range(one.many))
        assert levels.rules.by != REMAINING_SERVICE or len({WIDTHS[row] for row in rows}) <= 1
        assert all(running.precedes(levels.order, rows[i], rows[(i - 1) // 2]) for i in range(1, len(rows)))
        found |= set(rows)
    assert found == there
    assert {row for row in ran if running.is_out(levels, row)} == ran - there


@pytest.mark.parametrize(
    ("keys", "thens", "sank", "before"),
    [
        ((1, 2), (0, 0), True, True),
        ((2, 1), (0, 1), False, False),
        ((1, 1), (0, 1), True, True),
        ((1, 1), (1, 0), False, False),
        ((1, 1), (0, 0), False, True),  # no job is preempted for an equal one
        ((1, 1), (0, 0), True, False),  # unless it has come down in this pass
    ],
)
def test_who_runs_keeps_its_place_among_equals(
    keys: tuple[int, int], thens: tuple[int, int], sank: bool, before: bool
) -> None:
    state, levels = world(Rules(GPUS))
    levels.order["key"][:2], levels.order["then"][:2] = keys, thens
    levels.order[0].label, levels.tally[0].sunk = 7, 7 if sank else NEVER
    assert kernels.runs_before(state, levels, 0, 1) == before


@settings(max_examples=30)
@given(st.lists(st.tuples(ROWS, st.integers(0, 4)), max_size=25))
def test_indices_follow_the_service_of_the_jobs_that_run(steps: list[tuple[int, int]]) -> None:
    """Whoever comes, goes and comes again: after a refresh each key is that of the service up to now."""
    state, levels = world(Rules(GITTINS, widths=True, steps=STEPS, ranks=RANKS))
    served, since, now = [0] * N, dict[int, int](), 0
    for row, later in steps:
        state.tally[0].now = now = now + later
        if row in since:
            kernels.count(state, levels, row)
            served[row] += now - since.pop(row)
            running.withdraw(levels, row)
            indices.ignore(levels, row)
            assert levels.job[row].served == served[row]
        else:
            levels.job[row].counted = since[row] = now
            levels.order[row].key, levels.order[row].label = kernels.running_key(state, levels, row), now
            running.enter(levels, row)
            indices.watch(state, levels, row)
        indices.refresh(state, levels)
        assert levels.tally[0].watched == len(since)
        for each, began in since.items():
            reached = int(((served[each] + now - began) * WIDTHS[each] >= STEPS).sum())
            assert levels.order[each].key == RANKS[reached]
            assert levels.indices[levels.job[each].watched].row == each
            until = levels.indices[levels.job[each].watched].until
            assert until == NEVER if reached == len(STEPS) else now < until


def test_a_step_is_reached_at_the_tick_at_which_the_service_is_whole() -> None:
    """Of 4 GPUs from tick 10 on: 3 GPU-ticks are reached at 11, 10 at 13, 24 at 16."""
    state, levels = world(Rules(GITTINS, widths=True, steps=STEPS, ranks=RANKS))
    state.tally[0].now = levels.job[3].counted = 10
    levels.order[3].key = kernels.running_key(state, levels, 3)
    running.enter(levels, 3)
    indices.watch(state, levels, 3)
    seen = []
    for now in range(10, 18):
        state.tally[0].now = now
        indices.refresh(state, levels)
        seen.append(int(levels.order[3].key))
    assert seen == [2, 0, 0, 3, 3, 3, 1, 1]
