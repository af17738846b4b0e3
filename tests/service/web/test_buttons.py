"""What each button of the pages does, in whose name, and where it leads back to."""

import re
from pathlib import Path
from typing import Any

import pytest

from perdure.model.nodes import NodeState
from perdure.service.access.sessions import SESSION_LIFE_S
from perdure.service.store.journal import ActionState
from perdure.service.web.pages.login import own_path
from tests.copying import replace
from tests.finding import found_in
from tests.service.web_world import Site, TestClient, csrf_of, fill, site


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    return place


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """For what changes nothing."""
    place = site(tmp_path_factory.mktemp("calm"))
    fill(place.world)
    return place


def logged_in(place: Site, token: str | None = None) -> TestClient:
    browser = place.client()
    browser.post("/login", data={"token": token or place.operator})
    browser.csrf = csrf_of(browser.get("/").text)
    return browser


def press(browser: TestClient, path: str, **form: Any) -> Any:
    return browser.post(path, data={"csrf": browser.csrf, **form})


def planned(place: Site, by: str = "root") -> list[Any]:
    return [
        (row.action.kind, row.attempt.job_id if row.attempt else row.action.node, row.reason)
        for row in place.world.journal.planned()
        if row.by == by
    ]


@pytest.mark.parametrize(
    ("path", "form", "action"),
    [
        ("/do/jobs/107", {"kind": "hold", "reason": "later"}, ("hold", "107", "later")),
        ("/do/jobs/106", {"kind": "release"}, ("release", "106", "asked for by root")),
        ("/do/jobs/104", {"kind": "cancel"}, ("cancel", "104", "asked for by root")),
        ("/do/jobs/101", {"kind": "retry", "reason": " try\nagain "}, ("requeue", "101", "try again")),
        ("/do/nodes/gpu01", {"kind": "drain", "reason": "fan"}, ("drain", "gpu01", "fan")),
        ("/do/nodes/gpu02", {"kind": "undrain"}, ("undrain", "gpu02", "asked for by root")),
    ],
)
def test_a_button_plans_one_action_in_the_name_of_whoever_pressed_it(
    place: Site, path: str, form: dict[str, Any], action: tuple[str, str, str]
) -> None:
    answer = press(logged_in(place), f"{path}?back=/jobs/107%3Fx=1", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/107?x=1")
    assert planned(place) == [action]


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/do/jobs/101", {"kind": "hold"}, 409),  # it is over
        ("/do/jobs/999", {"kind": "cancel"}, 404),
        ("/do/jobs/101", {"kind": "drain"}, 422),
        ("/do/nodes/gpu99", {"kind": "drain"}, 404),
        ("/do/nodes/gpu01", {"kind": "hold"}, 422),
        ("/do/faults/gpu99", {"kind": "fail"}, 404),
        ("/do/faults/gpu01", {"kind": "explode"}, 422),
        ("/do/withhold", {"key": "nothing"}, 404),
        ("/do/undo", {"key": "nothing"}, 404),
    ],
)
def test_what_makes_no_sense_is_refused_and_plans_nothing(
    calm: Site, path: str, form: dict[str, Any], status: int
) -> None:
    assert press(logged_in(calm), path, **form).status_code == status
    assert (planned(calm), calm.commands.faults) == ([], [])


def test_a_planned_action_is_withheld_and_a_finished_one_taken_back(place: Site) -> None:
    browser, journal = logged_in(place), place.world.journal
    press(browser, "/do/nodes/gpu01", kind="drain")
    (row,) = [row for row in journal.planned() if row.action.kind == "drain"]
    press(browser, "/do/withhold", key=row.key)
    assert journal.action(row.key).state is ActionState.WITHHELD
    press(browser, "/do/nodes/gpu02", kind="drain")
    (row,) = [row for row in journal.planned() if row.action.kind == "drain"]
    place.world.carry_out()
    assert press(browser, "/do/undo", key=row.key).status_code == 303
    assert planned(place) == [("undrain", "gpu02", f"undo of {row.key}")]
    assert press(browser, "/do/undo", key="drain:gpu01:x").status_code == 404


def offers_undo(browser: TestClient) -> list[Any]:
    """The rows of the page of actions that offer it, by what they ask."""
    return re.findall(r'action="/do/undo[^"]*"[^>]*data-confirm="([^"]*)"', browser.get("/actions").text)


def test_what_is_over_is_not_taken_back_and_the_question_names_what_is(place: Site) -> None:
    browser, world = logged_in(place), place.world
    press(browser, "/do/nodes/gpu02", kind="drain")
    world.carry_out()
    assert "Return gpu02 to service?" in offers_undo(browser)
    press(browser, "/do/nodes/gpu02", kind="undrain")
    world.carry_out()
    world.nodes["gpu02"] = replace(world.nodes["gpu02"], state=NodeState.UP)
    world.look()
    assert not [question for question in offers_undo(browser) if "gpu02" in question]
    press(browser, "/do/nodes/gpu02", kind="drain")
    world.carry_out()
    assert offers_undo(browser).count("Return gpu02 to service?") == 1  # and not for the drain before


