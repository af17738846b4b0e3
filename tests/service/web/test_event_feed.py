"""What listeners hear: at every place that can be asked for, the very next events of the journal."""

from typing import Any

import pytest

from perdure.service.store.queries.events import EventRow
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
