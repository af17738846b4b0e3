"""axe-core finds nothing on any page: keyboard, screen reader, contrast; light and dark, wide and narrow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure.service.web.pages.navigation import NAVIGATION
from tests.browser.conftest import Visit
from tests.browser.test_blame import fill as suspect
from tests.browser.test_whatif import every_stage
from tests.finding import found_in
from tests.service.exceptions_world import STATES, stir
from tests.service.notices.three_targets import tell
from tests.service.web_world import Site, World

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "axe"
SCRIPT = (AXE / "axe.min.js").read_text()
# Whatever axe would only like a person to look at (`incomplete`) is left to the other tests of contrast.
RUN = """async (only) => (await axe.run(document, {resultTypes: ["violations"], ...only})).violations.flatMap(
  (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target} ${node.html.slice(0, 160)}`))"""
JOBS = ["/jobs/101", "/jobs/102", "/jobs/104", "/jobs/106", "/jobs/200"]
PATHS = [
    *(entry.path for entry in NAVIGATION),
    *JOBS,
    *(f"/exceptions/{name}" for name in STATES),
    "/nodes/gpu02",
    "/docs/api",
    "/jobs/none",
    "/jobs?sort=-gpus&last=30d",
]
LOOK = "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light']"
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
LOOKS = [(width, scheme) for width in (390, 1400) for scheme in SCHEMES]


def test_axe_is_the_file_that_its_note_names() -> None:
    note = (AXE / "README.md").read_text()
    version = found_in(note, r"axe-core (\S+)")
    assert hashlib.sha256((AXE / "axe.min.js").read_bytes()).hexdigest() in note
    assert SCRIPT.startswith(f"/*! axe v{version}\n")


# Colours are looked at in all four looks, everything else at each width and in each scheme once.
COLOURS = {"runOnly": ["color-contrast"]}
OF_LOOK: dict[tuple[int, str], dict[str, Any]] = {
    (390, "light"): {},
    (1400, "dark"): {},
    (390, "dark"): COLOURS,
    (1400, "light"): COLOURS,
}


def found_on(visit: Visit, path: str, looks: Sequence[tuple[int, Scheme]] = ()) -> list[str]:
    """What axe finds on a page; with `looks`, at each of these widths and colours, which the open page is given."""
    visit.go(path)
    visit.page.wait_for_load_state("networkidle")
    visit.page.evaluate(SCRIPT)
    found = []
    for width, scheme in looks or [(0, "light")]:
        if looks:
            visit.page.set_viewport_size({"width": width, "height": 900})
            visit.page.emulate_media(color_scheme=scheme)
            assert visit.page.evaluate(LOOK) == [width, scheme]
        only = OF_LOOK.get((width, scheme), {})
        found += [f"{path} {width} {scheme}: {each}" for each in visit.page.evaluate(RUN, only)]
    return found


@pytest.mark.parametrize("half", [0, 1])
def test_axe_finds_nothing_on_any_page(open_site: Callable[..., tuple[Site, Visit]], half: int) -> None:
    place, visit = open_site(stir, reduced_motion="reduce")
    paths = [*PATHS, *every_stage(place)]
    assert [each for path in paths[half::2] for each in found_on(visit, path, LOOKS)] == []


def test_axe_finds_nothing_at_the_door(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(reduced_motion="reduce")
    visit.page.click("[aria-label='Log out']")
    assert found_on(visit, "/login", LOOKS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_a_node_is_suspected_and_the_manager_silent(
    open_site: Callable[..., tuple[Site, Visit]], scheme: str
) -> None:
    def fill(world: World) -> None:
        suspect(world)
        world.unseen = {"controller": "no answer", "accounting": "no answer"}

    _, visit = open_site(fill, viewport={"width": 390, "height": 900}, color_scheme=scheme)
    assert [each for path in ("/", "/blame", "/nodes/gpu03") for each in found_on(visit, path)] == []


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing_on_notices_that_were_sent_refused_and_wait(
    open_site: Callable[..., tuple[Site, Visit]], tmp_path: Path, width: int, scheme: str
) -> None:
    look = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    _, visit = open_site(lambda world: tell(world, tmp_path), **look)
    assert [each for path in ("/notices", "/notices?target=phone") for each in found_on(visit, path)] == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.hits() == []


# A cell of a table is a row of boxes there: what it says must be one of them, or its words stand apart.
SPREAD = """[...document.querySelectorAll('main td')].filter((cell) => {
  const {display, columnGap} = getComputedStyle(cell);
  const said = [...cell.childNodes].filter((each) => each.textContent.trim());
  return display === 'flex' && columnGap !== '0px' && said.length > 1;
}).map((cell) => cell.outerHTML)"""


def test_on_a_phone_the_words_of_a_cell_stay_together(
    open_site: Callable[..., tuple[Site, Visit]], tmp_path: Path
) -> None:
    def fill(world: World) -> None:
        stir(world)
        tell(world, tmp_path)

    _, visit = open_site(fill, viewport={"width": 360, "height": 800})
    found = []
    for path in PATHS:
        visit.go(path)
        found += [f"{path}: {cell}" for cell in visit.page.evaluate(SPREAD)]
    assert found == []


def test_axe_would_see_a_button_without_a_name(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site()
    visit.page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button>')")
    visit.page.evaluate(SCRIPT)
    assert any("button-name" in each for each in visit.page.evaluate(RUN, {}))
