"""What if, in a person's hands: send a trace or take the site's own, compare, look, download; and hostile traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.model.clean_text import clean
from perdure.service.access.auth import Identity, Role
from perdure.service.runtime.assembly import at_work
from perdure.service.whatif.comparison import Progress, Stage, Trouble
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.question import ComparisonQuestion
from tests.browser.conftest import Visit
from tests.browser.hostile import hostile
from tests.browser.test_hostile_text import FOREIGN, OWN_TAGS, plain, swap, texts
from tests.browser.test_pages_in_use import CONTRAST, NAMELESS
from tests.copying import replace
from tests.service.web_world import Site, fill
from tests.service.whatif_world import PATIENCE_S, answered

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload

pytestmark = pytest.mark.browser

STRINGS = [clean(text) for text in hostile(300)]
TAGS = OWN_TAGS.replace(", img", ', img:not([src^="/api/v1/whatif/comparisons/"])')


def trace() -> str:
    """Jobs whose ids, users and virtual clusters try to become code."""

    def cell(text: str) -> str:
        one_line = text.replace("\n", " ").replace("\r", " ")
        return '"' + one_line.replace('"', '""')[:120] + '"'

    rows = [
        f"{cell(f'{number} {text}')},{number},{1 + number % 4},60,{cell(text)},{cell(text)}"
        for number, text in enumerate(STRINGS[:60])
    ]
    return "\n".join(["job_id,submit_s,gpus,duration_s,user,vc", *rows, ""])


def hurried(place: Site) -> AbstractContextManager[ComparisonQueue]:
    """The bench at work, standing back behind nobody: others are waiting for this test."""
    place.queue.settings = replace(place.queue.settings, nice=0)
    return at_work(place.queue)


def test_a_trace_is_sent_compared_looked_at_and_downloaded(
    open_site: Callable[..., tuple[Site, Visit]], chromium: Browser, tmp_path: Path
) -> None:
    name = "<img src=x onerror=alert(1)>.csv"
    place, visit = open_site(fill, token="mira")
    page = visit.page
    with hurried(place):
        page.click(".nav a:has-text('What if')")
        page.click("text=A trace of yours")
        given: FilePayload = {"name": name, "mimeType": "text/csv", "buffer": trace().encode()}
        page.set_input_files("input[data-sent-as=upload]", given)
        page.uncheck("input[value=las-2d]")
        page.check("input[value=never]")
        page.fill("input[name=cluster]", "1x8")
        page.click("button:has-text('Compare')")
        page.wait_for_url("**/whatif/*")
        page.wait_for_selector(".table-figures", timeout=1000 * PATIENCE_S)
    assert texts(page, ".table-figures .act") == ["FIFO", "FIFO", "SRTF", "SRTF"]
    assert "60 of " + name in (page.text_content(".facts") or "")
    page.wait_for_selector(".only-light >> nth=0")
    loaded = "[...document.querySelectorAll('.only-light img')].every((img) => img.naturalWidth === 880)"
    page.evaluate("document.querySelectorAll('img').forEach((img) => (img.loading = 'eager'))")
    visit.wait_for(loaded)
    swap(page)
    assert visit.hits() == []
    assert page.evaluate(FOREIGN, TAGS) == []
    with page.expect_download() as saved:
        page.click("a:has-text('Report')")
    report = tmp_path / "report.html"
    saved.value.save_as(report)
    assert saved.value.suggested_filename.endswith(".html")
    with page.expect_download() as saved:
        page.click("a:has-text('JSON')")
    assert len(json.loads(Path(saved.value.path()).read_text())["runs"]) == 4
    assert_report_runs_nothing(chromium, report)


def assert_report_runs_nothing(chromium: Browser, report: Path) -> None:
    """As somebody sees it who gets the file by mail."""
    with chromium.new_context() as context:
        page = context.new_page()
        troubles = []
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else troubles.append(r.url))
        page.goto(report.as_uri())
        assert page.locator("img").count() == 5
        assert page.locator("script, iframe, svg, a, form, link, object, base").count() == 0
        assert page.locator("img:not([src^='data:image/png;base64,'])").count() == 0
        assert troubles == []


def test_the_sites_own_history_is_compared(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/whatif")
    assert "4 jobs with GPUs that are over" in (page.text_content(".ask") or "")
    assert page.input_value("input[name=cluster]") == "6x8"
    with hurried(place):
        page.click("button:has-text('Compare')")
        page.wait_for_selector(".table-figures", timeout=1000 * PATIENCE_S)
    assert texts(page, ".table-figures .act") == ["FIFO", "SRTF", "Tiresias-LAS"]
    assert page.is_visible("text=3 left out: not ended yet")
    page.click("a:has-text('Ask again')")
    page.wait_for_selector(".job-link:has-text('FIFO, SRTF, Tiresias-LAS')")
    assert visit.hits() == []


def test_one_that_waits_is_cancelled_and_removed(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/whatif")
    page.click("button:has-text('Compare')")
    page.wait_for_selector(".empty:has-text('It begins in a moment')")
    page.click("button:has-text('Cancel')")
    page.wait_for_selector(".empty:has-text('Cancelled')")
    page.click("button:has-text('Remove')")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector(".empty:has-text('Nothing has been compared yet')")
    assert place.queue.store.all() == ()
    assert visit.hits() == []


def test_a_refusal_leaves_the_form_as_it_was_and_a_file_is_sent_once(
    open_site: Callable[..., tuple[Site, Visit]],
) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/whatif")
    page.click("text=A trace of yours")
    page.click("button:has-text('Compare')")
    page.wait_for_selector(".toast-bad:has-text('No file was sent')")
    page.set_input_files("input[data-sent-as=upload]", {"name": "a.csv", "mimeType": "", "buffer": b"x" * 70_000})
    page.fill("input[name=cluster]", "lots")
    page.click("button:has-text('Compare')")
    page.wait_for_selector(".toast-bad:has-text('is not NODESxGPUS')")
    sent = page.input_value("input[name=upload]")
    page.fill("input[name=cluster]", "2x8")
    page.click("button:has-text('Compare')")
    page.wait_for_url("**/whatif/*")
    (found,) = place.queue.store.all()
    assert found.ask.upload == sent
    page.evaluate("document.querySelectorAll('.toast').forEach((one) => one.remove())")
    visit.go("/whatif")
    page.click("text=A trace of yours")
    large: FilePayload = {"name": "a.csv", "mimeType": "", "buffer": b"x" * 1024}
    page.set_input_files("input[data-sent-as=upload]", large)
    page.evaluate("document.querySelector('[data-sent-as=upload]').dataset.mostMib = '0.0005'")
    page.click("button:has-text('Compare')")
    page.wait_for_selector(".toast-bad:has-text('larger than 0.0005 MiB')")


def test_what_one_has_filled_in_outlives_an_update(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page = visit.page
    visit.go("/whatif")
    page.check("input[value=tetris]")
    page.uncheck("input[value=fifo]")
    page.fill("input[name=load]", "0.7")
    place.queue.ask(ComparisonQuestion(cluster="9x9", policies=("drf",)), Identity("mira", Role.VIEWER))
    page.wait_for_selector(".job-link:has-text('DRF')")
    assert page.is_checked("input[value=tetris]")
    assert not page.is_checked("input[value=fifo]")
    assert page.input_value("input[name=load]") == "0.7"


def test_pictures_follow_the_theme(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, color_scheme="dark")
    found = answered(place)
    visit.go(f"/whatif/{found.id}")
    light, dark = visit.page.locator(".only-light").first, visit.page.locator(".only-dark").first
    assert (light.is_visible(), dark.is_visible()) == (False, True)
    visit.page.click("[data-theme-toggle]")
    assert (light.is_visible(), dark.is_visible()) == (True, False)


def test_it_is_asked_without_scripts(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill, java_script_enabled=False)
    visit.go("/whatif")
    visit.page.click("button:has-text('Compare')")
    visit.page.wait_for_url("**/whatif/*")
    (found,) = place.queue.store.all()
    assert visit.page.url == f"{visit.url}/whatif/{found.id}"


def every_stage(place: Site) -> list[str]:
    """One comparison in each stage, on long and hostile words; their paths."""
    long = "n" * 110
    done = answered(place, "mira", long, left_out={"r" * 300: 5}, notes=["w" * 300])
    paths = ["/whatif", f"/whatif/{done.id}"]
    for number, stage in enumerate(stage for stage in Stage if stage is not Stage.DONE):
        trouble = Trouble(where="p" * 90, what="t" * 400, fix="m" * 200) if stage is Stage.FAILED else None
        other = replace(done, id=f"{number:015x}f", stage=stage, trouble=trouble, source=long)
        place.queue.store.put(other)
        if stage is Stage.RUNNING:
            place.queue._progress[other.id] = Progress(phase="simulating", done=3, of=9)
        paths.append(f"/whatif/{other.id}")
    return paths


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_and_every_control_has_a_name(
    open_site: Callable[..., tuple[Site, Visit]], scheme: str
) -> None:
    place, visit = open_site(fill, color_scheme=scheme)
    for path in every_stage(place):
        visit.go(path)
        if path == "/whatif":
            visit.page.click("text=A trace of yours")
        assert visit.page.evaluate(CONTRAST) == [], path
        assert visit.page.evaluate(NAMELESS) == [], path
        assert visit.page.locator("h1").count() == 1


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_screen(open_site: Callable[..., tuple[Site, Visit]], width: int) -> None:
    place, visit = open_site(fill, viewport={"width": width, "height": 800})
    for path in every_stage(place):
        visit.go(path)
        if path == "/whatif":
            visit.page.click("text=A trace of yours")
        wide = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], path


def test_names_and_reasons_stay_text(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site()
    page = visit.page
    notes = STRINGS[::3]
    found = [answered(place, text[:100], text, left_out={text: 1}, notes=[text]) for text in STRINGS[:15]]
    rich = answered(place, "mira", STRINGS[0], left_out=dict.fromkeys(notes, 1), notes=notes)
    trouble = Trouble(where=STRINGS[1], what=STRINGS[2], fix=STRINGS[4])
    failed = replace(rich, id="f" * 16, stage=Stage.FAILED, trouble=trouble)
    place.queue.store.put(failed)
    for path in ["/whatif", *(f"/whatif/{each.id}" for each in (*found, rich, failed))]:
        visit.go(path)
        swap(page)
        assert visit.hits() == []
        assert page.evaluate(FOREIGN, TAGS) == []
    visit.go(f"/whatif/{rich.id}")
    shown = [text.lower() for text in texts(page, ".rows .row")]
    assert shown[len(notes) :] == [plain(text).lower() for text in notes]
