"""Doubly linked lists, against Python's."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.kernel import Records
from perdure.simulation.compiled.linked_lists import empty_chains, no_links
from tests.simulation.compiled.in_python import in_python

lists = in_python("linked_lists")
ROWS, CHAINS = 8, 2
STEPS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, CHAINS - 1), st.integers(0, ROWS)), max_size=40)


def walk(links: Records, chain: Any) -> list[int]:
    """From the first to the last; both directions agree."""
    found, row, before = [], int(chain.first), -1
    while row >= 0:
        assert links[row].before == before
        found.append(row)
        row, before = int(links[row].after), row
    assert chain.last == before
    return found


@settings(max_examples=40)
@given(STEPS)
def test_jobs_are_put_in_and_taken_out_anywhere(steps: list[tuple[int, int, int]]) -> None:
    links, chains, wanted = no_links(ROWS), empty_chains(CHAINS), [list[int]() for _ in range(CHAINS)]
    for row, chain, place in steps:
        at = next((i for i in range(CHAINS) if row in wanted[i]), None)
        if at is not None:
            lists.unlink(links, chains[at], row)
            wanted[at].remove(row)
        elif place >= len(wanted[chain]):
            lists.append(links, chains[chain], row)
            wanted[chain].append(row)
        else:
            lists.insert(links, chains[chain], wanted[chain][place - 1] if place else -1, row)
            wanted[chain].insert(place, row)
        assert [walk(links, each) for each in chains] == wanted


def test_a_walk_goes_on_from_a_job_that_it_took_out() -> None:
    links, chain, seen = no_links(4), empty_chains(1)[0], []
    for row in (2, 0, 3, 1):
        lists.append(links, chain, row)
    row = int(chain.first)
    while row >= 0:
        seen.append(row)
        lists.unlink(links, chain, row)
        row = int(links[row].after)
    assert seen == [2, 0, 3, 1]
    assert (chain.first, chain.last) == (-1, -1)
