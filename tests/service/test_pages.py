"""The dashboard's pages: what they show, how they escape it, and what stands still beside them."""

import doctest
import hashlib
import json
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.service import guard, orders
from perdure.service.pages import login, words
from perdure.service.pages.assets import STATIC, assets
from perdure.service.pages.logview import MAX_LINES, log_lines
from perdure.service.pages.navigation import NAVIGATION
from perdure.service.pages.now import window_of
from perdure.service.pages.render import TEMPLATES, environment
from perdure.service.pages.timeline import WIDTH, timeline
from perdure.service.queries import jobs as job_queries
from perdure.triage.verdict import Evidence, Role
from tests.service.web_world import Site, fill, site

JOB_PATHS = ["/jobs/101", "/jobs/102", "/jobs/104", "/jobs/106", "/jobs/102/log"]
PATHS = ["/", "/jobs", *JOB_PATHS, "/nodes", "/actions", "/whatif"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Site:
    place = site(tmp_path_factory.mktemp("pages"))
    fill(place.world)
    return place


def browser_of(place, token=None):
    browser = place.client()
    browser.post("/login", data={"token": token or place.operator})
    return browser


@pytest.fixture(scope="module")
def browser(place):
    return browser_of(place)


class Outline(HTMLParser):
    """Tags, ids and inline code of a page; knows whether tags close."""

    VOID = frozenset({"meta", "link", "input", "br", "rect", "path", "circle", "img"})

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.inline, self.headings = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("fragment", [False, True], ids=["whole", "fragment"])
@pytest.mark.parametrize("path", PATHS)
def test_pages_are_sound_and_hold_no_inline_code(browser, path, fragment):
    answer = browser.get(path, headers={"HX-Request": "true"} if fragment else {})
    assert answer.status_code == 200
    outline = Outline(answer.text)
    assert outline.open == []
    assert outline.inline == []
    assert len(outline.ids) == len(set(outline.ids))
    assert answer.text.startswith("<!doctype html>") == (not fragment and not path.endswith("/log"))
    if not path.endswith("/log"):
        assert outline.headings[0] == "h1"
        assert answer.text.count('id="live"') == 1


def test_every_page_of_the_navigation_is_there(browser):
    for entry in NAVIGATION:
        text = browser.get(entry.path).text
        assert re.search(rf'<a href="{entry.path}" aria-current="page">', text)


def test_the_first_page_says_how_things_stand(browser):
    text = browser.get("/").text
    for words_ in ("unet-w48", "Shapes, types or devices", "owner: Perdure", "Resources", "llm-7b", "16 of 48 GPUs"):
        assert words_ in text


def test_every_page_and_listing_is_read_from_every_database(where, tmp_path):
    place = site(tmp_path, where=where)
    browser = browser_of(place)
    listings = [f"/api/v1/{name}" for name in ("jobs?q=net&state=failed", "jobs/101", "nodes", "actions", "events")]
    for filled in (False, True):
        if filled:
            fill(place.world)
        for path in (*PATHS, "/jobs?q=unet&user=jonas", "/actions?state=done", *listings):
            expected = 200 if filled or not re.search(r"/10\d", path) else 404
            assert browser.get(path).status_code == expected, path
    text = browser.get("/metrics").text
    assert "perdure_journal_up 1.0" in text
    assert 'perdure_decisions_total{category="shape",kind="stop"} 1.0' in text
    place.world.journal.close()


def test_an_empty_cluster_is_explained(tmp_path):
    text = browser_of(site(tmp_path)).get("/").text
    for words_ in ("Nothing has failed yet", "Nothing runs", "The queue is empty"):
        assert words_ in text


def test_a_job_shows_evidence_numbers_and_owner(browser):
    text = browser.get("/jobs/101").text
    for words_ in ("mat1 and mat2 shapes", "root cause", "Expected cost", "owns it", "Would fail again"):
        assert words_ in text


def test_a_viewer_sees_neither_foreign_lines_nor_buttons(place):
    viewer = browser_of(place, place.mira)
    text = viewer.get("/jobs/101").text
    assert "mat1 and mat2" not in text
    assert "jonas's to read" in text
    assert "/do/" not in text
    assert "its log belongs to another user".capitalize() in viewer.get("/jobs/101/log").text
    shown = "".join(viewer.get(path).text for path in PATHS[1:] if path != "/whatif")
    assert set(re.findall(r'action="(/do/[^"?]*)', shown)) == {"/do/jobs/102/attempts/1/correction"}  # her own job


def test_the_log_is_cleaned_and_its_evidence_marked(browser):
    text = browser.get("/jobs/101/log").text
    assert re.search(r'<li class="role-root">.*?mat1 and mat2', text, re.DOTALL)


@pytest.mark.parametrize(("armed", "stopped", "said"), [(False, False, "Shadow mode."), (True, True, "switch is on")])
def test_the_mode_is_told_on_every_page(tmp_path, armed, stopped, said):
    place = site(tmp_path)
    fill(place.world)
    place.desk.armed, place.desk.stopped = armed, stopped
    browser = browser_of(place)
    assert all(said in browser.get(path).text for path in ("/", "/jobs", "/nodes", "/actions", "/jobs/101"))


def test_what_cannot_be_seen_is_told_with_its_reason(tmp_path):
    place = site(tmp_path)
    place.world.unseen = {"accounting": "slurmdbd is <down>"}
    assert "Cannot see: accounting.</strong> slurmdbd is &lt;down&gt;" in browser_of(place).get("/").text


def test_jobs_are_searched_and_paged(tmp_path):
    place = site(tmp_path)
    for number in range(60):
        place.world.submit(str(number), f"train-{number}")
    browser = browser_of(place)
    first = browser.get("/jobs?q=train").text
    older = re.search(r'href="(/jobs\?[^"]*cursor=[^"]*)"', first)[1].replace("&amp;", "&")
    assert "train-59" in first
    assert "train-0<" in browser.get(older).text
    assert "No job matches" in browser.get("/jobs?q=nothing").text
    assert "train-7<" in browser.get("/jobs?q=train-7").text


def test_a_deed_from_htmx_is_answered_by_events(tmp_path):
    place = site(tmp_path)
    fill(place.world)
    browser = browser_of(place)
    csrf = re.search(r'name="csrf" content="([^"]+)"', browser.get("/").text)[1]
    hx = {"HX-Request": "true", "X-CSRF-Token": csrf}
    done = browser.post("/do/jobs/107", data={"kind": "hold"}, headers=hx)
    assert done.status_code == 204
    assert set(json.loads(done.headers["hx-trigger"])) == {"perdure:told", "perdure:refresh"}
    again = browser.post("/do/jobs/104", data={"kind": "hold"}, headers=hx)
    assert again.status_code == 409
    assert json.loads(again.headers["hx-trigger"])["perdure:told"]["bad"] is True
    plain = browser.post("/do/nodes/gpu01?back=/nodes", data={"kind": "drain", "csrf": csrf})
    assert plain.headers["location"] == "/nodes"
    away = browser.post("/do/nodes/gpu01?back=//evil.example", data={"kind": "undrain", "csrf": csrf})
    assert away.headers["location"] == "/"


def test_an_expired_session_leads_to_the_door(place):
    answer = place.client(**{"HX-Request": "true"}).get("/")
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")
    assert place.client().get("/nodes").headers["location"] == "/login?next=%2Fnodes"


def test_an_unknown_page_is_a_page(browser):
    answer = browser.get("/jobs/" + quote("<script>alert(1)</script>", safe=""))
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "To the first page" in answer.text


# -- hostile text


@given(st.text())
def test_shown_text_has_nothing_invisible(text):
    shown = words.shown(text)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    shown.encode()


@given(st.text(alphabet="<>&\"'/=` \n\0\x1b\u202eabc"))
def test_every_template_value_is_escaped(text):
    rendered = environment().from_string("{{ value }}").render(value=text)
    assert rendered == str(escape(words.shown(text)))
    assert "<" not in rendered


def test_no_template_turns_escaping_off():
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe|autoescape\s+false|Markup", text), path.name
        assert not re.search(r"""\s(on\w+|style)\s*=""", re.sub(r"{[{%#].*?[%#}]}", "", text)), path.name


# -- parts


def test_the_axis_of_attempts_holds_waits_and_runs():
    job = Job("c", "1", "", "", JobState.RUNNING, submit_s=0.0)
    first = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 100.0, 300.0)
    second = Attempt(AttemptId("c", "1", 2), AttemptState.RUNNING, ("n2",), 500.0)
    laid = timeline(job, [first, second], now=1000.0)
    assert [(s.wait_s, s.ran_s) for s in laid.stripes] == [(100.0, 200.0), (200.0, 500.0)]
    assert [(s.wait_x, s.wait_width, s.x, s.width) for s in laid.stripes] == [
        (0.0, 100.0, 100.0, 200.0),
        (300.0, 200.0, 500.0, 500.0),
    ]


