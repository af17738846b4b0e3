"""The page of the policy in force in a browser: promised and achieved, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.live_policy.outcome import PolicyPromise, PolicyTerm
from perdure.service.live_policy.policy_store import PolicyStore
from tests.browser.conftest import Visit
from tests.browser.test_accessibility import SPREAD, found_on
from tests.live_policy.queues import waiting
from tests.service.web.test_policy import in_force
from tests.service.web_world import Site, fill

pytestmark = pytest.mark.browser

PROMISE = PolicyPromise("0" * 16, 1_790_000_000.0, 4211, 5_400.0, 21_000.0, 9_900.0, 30_000.0)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_promised_and_achieved_stand_beside_each_other(
    open_site: Callable[..., tuple[Site, Visit]], tmp_path: Path, width: int, scheme: str
) -> None:
    place, visit = open_site(fill, viewport={"width": width, "height": 900}, color_scheme=scheme)
    store = PolicyStore(place.world.journal.store, place.world.cluster)
    store.begin_term(PolicyTerm("las-2d", 1000.0, None, PROMISE))
    known = place.client(place.operator).get("/api/v1/jobs").json()["items"]
    store.note_jobs(waiting(str(job["job_id"]), 1, submit_s=job["submit_s"]) for job in known)
    in_force(place, tmp_path, acts=True)
    visit.page.click(".nav a:has-text('Policy')")
    visit.page.wait_for_selector("#achieved")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("SHOTS"):
        visit.page.screenshot(path=f"{folder}/policy-{width}-{scheme}.png", full_page=True)
    assert found_on(visit, "/policy") == []
    assert visit.page.evaluate(SPREAD) == []
    assert visit.hits() == []
