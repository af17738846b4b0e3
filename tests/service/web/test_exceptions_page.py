"""The pages of exceptions: what is open and whose turn it is, storms, journeys; who sees what; hostile text."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination.chain_state import Turn
from perdure.coordination.playbook import own_playbook
from perdure.coordination.record import (
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
)
from perdure.model.jobs import AttemptState, JobState
from perdure.service.store.journal import ActionState
from perdure.service.web.pages import labels
from perdure.service.web.pages.decision_timeline import (
    AFTER,
    DEFAULT,
    WIDTH,
    decided_after_s,
    stages,
    stretches,
)
from perdure.service.web.pages.render import environment
from tests.copying import replace
from tests.finding import found_in
from tests.service.exceptions_world import MIRA, ROOT, STATES, STORM, Told, stir
from tests.service.web.test_pages import Outline, browser_of
from tests.service.web_world import RESET, Site, TestClient, csrf_of, fill, site

PATHS = ["/exceptions", *(f"/exceptions/{name}" for name in STATES), "/exceptions/pfs%2Fjob.pause%2F200"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("exceptions"))
    stir(place.world)
    return place


@pytest.fixture(scope="module")
def browser(place: Site) -> TestClient:
    return browser_of(place)


def card(text: str, name: str) -> str:
    """The words of one section, without tags."""
    (found,) = re.findall(rf'<section[^>]* aria-labelledby="{name}">(.*?)</section>', text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_what_is_owned_and_not_over_is_called_decided_and_not_closed(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    place.world.end("7", RESET)  # its retry is planned, and has not begun
    text = browser_of(place).get("/exceptions").text
    assert "State now" in card(text, "ended")
    assert "Owned its outcome is not known yet" in card(text, "ended")
    assert card(text, "ended").startswith("Recently decided")
    assert "closed" not in card(text, "ended").lower()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}], ids=["whole", "fragment"])
def test_pages_are_sound(browser: TestClient, path: str, headers: dict[str, str]) -> None:
    answer = browser.get(path, headers=headers)
    outline = Outline(answer.text)
    assert (answer.status_code, outline.open, outline.inline) == (200, [], [])
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == "h1"


def test_an_empty_site_is_explained(tmp_path: Path) -> None:
    text = browser_of(site(tmp_path)).get("/exceptions").text
    for said in ("Nothing is open", "None has been decided yet", "No program has registered a handler"):
        assert said in text
    assert "Storms" not in text


def test_open_ones_tell_whose_turn_it_is_and_until_when(browser: TestClient) -> None:
    opened = card(browser.get("/exceptions").text, "open")
    assert re.search(r"Process failed: hang .* gpt 400 mira mira\+trainer as job to answer in 2 min", opened)


def test_a_storm_was_one_action(browser: TestClient) -> None:
    storms = card(browser.get("/exceptions").text, "storms")
    assert f"GPU fault: xid79 gpu06 {STORM} equal faults were one exception, with one action" in storms


def test_what_keeps_jobs_from_starting_is_shown_until_it_works_again(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    place.world.carry_out()
    told, browser = Told(place.world), browser_of(place, place.jonas)
    waiting = len(place.world.view().waiting())
    told.raise_("down", "storage.down", resource="pfs:/scratch")
    outages = card(browser.get("/exceptions").text, "outages")
    assert f"Storage fault: down pfs:/scratch {waiting} jobs are held until somebody says that it works" in outages
    place.world.submit("900", "late", "mira", 1)
    place.world.look()
    assert f"{waiting + 1} jobs are held until" in card(browser.get("/exceptions").text, "outages")
    assert "outages" not in browser.get("/exceptions?state=handled").text
    place.world.carry_out()
    told.raise_("up", "storage.restored", resource="pfs:/scratch")
    assert f"{waiting + 1} jobs are held; it works again" in card(browser.get("/exceptions").text, "outages")
    place.world.carry_out()
    assert "outages" not in browser.get("/exceptions").text


def test_closed_ones_tell_what_differs(browser: TestClient) -> None:
    ended = card(browser.get("/exceptions").text, "ended")
    assert re.search(r"Process failed: exit .* resnet 200 mira .*rank 3 died Owned mira\+airflow as workflow", ended)
    assert "GPU fault: ecc" not in ended  # a person is needed: that is open
    assert re.search(r"Process failed: exit .* bert 300 jonas .*Withdrawn over: what it was about is gone", ended)
    assert "Recovered over" in ended


def test_a_note_without_a_value_shows_no_empty_box(browser: TestClient) -> None:
    assert "<code></code>" not in browser.get("/exceptions/xid").text


def test_who_is_asked_is_listed_with_the_lease(place: Site, browser: TestClient) -> None:
    asked = card(browser.get("/exceptions").text, "handlers")
    assert re.search(r"mira\+airflow Workflow process of mira's jobs mira 10 min in 50 min", asked)
    assert "trainer" in card(browser_of(place, place.mira).get("/exceptions").text, "handlers")
    assert "trainer" not in browser_of(place, place.jonas).get("/exceptions").text


def test_users_see_their_own_and_what_is_about_no_job(place: Site) -> None:
    shown = {
        who: set(re.findall(r'href="/exceptions/([^"]+)"', unquote(browser_of(place, token).get("/exceptions").text)))
        for who, token in (("root", place.operator), ("mira", place.mira), ("jonas", place.jonas))
    }
    assert {"mira+turn", "mira+owned", "jonas+bug", "xid", "pfs"} <= shown["root"]
    assert {"mira+turn", "mira+owned", "xid", "pfs"} <= shown["mira"] <= shown["root"] - {"jonas+bug", "jonas+gone"}
    assert (
        {"jonas+bug", "jonas+gone", "xid", "pfs"}
        <= shown["jonas"]
        <= shown["root"] - {"mira+turn", "mira+owned", "mira+later", "mira+alone"}
    )


@pytest.mark.parametrize("name", STATES)
def test_a_journey_of_another_user_is_as_unknown_as_none(place: Site, name: str) -> None:
    mine = place.world.state.chain.find(name).subject.job_id in ("", "300")
    answer = browser_of(place, place.jonas).get(f"/exceptions/{name}")
    assert answer.status_code == (200 if mine else 404)


def test_a_storm_of_another_users_job_is_not_shown(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    told = Told(place.world)
    for number in range(20):
        told.raise_(f"e{number}", "process.exit", MIRA, job="104")
    assert "20 equal faults" in browser_of(place, place.mira).get("/exceptions").text
    assert "20 equal faults" not in browser_of(place, place.jonas).get("/exceptions").text


@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_every_state_is_said(place: Site, browser: TestClient, name: str, state: str) -> None:
    assert place.world.state.chain.find(name).standing == state
    assert labels.badge("standing", state).text in browser.get(f"/exceptions/{name}").text


def test_a_journey_tells_who_said_what_and_how_long_it_took(browser: TestClient) -> None:
    text = browser.get("/exceptions/mira+owned").text
    journey = card(text, "journey")
    assert re.search(
        r"Raised by viewer:mira rank 3 died "
        r"Resource manager Declined Perdure for the resource manager at once, \S+ nothing is known of its node "
        r"Job Annotated mira\+trainer as job after 4 s, \S+ no good checkpoint here "
        r"Workflow Took it mira\+airflow as workflow after 7 s, \S+ rolled back to step 1200 "
        r"Forbidden to all others: requeue No action of Perdure's goes with it\. "
        r"Perdure not asked any more$",
        journey,
    )
    assert "job : checkpoint" in card(text, "notes")
    assert "step 1200" in card(text, "notes")


def test_a_journey_that_goes_on_tells_whom_it_waits_for(browser: TestClient) -> None:
    journey = card(browser.get("/exceptions/mira+turn").text, "journey")
    assert re.search(
        r"Job Is asked mira\+trainer as job to answer in 2 min Workflow not asked yet Perdure not asked yet$", journey
    )


def test_a_deadline_is_shown_until_it_is_decided(browser: TestClient) -> None:
    assert "<dt>Deadline</dt>" in browser.get("/exceptions/mira+turn").text
    assert "<dt>Deadline</dt>" not in browser.get("/exceptions/mira+owned").text


def test_what_perdure_puts_off_it_looks_at_again(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    Told(place.world).raise_("nan", "app.nan", MIRA, job="104")
    browser = browser_of(place)
    assert "llm-7b 104 mira Perdure looks again in 5 s" in card(browser.get("/exceptions").text, "open")
    journey = card(browser.get("/exceptions/mira+nan").text, "journey")
    assert journey.endswith("Put it off Perdure looks again in 5 s its attempt still runs")


def test_levels_without_a_word_are_told_apart(browser: TestClient) -> None:
    at_the_deadline = card(browser.get("/exceptions/mira+alone").text, "journey")
    assert re.search(r"Resource manager gave no verdict Job gave no verdict", at_the_deadline)
    assert re.search(r"Default handler Declined Perdure after 5 min, \S+ nobody took it: a person", at_the_deadline)
    before_an_owner = card(browser.get("/exceptions/jonas+bug").text, "journey")
    assert "Resource manager has no part in it Job has no part in it Workflow Took it" in before_an_owner
    assert before_an_owner.endswith("Perdure not asked any more")


def test_what_was_done_is_listed_with_its_state(browser: TestClient) -> None:
    text = browser.get("/exceptions/xid").text
    assert re.search(r"Drain gpu06 took 0 s Done", card(text, "done"))
    assert "node:gpu06" in text
    assert "0 of 3 were used before" in text
    assert "Xid 79: GPU lost" in card(text, "evidence")


def test_what_follows_may_bear_a_time_of_up_to_a_minute_before(tmp_path: Path) -> None:
    """Clocks of nodes differ."""
    place = site(tmp_path)
    told, now = Told(place.world), place.world.now
    told.raise_("fault", "app.nan", time=now)
    for name, time_s in (("just", now - 60.0), ("early", now - 61.0), ("later", now)):
        told.raise_(name, f"app.{name}", time=time_s, cause="fault")
    place.world.pass_time(10)
    text = place.client(place.operator).get("/exceptions/fault").text
    assert [name for name in ("just", "early", "later") if f'href="/exceptions/{name}"' in text] == ["just", "later"]


def test_causes_and_what_follows_are_linked(place: Site, browser: TestClient) -> None:
    text = browser.get("/exceptions/pfs").text
    followers = {f"/exceptions/{quote(f'pfs/job.pause/{job}', safe='')}" for job in (104, 200, 300, 400)}
    assert followers <= set(re.findall(r'href="(/exceptions/[^"]+)"', text))
    assert 'href="/exceptions/pfs"' in browser.get("/exceptions/pfs%2Fjob.pause%2F200").text
    seen_by_jonas = browser_of(place, place.jonas).get("/exceptions/pfs").text
    assert set(re.findall(r'href="(/exceptions/pfs%[^"]+)"', seen_by_jonas)) == {"/exceptions/pfs%2Fjob.pause%2F300"}


def test_listings_are_filtered_and_paged(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    told = Told(place.world)
    for number in range(60):
        told.raise_(f"s{number}", f"site.n{number}")
        told.raise_(f"p{number}", f"process.n{number}", job="104")
    browser = browser_of(place)

    def found(path: str | Any | None) -> tuple[Any, str | Any | None]:
        text = browser.get(path).text
        older = re.search(r'class="button" href="(/exceptions\?[^"]*cursor=[^"]*)"', text)
        return text, older and older[1].replace("&amp;", "&")

    text, older = found("/exceptions?state=handled&type=site")
    assert "site.n59" in text
    assert "process.n" not in text
    text, _ = found(older)
    assert "site.n0," in text
    assert "site.n59" not in text
    text, older = found("/exceptions?state=in_chain")
    assert "process.n59" in text
    assert "Recently decided" not in text
    assert "process.n0," in found(older)[0]
    assert "process.n7," in found("/exceptions?job=104&type=process.n7")[0]
    assert "No open exception matches" in found("/exceptions?type=gpu")[0]
    refused = browser.get("/exceptions?state=nonsense")
    assert (refused.status_code, "Use in_chain, handled, escalated" in refused.text) == (422, True)


def test_pages_are_read_from_every_database(where: Path | str, tmp_path: Path) -> None:
    place = site(tmp_path, where=where)
    stir(place.world)
    browser = browser_of(place)
    assert [browser.get(path).status_code for path in PATHS] == [200] * len(PATHS)
    assert "Told to pause" in browser.get("/exceptions/pfs").text
    place.world.journal.close()


# -- beside the failures of jobs


def failures_of(place: Site, browser: TestClient) -> tuple[dict[Any, Any], str, list[Any], list[Any]]:
    """What the other pages, the listings and the metrics count as failures of jobs."""
    jobs = place.client(place.operator).get("/api/v1/jobs?limit=200").json()["items"]
    latest = {job["job_id"]: job["failure"] for job in jobs if job["failure"]}
    now = found_in(browser.get("/").text, r'Failures</span>\s*<span class="tile-value">(\d+)</span>')
    counted = sorted(re.findall(r"(?m)^perdure_failures_total.*$", browser.get("/metrics").text))
    return latest, now, re.findall(r'class="node-failure".*', browser.get("/nodes").text), counted


def test_what_is_raised_is_no_failure_of_a_job(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    browser = browser_of(place)
    before = failures_of(place, browser)
    assert len(before[3]) > 1
    told = Told(place.world)
    told.raise_("pfs", "storage.down", resource="pfs:/scratch")
    told.raise_("e", "process.exit", job="104")
    assert failures_of(place, browser) == before


def test_a_note_on_an_old_failure_leaves_what_was_decided_on_it(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    browser = browser_of(place)
    (old,) = [r for r in place.world.state.chain.ended.values() if r.subject.job_id == "102"]

    def known() -> tuple[list[dict[Any, Any]], Any]:
        found = place.client(place.operator).get("/api/v1/jobs/102").json()["exceptions"]
        return [{**one, "record": ()} for one in found], failures_of(place, browser)

    before = known()
    Told(place.world).coordinator.annotate(old.id, "ticket", "HW-12", ROOT)
    assert known() == before
    assert "HW-12" in browser.get(f"/exceptions/{quote(old.id, safe='')}").text


def test_the_jobs_page_leads_to_the_journey_and_lists_what_was_raised(place: Site, browser: TestClient) -> None:
    text = browser.get("/jobs/101").text
    (journey,) = re.findall(r'class="more" href="(/exceptions/[^"]+)">Journey', text)
    assert "Through the chain" in browser.get(journey).text
    assert "Process failed: hang" in card(browser.get("/jobs/400").text, "raised")
    assert "Why it failed" not in browser.get("/jobs/400").text
    of_another = browser_of(place, place.jonas).get("/jobs/400").text
    assert "/exceptions/" not in of_another


# -- a hand on it


def noted(place: Site, name: str) -> list[Any]:
    return [(a.component, a.key, a.value) for a in place.world.state.chain.find(name).annotations]


def test_an_operator_annotates_and_the_page_shows_it(tmp_path: Path) -> None:
    place = site(tmp_path)
    stir(place.world)
    browser = browser_of(place)
    page = browser.get("/exceptions/mira+turn").text
    csrf = csrf_of(page)
    form = {"exception_id": "mira+turn", "key": "ticket", "value": "<b>HW-12</b>", "csrf": csrf}
    assert browser.post("/do/exceptions/annotation?back=/exceptions/mira+turn", data=form).status_code == 303
    assert noted(place, "mira+turn") == [("operator:root", "ticket", "<b>HW-12</b>")]
    assert "&lt;b&gt;HW-12&lt;/b&gt;" in browser.get("/exceptions/mira+turn").text
    gone = browser.post("/do/exceptions/annotation", data=form | {"exception_id": "nope"})
    assert gone.status_code == 404


def test_a_viewer_finds_nothing_to_press(place: Site) -> None:
    viewer = browser_of(place, place.mira)
    assert "/do/" not in "".join(viewer.get(path).text for path in ("/exceptions", "/exceptions/mira+turn"))


# -- hostile text


def test_what_others_write_stays_text(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    told = Told(place.world)
    evil = "</p><script>alert(1)</script>\u202e"
    name = evil.replace("\u202e", "")
    told.enlist(name, "job", "process")
    more = {"origin": {"component": evil, "host": evil, "pid": 1}, "evidence": [evil], "cause": evil, "note": evil}
    told.raise_("exit", "process.exit", MIRA, job="104", **more)
    told.coordinator.annotate("mira+exit", evil, evil, MIRA)
    told.answer("mira+exit", name, "handled", evil, annotations={evil: evil}, forbids=(evil,))
    told.raise_("pfs", "storage.down", resource=evil, node=[evil])
    browser = browser_of(place)
    for path in (
        "/exceptions",
        "/exceptions/mira+exit",
        f"/exceptions?type={quote(evil)}&job={quote(evil)}",
    ):
        answer = browser.get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "\u202e" not in answer.text
        assert Outline(answer.text).inline == []
    assert browser.get("/exceptions").text.count("&lt;script&gt;alert") >= 3


# -- words


def test_every_failure_of_the_playbook_has_words() -> None:
    assert {kind for kind in own_playbook().plans if kind != "job" and labels.fault(kind).endswith(kind)} == set()


def test_every_standing_and_verdict_has_a_badge_of_its_own() -> None:
    for standing in (*ExceptionState, *(outcome for outcome in ExceptionOutcome if outcome)):
        if standing is not ExceptionState.EXPIRED:
            assert labels.badge("standing", standing).icon != "question"
    for verdict in AnswerKind:
        assert labels.badge("answer", verdict).icon != "question"


def test_every_severity_is_read() -> None:
    render = environment().from_string("{{ n|severity }}").render
    assert [render(n=n) for n in (0, 3, 7)] == ["severity 0, fatal", "severity 3", "severity 7, least"]


# -- the journey, laid out


def record(
    scope: Scope = Scope.LOCAL,
    answers: Sequence[Answer] = (),
    state: ExceptionState = ExceptionState.IN_CHAIN,
    deadline_s: float = 100.0,
) -> ExceptionRecord:
    return ExceptionRecord(
        "x", "process.exit", 1, scope, Subject("c", "1"), 0.0, verdicts=tuple(answers), state=state,
        deadline_s=deadline_s,
    )  # fmt: skip


def said(level: str, kind: AnswerKind = AnswerKind.DECLINED, at: float = 0.0, handler: str = "") -> Answer:
    return Answer(Component(level), kind, at, "", handler=handler)


@pytest.mark.parametrize("scope", Scope)
def test_levels_stand_in_the_order_of_the_scope(scope: Scope) -> None:
    assert [stage.name for stage in stages(record(scope), None)] == [level.value for level in scope.order]


def test_perdures_level_is_told_from_the_default_handler() -> None:
    taken = said("scheduler", AnswerKind.HANDLED, 9.0)
    first = [said(level) for level in ("resource_manager", "job", "workflow")]
    assert [s.name for s in stages(record(answers=[*first, taken], state=ExceptionState.HANDLED), None)] == [
        "resource_manager", "job", "workflow", "scheduler",
    ]  # fmt: skip
    for answers, rest in (([*first, said("scheduler"), taken], "spoke"), ([replace(taken, time_s=100.0)], "silent")):
        laid = stages(record(answers=answers, state=ExceptionState.HANDLED), None)
        assert (laid[-1].name, len(laid[-1].steps)) == (DEFAULT, 1)
        assert {stage.standing for stage in laid[:-1]} == {rest}
    backwards = [said("scheduler"), said("workflow"), said("job"), said("resource_manager"), taken]
    laid = stages(record(Scope.GLOBAL, backwards, ExceptionState.HANDLED), None)
    assert (laid[0].name, laid[-1].name) == ("scheduler", DEFAULT)


def test_what_is_said_of_an_owned_one_comes_after() -> None:
    failed = [said("resource_manager", AnswerKind.HANDLED, 3.0), said("scheduler", AnswerKind.ANNOTATED, 50.0)]
    found = record(answers=failed, state=ExceptionState.ESCALATED)
    laid = stages(found, None)
    assert (laid[-1].name, laid[-1].steps[0].took_s) == (AFTER, 47.0)
    assert [stage.standing for stage in laid] == ["spoke", "spared", "spared", "spared", "spoke"]
    assert decided_after_s(found) == 3.0


def test_a_turn_is_shown_where_it_is() -> None:
    turn = Turn(Component.WORKFLOW, "trainer", 60.0)
    laid = stages(record(answers=[said("resource_manager")]), turn)
    assert [stage.standing for stage in laid] == ["spoke", "passed", "turn", "ahead"]
    assert [stage.turn for stage in laid] == [None, None, turn, None]
    again = stages(record(answers=[said("resource_manager"), said("workflow", handler="other")]), turn)
    assert again[2].standing == "turn"


def test_levels_that_come_after_the_last_word_had_no_part_where_the_chain_ran_out() -> None:
    found = record(answers=[said("job"), said("scheduler"), said("scheduler")], state=ExceptionState.ESCALATED)
    assert [stage.standing for stage in stages(found, None)] == ["passed", "spoke", "passed", "spoke", "spoke"]
    unowned = record(Scope.GLOBAL, [said("scheduler"), said("scheduler")], ExceptionState.ESCALATED)
    assert [stage.standing for stage in stages(unowned, None)] == ["spoke", "passed", "passed", "passed", "spoke"]


answers_ = st.lists(
    st.builds(
        said,
        st.sampled_from([c.value for c in Component]),
        st.sampled_from([k for k in AnswerKind if k is not AnswerKind.HANDLED]),
        st.floats(-10, 1e6),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
)


@given(answers_, st.sampled_from(Scope), st.sampled_from(ExceptionState), st.floats(0, 2e6))
def test_no_answer_is_lost_and_no_stretch_leaves_the_axis(
    answers: list[Answer], scope: Scope, state: ExceptionState, now: float
) -> None:
    found = record(scope, answers, state)
    laid = stages(found, None)
    assert sorted(map(repr, answers)) == sorted(repr(step.answer) for stage in laid for step in stage.steps)
    assert all(step.took_s >= 0 for stage in laid for step in stage.steps)
    for stretch in stretches(found, now):
        assert 0 <= stretch.x <= WIDTH
        assert 0 < stretch.width <= WIDTH - stretch.x + 1e-6


def test_steps_lie_on_the_axis_as_long_as_they_took() -> None:
    found = record(answers=[said("resource_manager", at=25.0), said("job", AnswerKind.HANDLED, 100.0)])
    found = replace(found, state=ExceptionState.HANDLED)
    assert [(s.x, s.width, s.kind) for s in stretches(found, 500.0)] == [
        (0.0, 250.0, "declined"),
        (250.0, 750.0, "handled"),
    ]


def counted(text: str) -> Any:
    """What stands beside the name in the navigation."""
    (found,) = re.findall(r'<span class="nav-count" id="nav-exceptions"[^>]*>(.*?)(?:<span|</span>)', text)
    return found


def test_what_is_on_its_way_is_counted_no_further_than_asked(place: Site) -> None:
    count_open = Told(place.world).coordinator.count_open
    assert [count_open(MIRA, most) for most in (1, 2, 100)] == [1, 2, 3]


def test_the_navigation_counts_what_is_open_for_whom_may_see_it(place: Site) -> None:
    """On every page, and in what keeps it alive; as many as the list of open ones has."""
    for token, path in ((place.operator, "/jobs"), (place.mira, "/"), (place.jonas, "/nodes")):
        browser = browser_of(place, token)
        listed = len(browser.get("/api/v1/exceptions?state=in_chain&state=escalated&limit=200").json()["items"])
        assert counted(browser.get(path).text) == (str(listed) if listed else "")
        alive = browser.get(path, headers={"HX-Request": "true"}).text
        assert counted(alive) == counted(browser.get(path).text)
        assert 'id="nav-exceptions" hx-swap-oob="true"' in alive
    assert counted(browser_of(place).get("/").text) == "3"


def test_more_than_can_be_read_at_a_glance_are_not_counted(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    told = Told(place.world)
    assert counted(browser_of(place).get("/").text) == ""
    place.world.submit("900", "bert", "mira", 2)
    place.world.start("900", "gpu01")
    told.enlist("trainer", "job", "app")
    for number in range(120):
        told.raise_(f"many-{number}", "app.nan", ROOT, job="900", node=[f"gpu{number}"])
    assert counted(browser_of(place).get("/").text) == "99+"


def test_what_nobody_could_see_to_is_open_on_every_page(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    told, browser = Told(place.world), browser_of(place)
    assert "a person." not in browser.get("/").text
    told.raise_("odd", "app.nan")
    page = browser.get("/exceptions").text
    assert re.search(r"Program failed: nan .* Needs a person", card(page, "open"))
    assert "Program failed: nan" not in card(page, "ended")
    assert "Program failed: nan" in card(browser.get("/exceptions?state=in_chain").text, "open")
    assert "One exception needs a person." in browser.get("/").text
    told.raise_("odder", "app.inf")
    assert "2 exceptions need a person." in browser.get("/").text


def asked_for_a_job(tmp_path: Path) -> tuple[Site, Told]:
    """A site where nobody took what a program raised about its job, which runs."""
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    told = Told(place.world)
    told.raise_("died", "process.exit", job="7", note="rank 3 died")
    told.pass_time(1000.0)
    return place, told


def open_over_the_api(browser: TestClient) -> list[Any]:
    return [each["id"] for each in browser.get("/api/v1/exceptions?open=true").json()["items"]]


def test_what_nobody_took_of_a_job_is_open_everywhere_until_it_is_closed(tmp_path: Path) -> None:
    place, told = asked_for_a_job(tmp_path)
    browser = browser_of(place)
    for path in ("/exceptions", "/exceptions?state=in_chain", "/exceptions?state=escalated"):
        assert re.search(r"Process failed: exit .* Needs a person", card(browser.get(path).text, "open"))
    assert "Process failed: exit" not in card(browser.get("/exceptions").text, "ended")
    assert counted(browser.get("/").text) == "1"
    assert "One exception needs a person." in browser.get("/").text
    assert open_over_the_api(browser) == ["died"]
    assert "its job is past it or gone, or you close it" in browser.get("/exceptions/died").text
    told.coordinator.close("died", "looked at it", ROOT)
    assert counted(browser.get("/").text) == ""
    assert "Nothing is open" in card(browser.get("/exceptions").text, "open")
    assert "Closed by a person root , an operator : looked at it" in card(browser.get("/exceptions").text, "ended")
    journey = card(browser.get("/exceptions/died").text, "journey")
    assert re.search(r"Closed by root , an operator \S.* looked at it$", journey)
    assert open_over_the_api(browser) == []


@pytest.mark.parametrize("end", [AttemptState.COMPLETED, AttemptState.CANCELLED])
def test_what_nobody_took_of_a_job_is_over_when_its_job_is(tmp_path: Path, end: AttemptState) -> None:
    place, told = asked_for_a_job(tmp_path)
    browser = browser_of(place)
    place.world.end("7", b"", end, to=JobState(end.value))
    told.pass_time(1.0)
    assert "Withdrawn" in card(browser.get("/exceptions").text, "ended")
    assert (counted(browser.get("/").text), open_over_the_api(browser)) == ("", [])


def test_a_retry_that_was_refused_waits_for_a_person_until_its_job_goes_on(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    place.world.end("7", RESET)
    place.world.carry_out(ActionState.REFUSED, "no such job")
    browser = browser_of(place)
    (name,) = open_over_the_api(browser)
    assert "Needs a person" in card(browser.get("/exceptions").text, "open")
    place.world.start("7")
    assert open_over_the_api(browser) == [name]
    place.world.end("7", b"", AttemptState.COMPLETED, to=JobState.COMPLETED)
    assert open_over_the_api(browser) == []
    assert browser.get(f"/api/v1/exceptions/{quote(name, safe='')}").json()["state"] == "recovered"


def test_an_operator_closes_on_its_page_what_waits_for_a_person(tmp_path: Path) -> None:
    place = site(tmp_path)
    Told(place.world).raise_("odd", "app.nan")
    browser = browser_of(place)
    form = {"csrf": csrf_of(browser.get("/exceptions/odd").text), "exception_id": "odd", "note": "looked at it"}
    assert browser.post("/do/exceptions/closing?back=/exceptions/odd", data=form).status_code == 303
    page = browser.get("/exceptions/odd").text
    assert re.search(r"it is about no job Closed by root , an operator \S.* looked at it$", card(page, "journey"))
    assert "A person is needed" not in page


def test_what_is_about_no_job_does_not_reach_one(tmp_path: Path) -> None:
    place = site(tmp_path)
    Told(place.world).raise_("odd", "app.nan")
    assert "<dt>Reaches</dt><dd>no job</dd>" in browser_of(place).get("/exceptions/odd").text