@given(st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e6)), min_size=1, max_size=8), st.floats(0, 2e7))
def test_no_stripe_leaves_the_axis(spans, now):
    attempts = [
        Attempt(AttemptId("c", "1", i), AttemptState.FAILED, (), start, start + ran)
        for i, (start, ran) in enumerate(sorted(spans))
    ]
    laid = timeline(Job("c", "1", "", "", JobState.FAILED, submit_s=5.0), attempts, now)
    for stripe in laid.stripes:
        assert 0 <= stripe.wait_x <= stripe.x <= WIDTH
        assert 0 < stripe.width <= WIDTH - stripe.x + 1e-6
        assert stripe.wait_width >= 0


def test_a_log_is_cut_to_its_end_and_numbered_where_it_is_whole():
    raw = b"".join(b"line %d\n" % i for i in range(1, 1001))
    lines = log_lines(raw, (Evidence(990, "line 990", Role.ROOT, "r"),), whole=True)
    assert len(lines) == MAX_LINES
    assert (lines[-1].number, lines[-1].text) == (1000, "line 1000")
    assert [line.number for line in lines if line.role] == [990]
    assert log_lines(raw, (), whole=False)[0].number is None


def test_a_log_of_one_endless_line_is_bounded():
    (line,) = log_lines(b"\xff\x00\x1b[31m" + b"x" * 3_000_000, (), whole=True)
    assert len(line.text) <= 2000


