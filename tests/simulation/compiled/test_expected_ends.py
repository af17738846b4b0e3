"""Ends that are expected, and the first reservation, against sorted lists and the plain scheduler."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.scheduling.backfill import reservation
from perdure.scheduling.view import View
from perdure.simulation.compiled.expected_ends import Agenda, empty_agenda
from tests.simulation.compiled.in_python import in_python

ends = in_python("expected_ends")
MOST = 12
ENDS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=MOST)


def agenda_of(found: list[tuple[int, int]]) -> Agenda:
    agenda = empty_agenda(MOST)
    for tick, gpus in found:
        ends.expect(agenda, tick, gpus)
    return agenda


def entries(agenda: Agenda) -> list[tuple[int, int]]:
    many = int(agenda.many[0])
    return list(zip(agenda.tick[:many].tolist(), agenda.gpus[:many].tolist(), strict=True))


@settings(max_examples=40)
@given(ENDS, st.data())
def test_ends_are_in_order_whatever_was_expected_and_struck(found: list[tuple[int, int]], data: st.DataObject) -> None:
    agenda = agenda_of(found)
    assert sorted(entries(agenda)) == sorted(found)
    there = list(found)
    while there:
        ticks = [tick for tick, _ in entries(agenda)]
        assert ticks == sorted(ticks)
        tick = data.draw(st.integers(-1, 10))
        assert ends.place_of_tick(agenda, tick) == sum(each < tick for each in ticks)
        gone = data.draw(st.sampled_from(there))
        ends.strike(agenda, *gone)
        there.remove(gone)
        assert sorted(entries(agenda)) == sorted(there)


@settings(max_examples=30)
@given(ENDS, st.integers(0, 9), st.integers(0, 3), st.data())
def test_the_reservation_is_that_of_the_plain_scheduler(
    found: list[tuple[int, int]], now: int, free: int, data: st.DataObject
) -> None:
    """Each end is that of a job that started at 0; some are overdue."""
    gpus = data.draw(st.integers(1, max(1, free + sum(each for _, each in found))))
    n = len(found)
    view = View([each for _, each in found], [0] * n, [max(1, tick) for tick, _ in found], [0] * n, [0] * n, [0] * n,
                ("",), ("",), 99, ticks_per_s=1)  # fmt: skip
    view.running, view.free_gpus, view.now = dict.fromkeys(range(n), 0), free, now
    agenda = agenda_of([(max(1, tick), each) for tick, each in found])
    assert ends.reservation(agenda, now, free, gpus) == reservation(view, gpus)


def test_ends_of_one_tick_come_free_together() -> None:
    agenda = agenda_of([(5, 2), (5, 1), (9, 4)])
    assert ends.reservation(agenda, 0, 1, 2) == (5, 2)
    assert ends.reservation(agenda, 0, 1, 5) == (9, 3)
    assert ends.reservation(agenda, 6, 0, 3) == (7, 0)  # overdue: at the next tick
