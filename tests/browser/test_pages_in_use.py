"""The dashboard in a person's hands: logging in, moving about, acting, and watching it change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.service.access.auth import Identity, Role
from perdure.service.store.journal import ActionState
from perdure.service.web.pages.navigation import NAVIGATION, NavigationEntry
from tests.browser.conftest import Visit
from tests.service.web_world import CLUSTER, SHAPE, Site, World, fill

pytestmark = pytest.mark.browser

PATHS = ["/", "/jobs", "/jobs/101", "/jobs/102", "/nodes", "/nodes/gpu03", "/actions", "/notices", "/jobs/none"]

# WCAG 2.2: each text against the first background behind it that is not see-through.
CONTRAST = """() => {
  const channel = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const seen = element.checkVisibility() && !element.closest(".skip, .visually-hidden");
    if (!walk.currentNode.data.trim() || !seen) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgba(style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} ${element.className} ${element.textContent}`);
  }
  return poor;
}"""

NAMELESS = """() => [...document.querySelectorAll("button, a, input:not([type=hidden])")]
  .filter((one) => one.checkVisibility() && !(one.textContent.trim() || one.ariaLabel || one.labels?.length))
  .map((one) => one.outerHTML)"""


def test_a_wrong_token_is_told_and_the_right_one_opens(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, token="")
    visit.go("/nodes")
    assert "/login" in visit.page.url
    visit.page.fill("input[name=token]", "pdr_wrong")
    visit.page.click("button[type=submit]")
    assert "not one of this service's tokens" in (visit.page.text_content("[role=alert]") or "")
    visit.page.fill("input[name=token]", place.operator)
    visit.page.press("input[name=token]", "Enter")
    visit.page.wait_for_selector("#live")
    visit.page.click("[aria-label='Log out']")
    visit.page.wait_for_selector("input[name=token]")
    assert visit.hits() == []


def test_the_printed_link_opens_the_door_and_leaves_the_address(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, token="")
    visit.go(f"/?code={place.tokens.login_code(Identity('root', Role.OPERATOR))}")
    visit.page.wait_for_selector("#live")
    assert visit.page.url == f"{visit.url}/"


def test_one_gets_everywhere_by_links(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill)
    page = visit.page
    for name, heading in (("Jobs", "Jobs"), ("Nodes", "Nodes"), ("Actions", "Actions"), ("Now", "Now")):
        page.click(f".nav a:has-text('{name}')")
        page.wait_for_selector(f"h1:has-text('{heading}')")
        assert page.text_content(".nav [aria-current]").strip() == name
    page.click(".feed .job-link:has-text('unet-w48')")
    page.wait_for_selector("#log .role-root")
    page.go_back()
    page.wait_for_selector("h1:has-text('Now')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert visit.hits() == []


def test_the_theme_is_chosen_and_kept(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill, color_scheme="dark")
    page = visit.page
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("[data-theme-toggle]")
    light = page.evaluate(background)
    assert light != dark
    visit.go("/jobs")
    assert page.evaluate(background) == light
    page.click("[data-theme-toggle]")
    assert page.get_attribute("[data-theme-toggle]", "aria-label") == "Theme: dark"
    assert page.evaluate(background) == dark


def test_what_happens_appears_without_loading_anew(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    page.evaluate("window.__same = true")
    place.world.submit("200", "newcomer", "lena", 1)
    page.wait_for_selector(".job-link:has-text('newcomer')")
    assert page.evaluate("window.__same")


def test_focus_scroll_and_typing_survive_an_update(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, viewport={"width": 900, "height": 300})
    page = visit.page
    page.focus(".feed .job-link >> nth=2")
    page.evaluate("scrollTo(0, 240)")
    before = page.evaluate("[document.activeElement.href, scrollY]")
    place.world.submit("200", "newcomer", "lena", 1)
    page.wait_for_selector(".job-link:has-text('newcomer')")
    assert page.evaluate("[document.activeElement.href, scrollY]") == before
    visit.go("/jobs")
    page.type("[data-search]", "new", delay=20)
    visit.wait_for("document.querySelectorAll('.job-name').length === 1")
    page.type("[data-search]", "c")
    place.world.submit("201", "newcastle", "lena", 1)
    page.wait_for_selector(".job-link:has-text('newcastle')")
    visit.wait_for("location.search === '?q=newc'")  # what one types is asked for a moment later
    assert page.evaluate("document.activeElement.value") == "newc"


def test_holding_and_releasing_a_job(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/jobs/107")
    page.click(".deeds button:has-text('Hold')")
    page.wait_for_selector(".toast:has-text('Hold: planned for job 107')")
    page.wait_for_selector("#acts")
    (row,) = [row for row in place.world.journal.planned() if row.by == "root"]
    assert (row.action.kind, row.attempt.job_id) == ("hold", "107")
    assert visit.hits() == []


def test_cancelling_asks_first_and_takes_the_reason(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/jobs/104")
    page.click(".deeds button:has-text('Cancel')")
    page.click("dialog button:has-text('Not now')")
    assert not [row for row in place.world.journal.planned() if row.by == "root"]
    page.click(".deeds button:has-text('Cancel')")
    page.fill("#confirm-reason input", "wrong data set")
    page.keyboard.press("Enter")
    page.wait_for_selector(".toast:has-text('Cancel')")
    (row,) = [row for row in place.world.journal.planned() if row.by == "root"]
    assert (row.action.kind, row.reason) == ("cancel", "wrong data set")


def test_an_action_is_held_back_and_a_finished_one_undone(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    world, page = place.world, visit.page
    for row in world.journal.planned():
        world.journal.withhold(row.key, "test", world.now)
    world.order_drain("gpu01", "hot")
    world.carry_out()
    world.order_drain("gpu02", "hotter")
    visit.go("/actions")
    page.click("button:has-text('Hold back')")
    page.wait_for_selector(".toast:has-text('Withheld')")
    assert world.journal.action("drain:gpu02:1").state is ActionState.WITHHELD
    page.click("button:has-text('Undo')")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".act:has-text('Return to service'), .act:has-text('Undrain')")
    assert [row.action.kind for row in world.journal.planned()] == ["undrain"]


def test_the_kill_switch_is_confirmed_and_seen_everywhere(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page

    def is_stopped() -> bool:
        return place.commands.stopped

    visit.go("/actions")
    page.click("button:has-text('Kill switch')")
    assert not is_stopped()
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".banner:has-text('The kill switch is on')")
    assert is_stopped()
    visit.go("/")
    page.click(".banner button")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".banner", state="detached")
    assert not is_stopped()


def test_draining_a_node_and_breaking_one(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/nodes")
    card = page.locator(".node", has_text="gpu01")
    card.locator("button:has-text('Drain')").click()
    page.fill("#confirm-reason input", "fan is loud")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".toast:has-text('Drain: planned for gpu01')")
    (row,) = [row for row in place.world.journal.planned() if row.by == "root"]
    assert (row.action.node, row.reason) == ("gpu01", "fan is loud")
    card.locator("button:has-text('Freeze')").click()
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".toast:has-text('gpu01: freeze')")
    assert place.commands.faults == [("gpu01", "freeze")]


def test_a_refusal_is_told_in_words(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/nodes")

    def too_late(route: Any) -> None:
        """Only between the click and its answer: the page would soon take the button away."""
        place.commands.backend = "slurm"
        route.continue_()

    page.route("**/do/faults/**", too_late)
    page.locator(".node", has_text="gpu02").locator("button:has-text('Freeze')").click()
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".toast-bad:has-text('only the embedded cluster')")


def test_a_service_that_does_not_answer_is_told_until_it_does(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill)
    page = visit.page
    page.route("**/*", lambda route: route.abort())
    as_of = page.get_attribute("[data-as-of]", "data-as-of")
    page.wait_for_selector(f".lost:not([hidden]):has-text('No answer from the service since {as_of}')")
    assert "ago" not in " ".join(page.locator("#live time").all_inner_texts())
    assert not [text for text in page.locator("#live time").all_inner_texts() if text == "just now"]
    page.unroute("**/*")
    page.wait_for_selector(".lost", state="hidden")


def test_a_log_opens_at_its_cause_and_changes_with_the_attempt(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill)
    page = visit.page
    visit.go("/jobs/102")
    page.wait_for_selector("#log :text('Connection reset')")
    assert page.get_attribute("button:has-text('Attempt 1')", "aria-pressed") == "true"
    page.click("button:has-text('Attempt 2')")
    page.wait_for_selector("#log :text('finished')")
    assert page.get_attribute("button:has-text('Attempt 2')", "aria-pressed") == "true"


def test_a_long_log_opens_at_the_line_that_names_the_cause(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    def long(world: World) -> None:
        world.submit("1", "noisy", "mira")
        world.start("1", "gpu01")
        world.end("1", SHAPE + b"".join(b"cleaning up %d\n" % number for number in range(3000)))

    _, visit = open_site(long, viewport={"width": 1280, "height": 700})
    visit.go("/jobs/1")
    visit.page.wait_for_selector("#log .role-root:has-text('mat1 and mat2')")
    inside = """(() => {
      const frame = document.querySelector("#log").getBoundingClientRect();
      const line = document.querySelector("#log .role-root").getBoundingClientRect();
      return line.top >= frame.top && line.bottom <= frame.bottom;
    })()"""
    visit.wait_for(inside)


@pytest.mark.parametrize("entry", NAVIGATION, ids=lambda entry: entry.name)
def test_on_a_phone_every_page_is_reachable_and_the_current_one_visible(
    open_site: Callable[..., tuple[Site, Visit]], entry: NavigationEntry
) -> None:
    _, visit = open_site(viewport={"width": 390, "height": 800})
    visit.go(entry.path)
    assert visit.page.locator(".nav a").count() == len(NAVIGATION)
    for link in visit.page.locator(".nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 800
    assert visit.page.locator(".nav [aria-current]").inner_text().split("\n")[0] == entry.title


@pytest.mark.parametrize("path", ["/jobs", "/actions", "/exceptions"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_filter_lies_on_the_screen(open_site: Callable[..., tuple[Site, Visit]], width: int, path: str) -> None:
    _, visit = open_site(viewport={"width": width, "height": 900})
    visit.go(path)
    visit.page.click("summary:has-text('Filter')")
    for field in visit.page.locator("#filter-box :is(input, select, button, a)").all():
        box = field.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_a_table_is_sorted_narrowed_and_taken_along_without_scripts(
    open_site: Callable[..., tuple[Site, Visit]],
) -> None:
    _, visit = open_site(fill, java_script_enabled=False)
    page = visit.page
    visit.go("/jobs")
    page.click("th a:has-text('GPUs')")
    page.wait_for_selector("th[aria-sort=ascending]:has-text('GPUs')")
    page.click("th a:has-text('GPUs')")
    page.wait_for_selector("th[aria-sort=descending]:has-text('GPUs')")
    assert page.locator(".job-name").first.inner_text() == "llm-7b"
    page.click("summary:has-text('Filter')")
    page.fill("input[name=user]", "mira")
    page.click("button:has-text('Filter')")
    page.wait_for_url("**user=mira**")
    assert page.locator(".job-name").all_inner_texts() == ["llm-7b", "diffusion-lr40"]
    with page.expect_download() as saved:
        page.click("a:has-text('CSV')")
    assert Path(saved.value.path()).read_text().count("\n") == 3


def test_filters_stay_open_and_filled_in_while_the_page_stays_current(
    open_site: Callable[..., tuple[Site, Visit]],
) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/jobs")
    page.click("summary:has-text('Filter')")
    page.fill("input[name=partition]", "gpu")
    page.select_option("select[name=last]", "24h")
    place.world.submit("300", "newcomer", "lena", 1)
    page.wait_for_selector(".job-link:has-text('newcomer')")
    visit.wait_for("location.search.includes('partition=gpu') && location.search.includes('last=24h')")
    assert page.is_visible("input[name=partition]")
    assert page.input_value("input[name=partition]") == "gpu"
    assert visit.hits() == []


def test_no_card_of_a_job_is_mostly_empty(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill, viewport={"width": 1400, "height": 900})
    visit.go("/jobs/101")
    for name in ("why", "decision", "chain"):
        card = visit.page.locator(f"section[aria-labelledby={name}]")
        room = card.evaluate(
            "e => e.getBoundingClientRect().bottom - e.lastElementChild.getBoundingClientRect().bottom"
        )
        assert room < 30, name


def test_a_chart_is_drawn_and_follows(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill)
    visit.page.wait_for_selector("#hours-chart canvas")
    drawn = (
        "(() => { const c = document.querySelector('#hours-chart canvas'); return c.width > 200 && "
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()"
    )
    visit.wait_for(drawn)
    visit.page.set_viewport_size({"width": 390, "height": 800})
    visit.wait_for("document.querySelector('#hours-chart .uplot').clientWidth < 390")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_and_every_control_has_a_name(
    open_site: Callable[..., tuple[Site, Visit]], scheme: str
) -> None:
    place, visit = open_site(fill, color_scheme=scheme)
    place.commands.armed = False
    place.world.unseen = {"accounting": "slurmdbd does not answer"}
    for path in PATHS:
        visit.go(path)
        assert visit.page.evaluate(CONTRAST) == [], path
        assert visit.page.evaluate(NAMELESS) == [], path
        assert visit.page.locator("h1").count() == 1
        assert visit.page.locator("main").count() == 1


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_screen(open_site: Callable[..., tuple[Site, Visit]], width: int) -> None:
    def long(world: World) -> None:
        fill(world)
        world.submit("x" * 120, "y" * 300, "z" * 200, 4)
        world.start("x" * 120, "gpu01")
        world.end("x" * 120, b"ValueError: " + b"w" * 3000)
        world.order_drain("n" * 150, "r" * 900)
        world.unseen = {"u" * 80: "v" * 400}
        world.look()

    _, visit = open_site(long, viewport={"width": width, "height": 800})
    for path in [*PATHS, "/jobs/" + "x" * 120]:
        visit.go(path)
        visit.page.wait_for_timeout(50)
        wide = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], path


CUT_OFF = """() => [...document.querySelectorAll(".table")].filter((table) =>
  table.scrollWidth > table.parentElement.clientWidth + 1
  && !["auto", "scroll"].includes(getComputedStyle(table.parentElement).overflowX)).length"""

BROKEN_WORDS = """() => [...document.querySelectorAll('td[data-label="Cause"]')].flatMap((cell) => {
  const text = cell.firstChild, broken = [];
  for (const word of text.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (range.getClientRects().length > 1) broken.push(word[0]);
  }
  return broken;
})"""


@pytest.mark.parametrize("width", [640, 900, 1000, 1280])
def test_no_table_is_cut_off_and_no_cause_broken_within_a_word(
    open_site: Callable[..., tuple[Site, Visit]], width: int
) -> None:
    _, visit = open_site(fill)
    visit.page.set_viewport_size({"width": width, "height": 800})
    for path in ("/jobs", "/exceptions", "/actions", "/nodes/gpu01", "/nodes/gpu02"):
        visit.go(path)
        assert visit.page.evaluate(CUT_OFF) == 0, path
        assert visit.page.evaluate(BROKEN_WORDS) == [], path


def test_motion_is_left_out_for_those_who_ask(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill, reduced_motion="reduce")
    moving = "[...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0)"
    assert visit.page.evaluate(f"{moving}.length") == 0


def test_pages_work_without_scripts(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, java_script_enabled=False)
    visit.go("/jobs/107")
    visit.page.click(".deeds button:has-text('Hold')")
    visit.page.wait_for_selector("#acts")
    assert visit.page.url == f"{visit.url}/jobs/107"
    assert [row.action.kind for row in place.world.journal.planned() if row.by == "root"] == ["hold"]
    assert CLUSTER in (visit.page.text_content(".where") or "")
