"""The pages of chains in a browser: the time line and its fan, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Visit
from tests.browser.test_accessibility import SPREAD, found_on
from tests.service.waits_world import waiting, watched
from tests.service.web.test_chains import TAG, chain
from tests.service.web_world import Site

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chain_has_a_time_line_and_nothing_overflows(
    open_site: Callable[..., tuple[Site, Visit]], tmp_path: Path, width: int, scheme: str
) -> None:
    place, visit = open_site(chain, viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched(place, tmp_path, waiting("304", place.world.now, 2))
    visit.page.click(".nav a:has-text('Chains')")
    visit.page.wait_for_selector("td[data-label='Chain']")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert found_on(visit, "/chains") == []
    assert visit.page.evaluate(SPREAD) == []
    if folder := os.environ.get("SHOTS"):
        visit.page.screenshot(path=f"{folder}/chains-{width}-{scheme}.png", full_page=True)
    visit.page.click("td[data-label='Chain'] a")
    visit.page.wait_for_selector("svg.chain-bar .fan-median")
    assert visit.page.locator("svg.chain-bar").count() == 4
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("SHOTS"):
        visit.page.screenshot(path=f"{folder}/chain-{width}-{scheme}.png", full_page=True)
    assert found_on(visit, f"/chains/mira/{TAG}") == []
    assert visit.page.evaluate(SPREAD) == []
    assert visit.hits() == []
