"""The page of suspects in a browser: a framed row in the picture, in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.model.jobs import AttemptState
from perdure.service.blame.settings import BlameSettings
from perdure.service.blame.suspect_store import SuspectStore
from perdure.service.blame.watch import Watch
from perdure.service.core.messages import ChainInput
from tests.browser.conftest import Visit
from tests.service.web_world import CLUSTER, RESET, Site, World

pytestmark = pytest.mark.browser
SICK = "gpu03"


def fill(world: World) -> None:
    """Four users on six nodes; what runs on one of them fails."""
    for number, user in enumerate(("mira", "jonas", "aiko", "tunde") * 2):
        for place, node in enumerate(world.nodes):
            job_id = str(1000 + 10 * number + place)
            world.submit(job_id, f"train-{user}", user, look=False)
            world.start(job_id, node)
            if node == SICK or (number, place) == (0, 0):
                world.end(job_id, RESET)
            else:
                world.end(job_id, b"", AttemptState.COMPLETED)
            world.pass_time(5)

    def tell(inputs: Any) -> None:
        world.take(ChainInput(world.now, tuple(inputs)))

    watch = Watch(SuspectStore(world.journal.store, CLUSTER), BlameSettings(), lambda: world.now, tell)
    for _ in range(2):
        watch.turn()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_suspect_is_framed_and_nothing_overflows(
    open_site: Callable[..., tuple[Site, Visit]], width: int, scheme: str
) -> None:
    _, visit = open_site(fill, viewport={"width": width, "height": 900}, color_scheme=scheme)
    visit.page.click(".nav a:has-text('Blame')")
    visit.page.wait_for_selector("svg.heat-map")
    assert visit.page.locator("section:has(#standing) tbody tr").count() == 1
    assert visit.page.locator("svg.heat-map .heat-frame").count() == 1
    assert visit.page.locator("svg.heat-map .heat-suspect").first.text_content().startswith(SICK)
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    worst, best = (
        visit.page.locator(f"svg.heat-map rect.{name}").first.evaluate("e => getComputedStyle(e).fill")
        for name in ("heat-8", "heat-0")
    )
    assert worst != best
    assert visit.hits() == []


def test_a_cluster_without_failures_says_so(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site()
    visit.go("/blame")
    assert visit.page.locator(":text('No node, user or job stands out')").count() == 1
    assert visit.hits() == []
