"""The pages of exceptions in a browser: from the list to a journey, a note left there, every state in every look."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit
from tests.browser.test_pages_in_use import CONTRAST, NAMELESS
from tests.service.exceptions_world import STATES, Told, stir
from tests.service.web_world import Site, World

pytestmark = pytest.mark.browser

PATHS = ["/exceptions", *(f"/exceptions/{name}" for name in STATES)]


def test_one_gets_from_the_list_to_a_journey_and_leaves_a_note(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(stir)
    page = visit.page
    page.click(".nav a:has-text('Exceptions')")
    page.click("section:has(#open) a:has-text('Process failed: hang')")
    page.wait_for_selector(".stage-turn:has-text('trainer')")
    page.fill("input[name=value]", "looking at it")
    page.click("button:has-text('Annotate')")
    page.wait_for_selector(".toast:has-text('Noted: note')")
    page.wait_for_selector("section:has(#notes) code:has-text('looking at it')")
    assert page.input_value("input[name=value]") == ""
    assert [a.value for a in place.world.state.chain.find("mira+turn").annotations] == ["looking at it"]

    Told(place.world).answer("mira+turn", "trainer", "handled", "restarted the data loader")
    page.wait_for_selector(".stage-spoke:has-text('restarted the data loader')")
    page.click("a.quiet:has-text('job 400')")
    page.wait_for_selector("h1:has-text('gpt')")
    assert visit.hits() == []


def test_who_dealt_with_an_exception_closes_it_at_the_top_of_its_page(
    open_site: Callable[..., tuple[Site, Visit]],
) -> None:
    place, visit = open_site(lambda world: Told(world).raise_("odd", "app.nan"))
    page, path = visit.page, "/exceptions/odd"
    visit.go(path)
    assert page.evaluate("document.querySelector('#main h2').id") == "see-to-it"
    page.fill("input[name=note]", "swapped the card")
    with page.expect_response(lambda answer: answer.url.endswith(path)):
        pass  # a look for news leaves what was typed
    assert page.input_value("input[name=note]") == "swapped the card"
    page.click("section:has(#see-to-it) button:has-text('Close')")
    page.wait_for_selector(".toast:has-text('Closed')")
    page.wait_for_selector("section:has(#see-to-it)", state="detached")
    page.wait_for_selector("section:has(#notes) code:has-text('swapped the card')")
    record = place.world.state.chain.find("odd")
    (note,) = [note for note in record.annotations if note.key == "closed"]
    assert (note.value, record.outcome) == ("swapped the card", "closed")
    assert visit.hits() == []


def test_the_count_of_open_ones_follows_on_every_page(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(stir)
    visit.go("/jobs")
    count = visit.page.locator("#nav-exceptions")
    assert count.inner_text().split() == ["3", "open"]
    Told(place.world).answer("mira+turn", "trainer", "handled", "restarted the data loader")
    visit.page.wait_for_selector("#nav-exceptions:has-text('2')")
    assert visit.page.locator("#nav-exceptions").count() == 1
    assert visit.hits() == []


def test_a_list_is_searched_while_one_types(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(stir)
    visit.go("/exceptions")
    visit.page.type("input[name=type]", "app.nan", delay=10)
    visit.wait_for("document.querySelectorAll('section:has(#open) tbody tr').length === 1")
    visit.page.click(".tabs a:has-text('Open')")
    visit.page.wait_for_selector("section:has(#ended)", state="detached")
    assert visit.page.input_value("input[name=type]") == "app.nan"
    assert visit.hits() == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_every_state_can_be_read_and_nothing_overflows(
    open_site: Callable[..., tuple[Site, Visit]], width: int, scheme: str
) -> None:
    def long(world: World) -> None:
        stir(world)
        told = Told(world)
        told.raise_("x" * 200, "site." + "y" * 200, note="z" * 900, evidence=["w" * 900], resource="r" * 200)
        told.raise_("long", "site.n", node=["n" * 200], origin={"component": "c" * 200, "host": "h" * 200})
        told.enlist("p" * 120, "job", *(f"app.{number}" for number in range(40)))

    _, visit = open_site(long, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for path in [*PATHS, "/exceptions/" + "x" * 200, "/exceptions/long"]:
        visit.go(path)
        assert visit.page.evaluate(CONTRAST) == [], path
        assert visit.page.evaluate(NAMELESS) == [], path
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert visit.hits() == []
