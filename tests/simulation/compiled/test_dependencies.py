"""Jobs that wait for others: when each kind of dependency is met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.scheduling.asks import After, Needs
from perdure.simulation.compiled.dependencies import Dependencies, dependencies_of
from perdure.simulation.compiled.gpu_places import COUNT, empty_places
from perdure.simulation.compiled.kernel import FLAG, Records, records
from perdure.simulation.compiled.state import State, state_of
from perdure.simulation.workload import Workload
from tests.simulation.compiled.in_python import in_python
from tests.simulation.tables import jobs, with_attempts

kernels, heap = in_python("dependencies"), in_python("event_heap")
N = 6
STATES = (
    "has not come",
    "waits",
    "runs",
    "waits again",
    "runs again",
    "comes back",
    "is over, well",
    "is over, failed",
)
OVER = STATES[-2:]


@dataclass(frozen=True)
class Part:
    """What the kernels read of the policy's part."""

    dependencies: Dependencies
    job: Records


def world(needs: list[tuple[int, int, After]], states: dict[int, str]) -> tuple[State, Part]:
    """Jobs in these states; each has a failed attempt and one that passes."""
    rows = [(1, 0, 5)] * N
    work = Workload.of(jobs(*rows, attempts=with_attempts(jobs(*rows), [[(2, False), (3, True)]] * N)))
    state = state_of(work, empty_places(Cluster.parse("1x8"), COUNT, 0, N), None)
    of, on, kind = np.array(needs, np.int64).reshape(-1, 3).T
    part = Part(dependencies_of(Needs(of, on, kind.astype(np.int8)), N), records(N, waits=FLAG))
    for row, what in states.items():
        job = state.job[row]
        job.tried = 0 if what in STATES[:3] else 1
        job.resumed = 4 if what.startswith("runs") else -1
        job.record = 2 * row + (what == "is over, well")
        part.job[row].waits = what.startswith("waits")
        if what == "comes back":
            heap.push(state.returns, row, 9)
    return state, part


@pytest.mark.parametrize("what", STATES)
@pytest.mark.parametrize("kind", After)
def test_a_dependency_is_met_by_what_became_of_the_other(kind: After, what: str) -> None:
    state, part = world([(1, 0, kind)], {0: what})
    met = {
        After.ANY: what in OVER,
        After.SINGLETON: what in OVER,
        After.OK: what == "is over, well",
        After.NOTOK: what == "is over, failed",
        After.START: what.startswith("runs") or what in OVER,
    }
    assert kernels.is_met(state, part, 1) == met[kind]
    assert [kernels.depends(part.dependencies, row) for row in range(3)] == [False, True, False]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1), st.sampled_from(After)), max_size=10),
       st.dictionaries(st.integers(0, N - 1), st.sampled_from(STATES)), st.permutations(range(N)))  # fmt: skip
def test_jobs_are_let_go_in_the_order_in_which_they_came(
    needs: list[tuple[int, int, After]], states: dict[int, str], came: list[int]
) -> None:
    state, part = world(needs, states)
    deferred = [row for row in came if kernels.depends(part.dependencies, row)]
    assert set(deferred) == {of for of, _, _ in needs}
    for row in deferred:
        kernels.defer(part.dependencies, row)
    met, place = [], 0
    while True:
        row, place = kernels.next_met(state, part, place)
        if row < 0:
            break
        met.append(int(row))
    alone = [
        all(kernels.is_met(*world([need], states), need[0]) for need in needs if need[0] == row) for row in range(N)
    ]
    assert met == [row for row in deferred if alone[row]]  # each of its needs is met
    many = int(part.dependencies.many[0])
    assert part.dependencies.unmet[:many].tolist() == [row for row in deferred if not alone[row]]


def test_jobs_one_behind_another_are_let_go_together() -> None:
    needs = [(row, 0 if row != 3 else 5, After.ANY) for row in (1, 2, 3, 4)]
    state, part = world(needs, {0: OVER[0]})
    for row in (4, 2, 3, 1):
        kernels.defer(part.dependencies, row)
    assert [kernels.next_met(state, part, place) for place in (0, 0, 0, 1)] == [(4, 0), (2, 0), (1, 1), (-1, 1)]
    assert part.dependencies.unmet[: part.dependencies.many[0]].tolist() == [3]


def test_where_no_job_depends_on_another_nobody_is_asked() -> None:
    assert not kernels.depends(dependencies_of(None, 3), 2)
