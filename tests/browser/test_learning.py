"""A person's word on a verdict, by the mouse: said on the job's page, shown on the page Learning, taken back there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.model.identity import AttemptId
from tests.browser.conftest import Visit
from tests.service.web_world import Site, fill

pytestmark = pytest.mark.browser


def test_a_verdict_is_corrected_shown_and_the_word_taken_back(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    place, visit = open_site(fill)
    page, learner = visit.page, place.world.learner
    visit.go("/jobs/101")
    page.click(".correction button:has-text('It was transient')")
    page.wait_for_selector(".correction:has-text('root said: transient')")
    assert [(c.attempt.job_id, c.transient) for c in learner.store.corrections()] == [("101", True)]

    page.click(".nav a:has-text('Learning')")
    page.wait_for_selector("section:has(#said) tbody tr")
    row = page.locator("section:has(#said) tbody tr")
    assert row.count() == 1
    assert [row.locator("td").nth(i).inner_text() for i in (0, 1, 3, 4)] == [
        "101",
        "Would likely pass",
        "root",
        "similar failures of all users",
    ]

    row.locator("button:has-text('Take back')").click()
    page.wait_for_selector(":text('No verdict has been corrected')")
    assert learner.store.corrections() == []
    visit.go("/jobs/101")
    page.wait_for_selector(".correction:has-text('Is this wrong?')")
    assert visit.hits() == []


def test_a_round_is_held_and_rolled_back(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill)
    page = visit.page
    visit.go("/jobs/101")
    page.click(".correction button:has-text('It was transient')")
    page.wait_for_selector(".correction:has-text('said')")
    visit.go("/learning")
    page.click("button:has-text('Train now')")
    # the first round reads all that is known
    page.wait_for_selector("section:has(#rounds) .pill:has-text('In use')", timeout=240_000)
    assert page.locator("form[action^='/do/learning/rollback'] input[name=model]").input_value() == "1"
    page.click("button:has-text('Roll back')")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector("section:has(#rounds) .pill:has-text('In use')", state="detached")
    assert page.locator("button:has-text('Roll back')").count() == 0  # none is left to take back
    assert visit.hits() == []


def test_a_viewer_speaks_of_his_own_jobs_and_teaches_nothing(open_site: Callable[..., tuple[Site, Visit]]) -> None:
    _, visit = open_site(fill, token="mira")
    page = visit.page
    visit.go("/jobs/101")
    assert page.locator(".correction").count() == 0
    visit.go("/learning")
    assert page.locator("button:has-text('Train now')").count() == 0


def test_a_message_is_set_aside_and_approved_and_a_users_word_confirmed(
    open_site: Callable[..., tuple[Site, Visit]],
) -> None:
    place, visit = open_site(fill)
    page, learner = visit.page, place.world.learner
    learner.store.note_outcomes()
    learner.correct(AttemptId(place.world.cluster, "102", 1), False, "mira", for_all=False)
    visit.go("/learning")
    page.click("section:has(#messages) button:has-text('Set aside')")
    page.click("dialog button:has-text('Yes')")
    page.wait_for_selector("section:has(#messages) :text('set aside: nothing is learnt')")
    assert page.locator("section:has(#messages) button:has-text('Set aside')").count() == 0  # it is already
    page.click("section:has(#messages) button:has-text('Approve')")
    page.wait_for_selector("section:has(#messages) :text('too few yet')")
    page.click("section:has(#said) button:has-text('Confirm for all')")
    page.wait_for_selector("section:has(#said) :text('confirmed by root')")
    assert page.locator("section:has(#said) button:has-text('Confirm for all')").count() == 0
    assert visit.hits() == []
