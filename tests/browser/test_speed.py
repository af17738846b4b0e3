"""The page of training speed in a browser: the curve and the map, in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit
from tests.browser.test_accessibility import SPREAD, found_on
from tests.service.web_world import Site, World

pytestmark = pytest.mark.browser


def fill(world: World) -> None:
    world.submit("11")


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_the_form_asks_is_drawn_and_nothing_overflows(
    open_site: Callable[..., tuple[Site, Visit]], width: int, scheme: str
) -> None:
    _, visit = open_site(fill, viewport={"width": width, "height": 900}, color_scheme=scheme)
    visit.go("/speed")
    visit.page.select_option("select[name=model]", "vgg19")
    visit.page.fill("input[name=nodes]", "1,2,4,8,16,32")
    visit.page.click("button:has-text('Estimate')")
    visit.page.wait_for_selector("h2:has-text('Scaling of vgg19 on v100')")
    assert visit.page.locator("svg.speed-plot polyline.speed-line").count() == 2
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert found_on(visit, "/speed?model=vgg19&nodes=1,2,4,8,16,32") == []
    assert visit.page.evaluate(SPREAD) == []
    visit.page.fill("input[name=batch]", "many")
    visit.page.click("button:has-text('Estimate')")
    visit.page.wait_for_selector("strong:has-text('This cannot be estimated.')")
    assert visit.hits() == []