def test_a_progress_bar_is_shown_as_it_stood_last():
    assert [line.text for line in log_lines(b"10%\r50%\r100%\ndone\n", (), whole=True)] == ["100%", "done"]


@pytest.mark.parametrize(("first_s", "spell_s"), [(None, 3600.0), (100_000.0 - 60, 300.0), (20_000.0, 3600.0)])
def test_a_young_journal_is_drawn_in_small_spells(first_s, spell_s):
    assert window_of(first_s, 100_000.0).spell_s == spell_s


def test_every_state_has_a_badge_of_its_own():
    for state in JobState:
        assert words.badge("job", state).icon != "question"
    for state in AttemptState:
        assert words.badge("attempt", state).text
    assert words.badge("job", "<new>").text == "<new>"


def test_states_differ_by_more_than_colour():
    for badges in words.BADGES.values():
        texts = [badge.text for badge in badges.values()]
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("module", [words, guard, orders, login, job_queries])
def test_examples_hold(module):
    assert doctest.testmod(module).failed == 0


# -- what stands still


def test_files_of_others_are_unchanged():
    vendor = json.loads((STATIC / "vendor.json").read_text())
    listed = set()
    for package in vendor["packages"]:
        assert package["version"]
        assert package["licence"]
        assert package["licence_file"] in {file["path"] for file in package["files"]}
        for file in package["files"]:
            listed.add(file["path"])
            assert hashlib.sha256((STATIC / file["path"]).read_bytes()).hexdigest() == file["sha256"], file["path"]
    own = {"app.js", "theme.js", "upload.js", "perdure.css", "perdure.svg", "vendor.json"}
    assert {p.relative_to(STATIC).as_posix() for p in STATIC.rglob("*") if p.is_file()} == listed | own


def test_assets_are_addressed_by_their_content(place):
    client = place.client()
    url = assets().url("app.js")
    assert "immutable" in client.get(url).headers["cache-control"]
    assert client.get("/static/app.js").headers["cache-control"] == "no-cache"
    for path in ("/static/../auth.py", "/static/%2e%2e/auth.py", "/static/vendor.json", "/static/nope.js"):
        assert client.get(path).status_code == 404


def test_pages_need_nothing_from_elsewhere(browser):
    for path in PATHS:
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", browser.get(path).text)
    for name in ("app.js", "perdure.css", "theme.js", "upload.js"):
        assert "//" not in re.sub(r"(?m)^\s*//.*$|\s//\s.*$", "", (STATIC / name).read_text())
