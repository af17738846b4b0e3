"""The workload keeps its promises: something to see at once, gentle arrivals, faults apart and fixed."""

from collections import Counter
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.demo.workload import (
    JITTER_S,
    LONG_RUN,
    ROUND_S,
    SCENARIOS,
    STRETCH,
    Arrival,
    End,
    PlannedFault,
    Timed,
    Truth,
    a_round,
    round_start_s,
)
from perdure.model.jobs import RetryPreference
from perdure.retry.rules import RetryRules

Round = tuple[int, tuple[Timed, ...]]
rounds = st.builds(
    lambda number, seed: (number, a_round(number, np.random.default_rng(seed))), st.integers(0, 50), st.integers(0, 99)
)
ALL = [step for scenario in SCENARIOS for step in scenario.steps]


def test_there_is_a_decision_to_be_made_at_once() -> None:
    first = [t for t in a_round(0, np.random.default_rng(0)) if t.at_s <= 3.0]
    assert sum(isinstance(t.step, Arrival) and t.step.truth is Truth.DETERMINISTIC for t in first) >= 3


def test_failures_of_many_kinds_beside_jobs_that_are_well() -> None:
    arrivals = [step for step in ALL if isinstance(step, Arrival)]
    assert len({a.category for a in arrivals if a.category}) >= 14
    assert {a.truth for a in arrivals} == set(Truth)
    assert len({a.user for a in arrivals}) == 4
    assert {a.end for a in arrivals if a.truth is Truth.TRANSIENT} == set(End), "an owner's refusal is among them"


def test_names_tell_jobs_apart() -> None:
    names = [step.name for step in ALL if isinstance(step, Arrival)]
    assert len(names) == len(set(names))


def test_every_program_exists_and_but_one_is_python() -> None:
    shipped = {f.name for f in resources.files("perdure.demo").joinpath("programs").iterdir() if f.is_file()}
    wanted = {step.program for step in ALL if isinstance(step, Arrival)} | {"mini.py"}
    assert {name.removesuffix(".txt") for name in shipped} == wanted
    for name in shipped:
        source = resources.files("perdure.demo").joinpath("programs", name).read_text()
        if name.endswith(".py"):
            compile(source, name, "exec")
        else:
            with pytest.raises(SyntaxError):
                compile(source, name, "exec")


@given(rounds)
def test_each_round_holds_every_step_once_within_its_time(told: Round) -> None:
    number, steps = told
    steps = tuple(timed for timed in steps if timed.step is not LONG_RUN)
    assert Counter(timed.step for timed in steps) == Counter(ALL)
    assert all(round_start_s(number) <= timed.at_s < round_start_s(number + 1) for timed in steps)
    assert [t.at_s for t in steps] == sorted(t.at_s for t in steps)


@given(rounds)
def test_a_scenario_stays_together(told: Round) -> None:
    for scenario in SCENARIOS:
        mine = [t for t in told[1] if t.step in scenario.steps]
        assert len({t.key for t in mine}) == 1
        starts = {round(t.at_s - t.step.after_s, 6) for t in mine}
        assert len(starts) == 1, "the steps keep their distance"
    assert len({t.key for t in told[1] if t.step is not LONG_RUN}) == len(SCENARIOS)


@given(rounds)
def test_later_rounds_take_their_scenarios_longer_apart_and_those_with_a_fault_in_their_places(told: Round) -> None:
    number, steps = told
    slower, jitter_s = (STRETCH, JITTER_S) if number else (1.0, 0.0)
    starts, places = [], []
    for scenario in SCENARIOS:
        first = next(timed for timed in steps if timed.step in scenario.steps)
        start_s = first.at_s - first.step.after_s - round_start_s(number)
        if scenario.faults:
            assert start_s == pytest.approx(slower * scenario.at_s)
        else:
            starts.append(start_s)
            places.append(slower * scenario.at_s)
    late_s = np.array(sorted(starts)) - np.array(sorted(places))
    assert late_s.min() >= -1e-6
    assert late_s.max() <= jitter_s + 1e-6


@given(rounds)
def test_something_runs_most_of_the_time_once_scenarios_are_rare(told: Round) -> None:
    number, steps = told
    starts = [timed.at_s for timed in steps if timed.step is LONG_RUN]
    runs_s = 440 * 0.5
    assert runs_s * len(starts) >= (0.9 * STRETCH * ROUND_S if number else 0)
    assert all(later - earlier > runs_s for earlier, later in pairwise(starts)), "one at a time"
    assert runs_s < LONG_RUN.walltime_s


@given(rounds)
def test_arrivals_are_gentle_after_the_first_moments(told: Round) -> None:
    instants = [t.at_s for t in told[1] if isinstance(t.step, Arrival)]
    assert max(sum(start <= t < start + 10 for t in instants) for start in instants) <= 9


@given(rounds)
def test_faults_are_mended_and_minutes_apart(told: Round) -> None:
    faults = [t for t in told[1] if isinstance(t.step, PlannedFault)]
    assert [t.step.what for t in faults] == ["fail", "return", "freeze", "thaw"]
    breaks = [t.at_s for t in faults if t.step.what in ("fail", "freeze")]
    assert all(later - earlier >= 120 for earlier, later in pairwise(breaks))


@given(st.integers(0, 9), st.integers(0, 9))
def test_one_seed_one_order(number: int, seed: int) -> None:
    assert a_round(number, np.random.default_rng(seed)) == a_round(number, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("truth", "may_requeue", "wish", "end"),
    [
        (Truth.GOOD, True, RetryPreference.AUTO, End.COMPLETED),
        (Truth.GOOD, False, RetryPreference.NEVER, End.COMPLETED),
        (Truth.DETERMINISTIC, True, RetryPreference.AUTO, End.STOPPED),
        (Truth.TRANSIENT, True, RetryPreference.AUTO, End.COMPLETED),
        (Truth.TRANSIENT, False, RetryPreference.AUTO, End.STOPPED),
        (Truth.TRANSIENT, True, RetryPreference.NEVER, End.STOPPED),
    ],
)
def test_what_should_become_of_a_job(truth: Truth, may_requeue: bool, wish: RetryPreference, end: End) -> None:
    assert Arrival(0, "a", "u", "p.py", truth, "", may_requeue=may_requeue, wish=wish).end is end


def test_an_hour_of_recoveries_is_within_the_clusters_allowance() -> None:
    """Whichever hour: the demonstration alone never uses up the retries of a small cluster."""
    rng = np.random.default_rng(0)
    retried = [
        timed.at_s
        for number in range(6)
        for timed in a_round(number, rng)
        if isinstance(timed.step, Arrival) and _is_recovered(timed.step)
    ]
    busiest = max(sum(start <= t < start + 3600 for t in retried) for start in retried)
    assert busiest <= RetryRules().cluster_floor_per_hour


def _is_recovered(arrival: Arrival) -> bool:
    """By Perdure; what is preempted goes back by the cluster's own hand."""
    return arrival.truth is Truth.TRANSIENT and arrival.end is End.COMPLETED and not arrival.preemptible
