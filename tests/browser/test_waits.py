"""The page of waiting jobs in a browser: bars, the plot of promised and kept, in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.service.waits.promise_store import PromiseStore
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS
from tests.browser.conftest import Visit
from tests.browser.test_accessibility import SPREAD, found_on
from tests.service.waits_world import watched
from tests.service.web_world import Site, World

pytestmark = pytest.mark.browser


def fill(world: World) -> None:
    world.submit("11")


def kept(world: World, store: PromiseStore) -> None:
    """Thirty jobs were promised a start within an hour, and started one after the other."""
    waits = tuple(3600.0 * level for level in LEVELS)
    jobs = [str(number) for number in range(200, 230)]
    store.note([Promise(job_id, world.now, waits) for job_id in jobs], world.now)
    for job_id in jobs:
        world.submit(job_id, look=False)
        world.pass_time(120)
        world.start(job_id, "gpu01")
    world.look()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_waiting_jobs_have_bars_and_nothing_overflows(
    open_site: Callable[..., tuple[Site, Visit]], tmp_path: Path, width: int, scheme: str
) -> None:
    place, visit = open_site(fill, viewport={"width": width, "height": 900}, color_scheme=scheme)
    watch = watched(place, tmp_path)
    kept(place.world, watch._store)
    watch.turn()
    visit.page.click(".nav a:has-text('Waits')")
    visit.page.wait_for_selector("svg.fan")
    assert visit.page.locator("svg.fan").count() == 3
    assert visit.page.locator("svg.kept-plot .kept-point").count() == len(LEVELS)
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert found_on(visit, "/waits") == []
    assert visit.page.evaluate(SPREAD) == []
    visit.page.click("a.sort:has-text('Starts about')")
    visit.page.wait_for_selector("th[aria-sort='ascending']")
    visit.page.click("td a:has-text('11')")
    visit.page.wait_for_selector("dt:has-text('Starts')")
    assert found_on(visit, "/jobs/11") == []
    assert visit.hits() == []