def test_a_hold_is_taken_back_while_its_job_waits(place: Site) -> None:
    browser, world = logged_in(place), place.world
    world.submit("77")
    press(browser, "/do/jobs/77", kind="hold")
    world.carry_out()
    assert "Let job 77 start?" in offers_undo(browser)
    world.start("77")
    assert not [question for question in offers_undo(browser) if "77" in question]


def test_freezing_a_node_asks_first(place: Site) -> None:
    page = logged_in(place).get("/nodes").text
    assert "Let gpu01 hang? Its processes stop until it thaws." in page


def test_faults_and_the_kill_switch(place: Site) -> None:
    browser = logged_in(place)
    press(browser, "/do/faults/gpu01", kind="freeze")
    assert place.commands.faults == [("gpu01", "freeze")]
    for on in (True, False):
        press(browser, "/do/kill-switch", on=str(on).lower())
        assert place.commands.stopped is on
    assert press(browser, "/do/kill-switch").status_code == 422


def test_a_correction_is_the_word_of_whoever_gives_it(place: Site) -> None:
    learner = place.app.state.web.learner
    for token, by, for_all in ((place.jonas, "jonas", False), (place.operator, "root", True)):
        browser = logged_in(place, token)
        press(browser, "/do/jobs/101/attempts/1/correction", label="transient")
        (said,) = place.client(place.operator).get("/api/v1/learning").json()["corrections"]
        assert (said["job_id"], said["label"], said["by"], said["for_all"]) == ("101", "transient", by, for_all)
        press(browser, "/do/jobs/101/attempts/1/correction", label="none")
        assert place.client(place.operator).get("/api/v1/learning").json()["corrections"] == []
    assert learner is not None
    mira = logged_in(place, place.mira)
    assert press(mira, "/do/jobs/101/attempts/1/correction", label="transient").status_code == 403
    assert press(mira, "/do/jobs/101/attempts/1/correction", label="maybe").status_code == 422


def test_the_button_confirms_the_word_that_the_page_showed(place: Site) -> None:
    mira, root = logged_in(place, place.mira), logged_in(place)
    path = "/do/jobs/102/attempts/1/correction"
    press(mira, path, label="transient")
    seen = found_in(root.get("/learning").text, r'name="word" value="(\w+)"')
    place.world.pass_time(1)
    press(mira, path, label="deterministic")
    refused = press(root, f"{path}/confirm", word=seen)
    assert refused.status_code == 409
    assert "has changed since you looked" in refused.text
    press(root, f"{path}/confirm", word=found_in(root.get("/learning").text, r'name="word" value="(\w+)"'))
    (said,) = place.client(place.operator).get("/api/v1/learning").json()["corrections"]
    assert (said["label"], said["by"], said["confirmed_by"]) == ("deterministic", "mira", "root")


def test_a_browser_that_scripts_help_is_told_and_stays_where_it_is(place: Site) -> None:
    browser = logged_in(place)
    answer = browser.post(
        "/do/nodes/gpu01", data={"kind": "drain"}, headers={"HX-Request": "true", "X-CSRF-Token": browser.csrf}
    )
    assert answer.status_code == 204
    assert "Drain: planned for gpu01" in answer.headers["hx-trigger"]
    assert planned(place) == [("drain", "gpu01", "asked for by root")]


@pytest.mark.parametrize("back", ["//evil.example", "/\\evil.example", "https://evil.example", "jobs"])
def test_a_button_leads_to_pages_of_this_service_alone(calm: Site, back: str) -> None:
    assert press(logged_in(calm), f"/do/kill-switch?back={back}", on="false").headers["location"] == "/"
    assert own_path(back) == "/"


@pytest.mark.parametrize(
    ("path", "own"),
    [("/jobs?x=1", "/jobs?x=1"), ("/a\nb", "/"), ("/\N{LATIN SMALL LETTER E WITH ACUTE}", "/"), ("", "/")],
)
def test_a_login_leads_to_plain_paths(path: str, own: str) -> None:
    assert own_path(path) == own


def test_a_session_lives_for_half_a_day(calm: Site) -> None:
    answer = calm.client().post("/login", data={"token": f" {calm.operator}\n", "next": "/nodes"})
    assert f"max-age={int(SESSION_LIFE_S)}" in answer.headers["set-cookie"].lower()
    assert SESSION_LIFE_S == 12 * 3600.0
    assert 'content="0;url=/nodes"' in answer.text
    for wrong in ("", "x"):
        answer = calm.client().post("/login", data={"token": wrong})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
