"""GPUs of nodes and who has them, against a dictionary of shares: what the docstring says is kept true at all times."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.gpu_places import COUNT, FIRST_FIT, LADDER, Places, empty_places, keep_off
from tests.simulation.compiled.in_python import in_python

kernels = in_python("gpu_places")
CLUSTER = Cluster.parse("3x4+2x8", rack_nodes=2)
NODES, JOBS = len(CLUSTER), 4
Held = dict[int, dict[int, int]]  # of each job: GPUs by node
STEPS = st.lists(
    st.tuples(st.sampled_from(["hold", "hold", "release", "lift", "put back", "forget"]), st.integers(0, JOBS - 1),
              st.integers(0, NODES - 1), st.integers(1, 8)),
    max_size=40,
)  # fmt: skip


def shares_of(places: Places, row: int) -> dict[int, int]:
    found, share = {}, int(places.holders[row].first)
    while share:
        found[int(places.shares[share].node)] = int(places.shares[share].gpus)
        share = int(places.shares[share].after)
    return found


def unused(places: Places) -> int:
    many, share = 0, int(places.tally[0].unused)
    while share < len(places.shares):
        many, share = many + 1, int(places.shares[share].after)
    return many


def check(places: Places, held: Held, lifted: set[int]) -> None:
    taken = np.zeros(NODES, np.int64)
    for row, shares in held.items():
        assert list(shares_of(places, row).items()) == list(shares.items())  # in the order in which they were given
        for node, gpus in shares.items():
            taken[node] += gpus * (row not in lifted)
    free, rack = places.nodes["free"], places.nodes["rack"]
    assert np.array_equal(free, CLUSTER.gpus - taken)
    check_counts(places)
    assert unused(places) == len(places.shares) - 1 - sum(map(len, held.values()))
    assert places.racks["gpus"].tolist() == [int(CLUSTER.gpus[rack == each].sum()) for each in range(len(places.racks))]


def check_counts(places: Places) -> None:
    """Levels, racks and the sum count what the nodes say."""
    free, rack = places.nodes["free"], places.nodes["rack"]
    for each, level in np.ndindex(places.levels.shape):
        there = np.flatnonzero((rack == each) & (free == level))
        assert places.levels["at_level"][each, level] == len(there)
        assert places.levels["lowest"][each, level] <= min(there, default=NODES)
    assert places.racks["free"].tolist() == [int(free[rack == each].sum()) for each in range(len(places.racks))]
    assert places.tally[0].total_free == free.sum()


@settings(max_examples=25)
@given(STEPS)
def test_shares_and_free_gpus_make_up_the_nodes_at_all_times(steps: list[tuple[str, int, int, int]]) -> None:
    places = empty_places(CLUSTER, LADDER, 5, JOBS)
    held: Held = {row: {} for row in range(JOBS)}
    lifted: set[int] = set()
    for what, row, node, gpus in steps:
        mine = held[row]
        if what == "hold" and row not in lifted and node not in mine and gpus <= places.nodes[node].free:
            kernels.hold(places, row, node, gpus)
            mine[node] = gpus
        elif what == "release" and mine and row not in lifted:
            assert kernels.release(places, row, sum(mine.values())) == next(iter(mine))
            held[row] = {}
        elif what == "lift" and mine and row not in lifted:
            kernels.lift(places, row, sum(mine.values()))
            lifted.add(row)
        elif what == "put back" and row in lifted:
            fits = all(places.nodes[at].free >= many for at, many in mine.items())
            assert kernels.put_back(places, row, sum(mine.values())) == fits
            lifted -= {row} if fits else set()
        elif what == "forget" and row in lifted:
            kernels.forget(places, row)
            held[row] = {}
            lifted.remove(row)
        check(places, held, lifted)
        assert kernels.has_node(places, row, node) == (node in held[row])


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 4)), max_size=25))
def test_the_lowest_node_of_a_level_is_found_whatever_changed(steps: list[tuple[int, int]]) -> None:
    places = empty_places(CLUSTER, LADDER, 5, JOBS)
    for node, free in steps:
        kernels.set_free(places, node, free)
        rack = int(places.nodes[node].rack)
        there = np.flatnonzero((places.nodes["rack"] == rack) & (places.nodes["free"] == free))
        assert kernels.lowest_at(places, rack, free) == there[0]
        check_counts(places)


@settings(max_examples=30)
@given(st.sets(st.integers(0, NODES - 1)), st.lists(st.integers(0, 4), min_size=NODES, max_size=NODES))
def test_nodes_that_a_job_is_kept_off_are_full_for_it_and_then_as_before(nodes: set[int], free: list[int]) -> None:
    places = keep_off(empty_places(CLUSTER, FIRST_FIT, 0, JOBS), 2, nodes)
    for node, many in enumerate(free):
        kernels.set_free(places, node, many)
    kernels.hide(places, 2)
    assert places.nodes["free"].tolist() == [0 if node in nodes else many for node, many in enumerate(free)]
    check_counts(places)
    kernels.show(places, 2)
    assert places.nodes["free"].tolist() == free
    check_counts(places)
    assert [kernels.is_kept_off(places, row) for row in range(JOBS)] == [False, False, bool(nodes), False]


def test_the_last_nodes_that_a_job_was_kept_off_alone_count() -> None:
    places = empty_places(CLUSTER, FIRST_FIT, 0, JOBS)
    for row, nodes in ((0, [1, 2, 3]), (1, [0]), (0, [4]), (1, [])):
        places = keep_off(places, row, nodes)
    kernels.hide(places, 0)
    assert places.nodes["free"].tolist() == [4, 4, 4, 8, 0]
    assert not kernels.is_kept_off(places, 1)


def test_where_gpus_are_only_counted_no_node_is_known() -> None:
    places = empty_places(CLUSTER, COUNT, 0, JOBS)
    assert kernels.put_back(places, 0, 27)
    assert not kernels.put_back(places, 1, 2)
    kernels.lift(places, 0, 20)
    kernels.forget(places, 0)
    assert kernels.release(places, 0, 7) == -1
    assert places.tally[0].total_free == CLUSTER.total_gpus == 28
    assert not kernels.is_kept_off(places, 0)
