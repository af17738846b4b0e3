"""Whole chains, and links that die early: sums and bounds on waits that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perdure.studies.successor_chains import _best_row, _played, dying_links, whole_chains
from perdure.succession.episode import Links
from perdure.succession.protocol import Decision
from perdure.succession.wait_table import SuccessorWaits
from tests.studies.test_successors import OPTIONS, drawn_cell, remember

HOUR_S = 3600.0


@pytest.fixture
def links() -> Links:
    """Links of ten hours on a grid of one; every successor waits for three hours."""
    instants = np.arange(1e9, 1e9 + 100 * HOUR_S, HOUR_S, dtype=np.float64)
    return Links.of(SuccessorWaits(instants, np.full((100, 1), 3 * HOUR_S)), 0, 10 * HOUR_S, HOUR_S)


def test_a_chain_goes_from_start_to_start_and_its_handovers_add_up(links: Links) -> None:
    reactive = _played(links, 0, 4, lambda first: first + links.length)
    assert reactive == [(3 * HOUR_S, 0.0)] * 3
    early = _played(links, 0, 4, lambda first: first + 5)
    assert early == [(0.0, 2 * HOUR_S)] * 3
    assert _played(links, 0, 4, lambda first: _best_row(links, first)) == [(0.0, 0.0)] * 3


def test_a_chain_that_does_not_end_within_the_trace_is_left_out(links: Links) -> None:
    ends = 99 - 3 * 13 - 10  # three reactive links and the last
    assert _played(links, ends, 4, lambda first: first + links.length) is not None
    assert _played(links, ends + 1, 4, lambda first: first + links.length) is None


def test_a_link_that_dies_ends_then_and_nobody_submits_later(links: Links) -> None:
    dying = links.dying(np.random.default_rng(0))
    assert (dying.last > dying.first).all()
    assert (dying.last < dying.first + dying.length).all()
    late = dying.submitting(dying.last)
    assert np.array_equal(late.interruption_s, np.full(len(dying.first), 3 * HOUR_S))
    best = dying.oracle(0.25)
    assert (best.submitted_s <= dying.truth.instants_s[dying.last]).all()
    lived_s = (dying.last - dying.first) * HOUR_S
    assert np.array_equal(best.interruption_s, np.maximum(0.0, 3 * HOUR_S - lived_s))


def test_a_planner_does_not_foresee_the_death(links: Links) -> None:
    class Asked:
        name = "asked"
        seen: list[float] = []  # noqa: RUF012

        def decide(self, view: Any) -> Decision:
            self.seen.append(view.link_ends - view.link_started)
            from perdure.succession.protocol import Decision

            return Decision(False, view.link_ends, "it waits")

    from perdure.succession.queue_state import NAMES
    from perdure.succession.sightings import Sightings, Terms

    nothing: list[tuple[()]] = [()] * 100
    seen = Sightings(links.truth.instants_s, [None] * 100, nothing, nothing, [(0.0,) * len(NAMES)] * 100)
    dying = links.dying(np.random.default_rng(0))
    done = dying.played_by(Asked(), seen, Terms())
    assert set(Asked.seen) == {10 * HOUR_S}
    assert np.array_equal(done.submitted_s, dying.truth.instants_s[dying.last])


def test_whole_chains_and_deaths_of_a_cell_lie_between_the_reactive_planner_and_the_oracle() -> None:
    cell = drawn_cell()
    chains = {(each.planner, each.model): each for each in whole_chains(cell, 0, OPTIONS, remember, 3)}
    assert set(chains) == {(name, "true") for name in OPTIONS.planners} | {("conformal", "wrong"), ("oracle", "")}
    assert chains["reactive", "true"].gap.mean == 0
    assert chains["oracle", ""].gap.mean == 1
    assert chains["reactive", "true"].overlap_h.mean == 0
    assert len({each.episodes for each in chains.values()}) == 1
    deaths = list(dying_links(cell, 0, OPTIONS, remember))
    assert {each.planner for each in deaths} == set(OPTIONS.planners)
    assert all(each.gap.mean <= 1 + 1e-9 and 0 <= each.seamless <= 1 for each in deaths)
