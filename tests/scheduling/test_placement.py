"""Where gangs get their GPUs, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.consolidate import Consolidate
from perdure.scheduling.placement.ladder import Ladder
from perdure.scheduling.placement.nodes import Ask, Nodes, has_place, tightest
from perdure.scheduling.placement.placed import Placed, PlacementError
from perdure.scheduling.placement.registry import PLACEMENTS, placement_named
from perdure.scheduling.placement.room import Shares


def nodes(*free: int, racks: tuple[int, ...] = (), size: int = 8) -> Nodes:
    return Nodes([size] * len(free), list(free), list(racks) or [0] * len(free))


CONSOLIDATED = [
    (3, (8, 4, 3, 3), ((2, 3),)),  # the fewest free that hold it, the lowest
    (5, (4, 4, 4), None),  # never split if it fits on one node
    (16, (8, 3, 8, 8), ((0, 8), (2, 8))),  # whole nodes, the lowest
    (16, (8, 7, 7), None),
    (12, (8, 4, 8, 6), ((0, 8), (2, 4))),  # the rest goes to the next emptiest node, not the tightest
    (12, (8, 4, 6), ((0, 8), (2, 4))),
    (12, (8, 3, 2), None),
]


@pytest.mark.parametrize(("gpus", "free", "wanted"), CONSOLIDATED)
def test_consolidation_as_in_helios(gpus: int, free: tuple[int, ...], wanted: Shares | None) -> None:
    assert Consolidate().choose(nodes(*free), Ask(0, gpus, 0, 0)) == wanted


LADDER = [
    (4, 0, (8, 4, 8, 8), (0, 0, 1, 1), ((1, 4),)),  # the fullest rack that holds it, in it the fullest node
    (6, 0, (4, 4, 4, 4), (0, 0, 1, 1), None),
    (6, 1, (4, 4, 3, 4), (0, 0, 1, 1), ((3, 4), (2, 2))),  # one rack, any nodes
    (12, 1, (4, 4, 4, 4), (0, 0, 1, 1), None),
    (12, 2, (4, 4, 4, 4), (0, 0, 1, 1), ((0, 4), (1, 4), (2, 4))),  # anywhere
    (12, 0, (8, 4, 8, 8), (0, 0, 1, 1), ((0, 8), (1, 4))),
]


@pytest.mark.parametrize(("gpus", "rung", "free", "racks", "wanted"), LADDER)
def test_the_ladder_relaxes_rung_by_rung(
    gpus: int, rung: int, free: tuple[int, ...], racks: tuple[int, ...], wanted: Shares | None
) -> None:
    assert Ladder().choose(nodes(*free, racks=racks), Ask(0, gpus, rung, 0)) == wanted


@pytest.mark.parametrize(("relax_s", "ticks"), [(0.01, [1, 2]), (2.0, [2, 4])])
def test_a_rung_lasts_a_tick_at_least(relax_s: float, ticks: list[int]) -> None:
    room = Placed.on(Cluster.parse("2x8/1"), Ladder(relax_s), ticks_per_s=1)
    assert [room.take(row, 6, 0) for row in (0, 1)] == [True, True]
    assert not room.take(2, 4, 0)
    assert [tick for tick, _, _ in sorted(room.timers)] == ticks
    assert not room.take(2, 4, ticks[1] - 1)
    assert room.take(2, 4, ticks[1])  # anywhere


@pytest.mark.parametrize("spreads", [False, True])
def test_a_gang_for_one_large_node_waits_before_it_takes_several_small_ones(spreads: bool) -> None:
    mixed = Nodes([8, 2, 2, 2, 2], [6, 2, 2, 2, 2], [0, 1, 1, 1, 1])
    ladder = Ladder(spreads=spreads)
    assert ladder.choose(mixed, Ask(0, 8, 0, 0)) is None
    assert ladder.choose(mixed, Ask(0, 8, 1, 0)) == ((1, 2), (2, 2), (3, 2), (4, 2))
    assert ladder.choose(mixed, Ask(0, 6, 0, 0)) == ((0, 6),)
    assert ladder.choose(mixed, Ask(0, 2, 0, 0)) == (((1, 2),) if spreads else ((0, 2),))


SPREAD = [
    (4, 0, (8, 4, 8, 8), (0, 0, 1, 1), ((2, 4),)),  # the emptiest rack, in it the emptiest node
    (1, 0, (7, 8, 8, 6, 8, 8), (0, 0, 0, 0, 1, 1), ((4, 1),)),  # by the share that is free, not by the number
    (12, 0, (8, 4, 8, 8), (0, 0, 1, 1), ((2, 8), (3, 4))),
    (6, 1, (4, 4, 3, 4), (0, 0, 1, 1), ((0, 4), (1, 2))),
]


@pytest.mark.parametrize(("gpus", "rung", "free", "racks", "wanted"), SPREAD)
def test_the_spread_ladder_tries_the_emptiest_first(
    gpus: int, rung: int, free: tuple[int, ...], racks: tuple[int, ...], wanted: Shares | None
) -> None:
    assert Ladder(spreads=True).choose(nodes(*free, racks=racks), Ask(0, gpus, rung, 0)) == wanted


def test_a_refused_gang_climbs_while_it_waits() -> None:
    room = Placed.on(Cluster.parse("2x8"), Ladder(relax_s=100.0), ticks_per_s=1)
    assert room.take(0, 4, 0)
    assert room.take(1, 5, 0)
    assert not room.take(2, 6, 10)  # 4 and 3 are free
    assert room.next_change(10) == 110
    assert not room.take(2, 6, 109)
    assert room.take(2, 6, 110)
    assert room.held[2] == ((0, 4), (1, 2))


@pytest.mark.parametrize("name", PLACEMENTS)
@given(gpus=st.integers(1, 16), avoided=st.sets(st.integers(0, 3)), busy=st.lists(st.integers(1, 8), max_size=3))
def test_a_gang_is_kept_off_nodes_as_long_as_it_then_has_a_place(
    name: str, gpus: int, avoided: set[int], busy: list[int]
) -> None:
    placement = placement_named(name, 3)
    assert placement is not None
    room = Placed.on(Cluster.parse("2x4+2x8"), placement, ticks_per_s=1)
    for row, width in enumerate(busy, 10):
        room.take(row, width, 0)
    room.avoid(0, gpus, avoided)
    kept_off = room.avoided.get(0, frozenset())
    empty = Nodes([4, 4, 8, 8], [4, 4, 8, 8], [0] * 4)
    assert kept_off == (avoided if has_place(placement, empty, Ask(0, gpus, 0, 0), avoided) else set())
    if room.take(0, gpus, 0):
        assert not kept_off & {node for node, _ in room.held[0]}
        assert sum(width for _, width in room.held[0]) == gpus


def test_what_a_job_avoids_adds_up_until_no_place_is_left() -> None:
    room = Placed.on(Cluster.parse("3x8"), Consolidate(), ticks_per_s=1)
    for nodes in ((0,), (2,), (1,)):
        room.avoid(5, 8, nodes)
    assert room.avoided[5] == {0, 2}
    assert room.take(5, 8, 0)
    assert room.held[5] == ((1, 8),)
    assert room.take(6, 8, 0)
    assert room.held[6] == ((0, 8),)  # nobody else is kept off them


def test_a_gang_may_be_kept_off_nodes_that_leave_it_a_place_on_the_last_rung_only() -> None:
    room = Placed.on(Cluster.parse("4x4", rack_nodes=2), Ladder(relax_s=10.0), ticks_per_s=1)
    room.avoid(0, 8, (0, 2))
    assert room.avoided[0] == {0, 2}
    assert not room.take(0, 8, 0)
    assert not room.take(0, 8, 19)
    assert room.take(0, 8, 20)
    assert {node for node, _ in room.held[0]} == {1, 3}


def test_a_placement_that_takes_what_is_not_free_is_named() -> None:
    class Greedy(Consolidate):
        def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
            return ((0, ask.gpus),)

    room = Placed.on(Cluster.parse("2x8"), Greedy(), ticks_per_s=1)
    with pytest.raises(PlacementError, match=r"consolidate.*row 3"):
        room.take(3, 9, 0)


def test_a_ladder_waits_on_each_rung_for_as_long_as_it_is_told() -> None:
    assert [placement_named(name).relax_s for name in ("ladder:60", "spread-ladder:90")] == [60.0, 90.0]
    assert placement_named("ladder").relax_s == placement_named("spread-ladder").relax_s == Ladder().relax_s


def test_of_equally_tight_nodes_the_first_is_taken() -> None:
    assert tightest([8, 4, 4, 6], 3) == 1


def test_enough_gpus_are_no_place_where_they_lie_apart() -> None:
    apart = nodes(8, 4, 4)
    assert not has_place(Consolidate(), apart, Ask(0, 16, 0, 0))
    assert has_place(Consolidate(), apart, Ask(0, 12, 0, 0))
    assert not has_place(Consolidate(), apart, Ask(0, 12, 0, 0), barred=(0,))


@pytest.mark.parametrize("text", ["tightest", "best-fit:3", "skew:2", "ladder:soon"])
def test_unknown_placements_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        placement_named(text)


def test_a_gang_without_any_place_is_named() -> None:
    from perdure.simulation.simulate import simulate
    from tests.simulation.tables import jobs

    with pytest.raises(InputError, match="job j1"):
        simulate(jobs((1, 0, 1), (9, 0, 1)), Cluster.parse("1x8"), "fifo")
    mixed = Cluster(np.array([8, 4, 4]))
    assert simulate(jobs((16, 0, 1)), mixed, "fifo").end_s[0] == 1
    with pytest.raises(InputError, match="no place"):
        simulate(jobs((16, 0, 1)), mixed, "fifo", "consolidate")
