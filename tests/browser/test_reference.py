"""The page of the API in a real browser."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit
from tests.service.web_world import Site

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [360, 1400])
def test_a_link_to_a_form_opens_it_and_nothing_is_cut_off(
    open_site: Callable[..., tuple[Site, Visit]], width: int
) -> None:
    _, visit = open_site(viewport={"width": width, "height": 900})
    visit.page.click("[aria-label='API, for programs']")
    visit.wait_for("document.querySelectorAll('.api-operation').length > 40")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.click("#get-api-v1-jobs summary")
    link = visit.page.locator("#get-api-v1-jobs a[href='#model-Listing_JobItem_']")
    assert link.inner_text() == "Listing of JobItem"
    link.click()
    visit.wait_for("document.querySelector('#model-Listing_JobItem_').closest('details').open")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.hits() == []
