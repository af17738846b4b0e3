"""A thousand strings that try to become code, through everything that others write, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from perdure.model.clean_text import clean
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core.messages import Judged
from perdure.service.web.pages.labels import job_name, shown
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict
from tests.browser.conftest import Visit
from tests.browser.hostile import hostile
from tests.copying import replace
from tests.service.exceptions_world import ROOT, Told
from tests.service.web_world import Site, World

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

STRINGS = hostile()
OWN_TAGS = "script:not([src]), style, iframe, object, embed, base, template, math, video, img"

# What of the page is not of our making: code in attributes, elements that we do not use, addresses of others.
FOREIGN = """(own) => {
  const found = [];
  for (const element of document.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on") || name.startsWith("hx-on")) found.push(`${element.tagName} ${name}`);
      if (/^(href|src|action|hx-get|hx-post)$/.test(name) && !/^[/#]/.test(value)) found.push(`${name}=${value}`);
    }
  }
  for (const element of document.querySelectorAll(own)) found.push(element.tagName);
  return found;
}"""


def swap(page: Page) -> None:
    """The same again the other way that text gets into a page: fetched and morphed by htmx."""
    page.evaluate("htmx.ajax('GET', location.pathname + location.search, {target: '#live', swap: 'outerMorph'})")


def assert_untouched(visit: Visit) -> None:
    assert visit.hits() == []
    assert visit.page.evaluate(FOREIGN, OWN_TAGS) == []
    assert "Perdure" in visit.page.title()


def texts(page: Page, selector: str) -> list[str]:
    return page.eval_on_selector_all(selector, "found => found.map(one => one.textContent)")


def plain(text: str) -> str:
    return shown(clean(text)).replace("\r", "\n")


def pages_of(visit: Visit, path: str, next_link: str) -> int:
    """Walk through a listing from page to page, looking at each; returns how many there were."""
    visit.go(path)
    count = 0
    while True:
        if count % 5 == 0:
            swap(visit.page)
        assert_untouched(visit)
        count += 1
        onward = visit.page.locator(next_link)
        if not onward.count():
            return count
        visit.go(onward.get_attribute("href") or "")


def test_the_strings_are_a_thousand_different_ones() -> None:
    assert len(set(STRINGS)) == 1000


def test_the_watch_would_see_code_that_tries_to_run(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site()
    visit.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')")
    visit.wait_for("window.__hits.length > 0")
    assert any("script-src" in hit for hit in visit.hits())
    assert visit.page.evaluate(FOREIGN, OWN_TAGS)


def test_job_names_users_and_reasons_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for number, text in enumerate(STRINGS):
            world.submit(str(number), look=False)
            job = world.jobs[str(number)]
            world.jobs[str(number)] = replace(job, name=text, user=text[:40], partition=text, reason=text)
        world.look()

    _, visit = open_site(fill)
    visit.go("/jobs")
    assert texts(visit.page, ".job-name") == [job_name(plain(text)) for text in STRINGS[:-51:-1]]
    assert pages_of(visit, "/jobs", ".pager a:has-text('More')") == 20
    visit.go("/")
    swap(visit.page)
    assert_untouched(visit)
    for number in range(0, 1000, 97):
        visit.go(f"/jobs/{number}")
        assert texts(visit.page, "h1") == [job_name(plain(STRINGS[number]))]
        assert_untouched(visit)


def test_logs_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for half in range(2):
            world.submit(str(half))
            world.start(str(half), "gpu01")
            lines = [text.replace("\n", " ") for text in STRINGS[half * 500 : half * 500 + 500]]
            overlong = b"\xc0\xbcscript\xc0\xbealert(1)"
            world.end(str(half), "\n".join(lines).encode("utf-8", "surrogatepass") + overlong)

    _, visit = open_site(fill)
    for half in range(2):
        visit.go(f"/jobs/{half}")
        visit.page.wait_for_selector(".log li")
        assert visit.page.locator(".log li").count() == 500
        assert_untouched(visit)
        visit.go(f"/api/v1/jobs/{half}/log")
        assert visit.page.locator("pre").count() == 1
        assert visit.page.evaluate("document.querySelectorAll('script, img, svg, a, iframe').length") == 0
        assert visit.hits() == []


def test_evidence_and_decisions_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for number in range(10):
            job_id, few = str(number), STRINGS[number * 100 : number * 100 + 100]
            world.submit(job_id)
            world.start(job_id, "gpu01")
            world.judging = False
            world.end(job_id, b"", AttemptState.FAILED)
            lines = tuple(Evidence(i + 1, text, CauseRole.ROOT, text) for i, text in enumerate(few))
            verdict = Verdict(Label.TRANSIENT, 0.9, few[0][:60], few[1], lines, advice=few[2])
            world.take(Judged(world.now, world.attempts[job_id].id, verdict))
        world.look()

    _, visit = open_site(fill)
    for number in range(10):
        visit.go(f"/jobs/{number}")
        expected = [plain(text) for text in STRINGS[number * 100 : number * 100 + 100]]
        assert texts(visit.page, ".evidence-line code") == expected
        swap(visit.page)
        assert_untouched(visit)
    for path in ("/", "/actions", "/nodes", "/nodes/gpu01", "/exceptions", "/jobs?sort=state"):
        visit.go(path)
        assert_untouched(visit)


def test_node_names_and_reasons_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for number, text in enumerate(STRINGS):
            name = f"{number:04} {text}"
            world.nodes[name] = Node(name, list(NodeState)[number % 5], text, 8, 0, world.now)
        world.look()

    _, visit = open_site(fill)
    assert pages_of(visit, "/nodes", ".pager a:has-text('More')") == 17
    for number in range(0, 1000, 50):
        name = clean(f"{number:04} {STRINGS[number]}")
        visit.go(f"/nodes/{quote(name.encode('utf-8', 'replace'), safe='')}")
        assert_untouched(visit)


def test_reasons_of_actions_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for number, text in enumerate(STRINGS[::4]):
            world.order_drain(f"n{number}", text)
        world.unseen = {"accounting": STRINGS[0], STRINGS[1]: STRINGS[2]}
        world.look()

    _, visit = open_site(fill)
    assert pages_of(visit, "/actions", ".pager a:has-text('More')") == 5


def test_exceptions_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        told = Told(world)
        world.submit("1", user="root")
        world.start("1", "gpu01")
        for number in range(0, 1000, 50):
            few = STRINGS[number : number + 50]
            name = f"few-{number}"
            component, host, resource, key = (text[:200] for text in few[:4])
            origin = {"component": component, "host": host}
            told.raise_(name, f"site.n{number}", note=few[3], evidence=few, origin=origin, resource=resource)
            told.coordinator.annotate(name, key, few[6], ROOT)
        for number, text in enumerate(STRINGS[:60]):
            told.enlist(clean(text[:100]), "job", "process", by=ROOT)
            told.raise_(f"open-{number}", f"process.n{number}", job="1", note=text)

    place, visit = open_site(fill)
    assert pages_of(visit, "/exceptions", ".pager a:has-text('More')") == 1
    assert pages_of(visit, "/exceptions?state=in_chain", ".pager a:has-text('Older open')") == 2
    for number in range(0, 1000, 50):
        visit.go(f"/exceptions/few-{number}")
        expected = [plain(text) for text in STRINGS[number : number + 50]]
        assert texts(visit.page, "section:has(#evidence) code") == expected
        swap(visit.page)
        assert_untouched(visit)
    assert len(place.world.state.chain.handlers) > 50


def test_names_in_addresses_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def fill(world: World) -> None:
        for text in STRINGS[::10]:
            world.submit(text, text, look=False)
            world.jobs[text] = replace(world.jobs[text], state=JobState.RUNNING)
        world.look()

    _, visit = open_site(fill)
    visit.go("/jobs")
    links = visit.page.eval_on_selector_all(".job-link", "found => found.map(one => one.getAttribute('href'))")
    for address in links[::7]:
        visit.go(address)
        assert_untouched(visit)
    for text in STRINGS[3::125]:
        visit.go("/jobs?q=" + quote(text.encode("utf-8", "replace")))
        swap(visit.page)
        assert_untouched(visit)
