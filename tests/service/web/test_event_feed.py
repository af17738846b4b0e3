"""What listeners hear: at every place that can be asked for, the very next events of the journal."""

from typing import Any

import pytest

from perdure.service.store.queries.events import EventRow
from perdure.service.store.queries.jobs import Owner
from perdure.service.web.api import event_feed
from perdure.service.web.api.event_feed import EventFeed
from tests.apart import run_apart

KEPT, BATCH = 8, 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "KEPT", KEPT)
    monkeypatch.setattr(event_feed, "BATCH", BATCH)


@pytest.mark.parametrize("count", range(5 * KEPT))
def test_after_every_place_comes_the_next_event_whether_it_is_kept_or_read_again(count: int) -> None:
    journal = [EventRow(seq, 1.0, "job_changed", "", {}) for seq in range(2, 2 * count + 2, 2)]  # others' between
    places = range(2 * count + 2)

    async def heard() -> list[Any]:
        feed = EventFeed(
            lambda after, most: [row for row in journal if row.seq > after][:most], lambda: 0, lambda _: {}, 0.001
        )
        await feed.enter()
        try:
            place = 0
            while place < 2 * count:  # until all is read
                place = max((item.row.seq for item in await feed.after(place, 1.0)), default=place)
            return [[item.row.seq for item in await feed.after(place, 0.0)] for place in places]
        finally:
            feed.leave()

    found = run_apart(heard())
    assert found == [[row.seq for row in journal if row.seq > place][:BATCH] for place in places]


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_event_from_before_an_id_was_given_out_again_is_not_its_new_owners(is_kept: bool) -> None:
    """Whoever owned the job then is not known any more."""
    journal = [EventRow(1, 5.0, "job_changed", "900", {}), EventRow(2, 15.0, "job_changed", "900", {})]

    async def heard() -> list[str]:
        feed = EventFeed(
            lambda after, most: [row for row in journal if row.seq > after][:most],
            lambda: 0 if is_kept else 2,
            lambda _: {"900": Owner("mira", 10.0)},
            0.001,
        )
        await feed.enter()
        try:
            found = list[str]()
            while len(found) < 2:
                found = [item.owner for item in await feed.after(0, 1.0)]
            return found
        finally:
            feed.leave()

    assert run_apart(heard()) == ["", "mira"]
