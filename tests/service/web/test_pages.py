"""The dashboard's pages: what they show, how they escape it, and what stands still beside them."""

import csv
import hashlib
import io
import json
import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from perdure.model.actions import Hold, Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core import waiting
from perdure.service.core.messages import Ordered
from perdure.service.store.queries import jobs as job_queries
from perdure.service.store.queries import nodes as node_queries
from perdure.service.store.queries.order import SortOrder
from perdure.service.store.queries.reader import Reader
from perdure.service.web.pages import labels, listing
from perdure.service.web.pages.assets import STATIC, assets
from perdure.service.web.pages.logview import MAX_LINES, log_lines
from perdure.service.web.pages.navigation import NAVIGATION
from perdure.service.web.pages.now import window_of
from perdure.service.web.pages.render import TEMPLATES, environment
from perdure.service.web.pages.timeline import WIDTH, timeline
from perdure.triage.verdict import CauseRole, Evidence
from tests.copying import replace
from tests.finding import found_in
from tests.service.web_world import CLUSTER, HOUR, SHAPE, Site, TestClient, csrf_of, fill, site

JOB_PATHS = ["/jobs/101", "/jobs/102", "/jobs/104", "/jobs/106", "/jobs/102/log"]
PATHS = ["/", "/jobs", *JOB_PATHS, "/nodes", "/nodes/gpu03", "/actions", "/notices", "/whatif", "/speed"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("pages"))
    fill(place.world)
    return place


def browser_of(place: Site, token: str | None = None) -> TestClient:
    browser = place.client()
    browser.post("/login", data={"token": token or place.operator})
    return browser


@pytest.fixture(scope="module")
def browser(place: Site) -> TestClient:
    return browser_of(place)


class Outline(HTMLParser):
    """Tags, ids and inline code of a page; knows whether tags close."""

    VOID = frozenset({"meta", "link", "input", "br", "rect", "path", "circle", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.inline, self.headings = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("fragment", [False, True], ids=["whole", "fragment"])
@pytest.mark.parametrize("path", PATHS)
def test_pages_are_sound_and_hold_no_inline_code(browser: TestClient, path: str, fragment: bool) -> None:
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


def test_every_page_of_the_navigation_is_there(browser: TestClient) -> None:
    for entry in NAVIGATION:
        text = browser.get(entry.path).text
        assert re.search(rf'<a href="{entry.path}" aria-current="page">', text)


def test_the_first_page_says_how_things_stand(browser: TestClient) -> None:
    text = browser.get("/").text
    for words_ in ("unet-w48", "Shapes, types or devices", "owner: Perdure", "Resources", "llm-7b", "16 of 48 GPUs"):
        assert words_ in text


def test_every_page_and_listing_is_read_from_every_database(where: Path | str, tmp_path: Path) -> None:
    place = site(tmp_path, where=where)
    browser = browser_of(place)
    listings = [f"/api/v1/{name}" for name in ("jobs?q=net&state=failed", "jobs/101", "nodes", "actions", "events")]
    for filled in (False, True):
        if filled:
            fill(place.world)
        for path in (*PATHS, "/jobs?q=unet&user=jonas", "/actions?state=done", *listings):
            expected = 200 if filled or not re.search(r"jobs/10\d", path) else 404
            assert browser.get(path).status_code == expected, path
    text = browser.get("/metrics").text
    assert "perdure_journal_up 1.0" in text
    assert 'perdure_decisions_total{category="shape",kind="stop"} 1.0' in text
    place.world.journal.close()


def test_an_empty_cluster_is_explained(tmp_path: Path) -> None:
    text = browser_of(site(tmp_path)).get("/").text
    assert "data-chart=" not in text
    for words_ in ("Nothing has failed yet", "No GPU-hours were saved or wasted", "Nothing runs", "The queue is empty"):
        assert words_ in text


def test_a_job_shows_evidence_numbers_and_owner(browser: TestClient) -> None:
    text = browser.get("/jobs/101").text
    for words_ in ("mat1 and mat2 shapes", "root cause", "Expected cost", "took it", "Would fail again"):
        assert words_ in text


def test_a_viewer_sees_neither_foreign_lines_nor_buttons(place: Site) -> None:
    viewer = browser_of(place, place.mira)
    text = viewer.get("/jobs/101").text
    assert "mat1 and mat2" not in text
    assert "jonas's to read" in text
    assert "/do/" not in text
    assert "its log belongs to another user".capitalize() in viewer.get("/jobs/101/log").text
    shown = "".join(viewer.get(path).text for path in PATHS[1:] if path not in ("/whatif", "/speed"))
    assert set(re.findall(r'action="(/do/[^"?]*)', shown)) == {"/do/jobs/102/attempts/1/correction"}  # her own job


def test_the_log_is_cleaned_and_its_evidence_marked(browser: TestClient) -> None:
    text = browser.get("/jobs/101/log").text
    assert re.search(r'<li class="role-root" id="L5">.*?mat1 and mat2', text, re.DOTALL)


@pytest.mark.parametrize(("armed", "stopped", "said"), [(False, False, "Shadow mode."), (True, True, "switch is on")])
def test_the_mode_is_told_on_every_page(tmp_path: Path, armed: bool, stopped: bool, said: str) -> None:
    place = site(tmp_path)
    fill(place.world)
    place.commands.armed, place.commands.stopped = armed, stopped
    browser = browser_of(place)
    assert all(said in browser.get(path).text for path in ("/", "/jobs", "/nodes", "/actions", "/jobs/101"))


def test_hours_saved_are_called_an_estimate_and_no_deed_in_shadow_mode(tmp_path: Path) -> None:
    place = site(tmp_path)
    for armed, said in ((True, "by not repeating"), (False, "if nobody repeats")):
        place.commands.armed = armed
        assert f"estimated for 24 h, {said} what would fail again" in browser_of(place).get("/").text


def test_what_cannot_be_seen_is_told_with_its_reason(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.unseen = {"accounting": "slurmdbd is <down>"}
    assert "Cannot see: accounting.</strong> slurmdbd is &lt;down&gt;" in browser_of(place).get("/").text


def test_a_spent_budget_is_told_with_its_end_and_what_gives_more(tmp_path: Path) -> None:
    place = site(tmp_path)
    assert "budgets are spent" not in browser_of(place).get("/").text
    place.world.spend(100, "bob")
    until = datetime.fromtimestamp(place.world.now + HOUR).strftime("%H:%M")
    text = browser_of(place).get("/").text
    assert f"The cluster&#39;s retries: 100 of 100 in an hour, until {until}" in text
    assert "<code>retry.cluster_floor_per_hour</code> gives more" in text


def test_jobs_are_searched_and_paged(tmp_path: Path) -> None:
    place = site(tmp_path)
    for number in range(60):
        place.world.submit(str(number), f"train-{number}")
    browser = browser_of(place)
    first = browser.get("/jobs?q=train").text
    older = found_in(first, r'href="(/jobs\?[^"]*cursor=[^"]*)"').replace("&amp;", "&")
    assert "train-59" in first
    assert "train-0<" in browser.get(older).text
    assert "No job matches" in browser.get("/jobs?q=nothing").text
    assert "train-7<" in browser.get("/jobs?q=train-7").text


def test_a_deed_from_htmx_is_answered_by_events(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    browser = browser_of(place)
    csrf = csrf_of(browser.get("/").text)
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


def test_an_expired_session_leads_to_the_door(place: Site) -> None:
    answer = place.client(**{"HX-Request": "true"}).get("/")
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")
    assert place.client().get("/nodes").headers["location"] == "/login?next=%2Fnodes"
    assert place.client().get("/").headers["location"] == "/login"
    asked = "/jobs?user=mira&sort=-gpus"
    opened = place.client(**{"HX-Request": "true", "HX-Current-URL": f"http://127.0.0.1:8470{asked}"}).get(asked)
    to = f"/login?next={quote(asked, safe='')}"
    assert (opened.headers["hx-redirect"], place.client().get(asked).headers["location"]) == (to, to)
    back = place.client().post("/login", data={"token": place.operator, "next": asked})
    assert f'content="0;url={escape(asked)}"' in back.text


def test_an_unknown_page_is_a_page(browser: TestClient) -> None:
    answer = browser.get("/jobs/" + quote("<script>alert(1)</script>", safe=""))
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "To the first page" in answer.text
    main = answer.text.partition("<main")[2]
    assert "perdure jobs" not in main  # a person at a page has the page
    assert '<a class="button" href="/jobs">To Jobs</a>' in main
    assert "/api/" not in browser.get("/no-such-page").text.partition("<main")[2]


# -- hostile text


@given(st.text())
def test_shown_text_has_nothing_invisible(text: str) -> None:
    shown = labels.shown(text)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    shown.encode()


@given(st.text(alphabet="<>&\"'/=` \n\0\x1b\u202eabc"))
def test_every_template_value_is_escaped(text: str) -> None:
    rendered = environment().from_string("{{ value }}").render(value=text)
    assert rendered == str(escape(labels.shown(text)))
    assert "<" not in rendered


def test_no_template_turns_escaping_off() -> None:
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe|autoescape\s+false|Markup", text), path.name
        assert not re.search(r"""\s(on\w+|style)\s*=""", re.sub(r"{[{%#].*?[%#}]}", "", text)), path.name


# -- parts


def test_the_axis_of_attempts_holds_waits_and_runs() -> None:
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
def test_no_stripe_leaves_the_axis(spans: list[Any], now: float) -> None:
    attempts = [
        Attempt(AttemptId("c", "1", i), AttemptState.FAILED, (), start, start + ran)
        for i, (start, ran) in enumerate(sorted(spans))
    ]
    laid = timeline(Job("c", "1", "", "", JobState.FAILED, submit_s=5.0), attempts, now)
    for stripe in laid.stripes:
        assert 0 <= stripe.wait_x <= stripe.x <= WIDTH
        assert 0 < stripe.width <= WIDTH - stripe.x + 1e-6
        assert stripe.wait_width >= 0


def test_a_log_is_cut_to_its_end_and_numbered_where_it_is_whole() -> None:
    raw = b"".join(b"line %d\n" % i for i in range(1, 1001))
    lines = log_lines(raw, (Evidence(990, "line 990", CauseRole.ROOT, "r"),), whole=True)
    assert len(lines) == MAX_LINES
    assert (lines[-1].number, lines[-1].text) == (1000, "line 1000")
    assert [line.number for line in lines if line.role] == [990]
    assert log_lines(raw, (), whole=False)[0].number is None


def test_a_log_of_one_endless_line_is_bounded() -> None:
    (line,) = log_lines(b"\xff\x00\x1b[31m" + b"x" * 3_000_000, (), whole=True)
    assert len(line.text) <= 2000


def test_a_progress_bar_is_shown_as_it_stood_last() -> None:
    assert [line.text for line in log_lines(b"10%\r50%\r100%\ndone\n", (), whole=True)] == ["100%", "done"]


@pytest.mark.parametrize(("first_s", "spell_s"), [(None, 3600.0), (100_000.0 - 60, 300.0), (20_000.0, 3600.0)])
def test_a_young_journal_is_drawn_in_small_spells(first_s: float | None, spell_s: float) -> None:
    assert window_of(first_s, 100_000.0).spell_s == spell_s


def test_every_state_has_a_badge_of_its_own() -> None:
    for state in JobState:
        assert labels.badge("job", state).icon != "question"
    for of_attempt in AttemptState:
        assert labels.badge("attempt", of_attempt).text
    assert labels.badge("job", "<new>").text == "<new>"


def test_states_differ_by_more_than_colour() -> None:
    for badges in labels.BADGES.values():
        texts = [badge.text for badge in badges.values()]
        assert len(set(texts)) == len(texts)


# -- what stands still


def test_files_of_others_are_unchanged() -> None:
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


def test_assets_are_addressed_by_their_content(place: Site) -> None:
    client = place.client()
    url = assets().url("app.js")
    assert "immutable" in client.get(url).headers["cache-control"]
    assert client.get("/static/app.js").headers["cache-control"] == "no-cache"
    for path in ("/static/../auth.py", "/static/%2e%2e/auth.py", "/static/vendor.json", "/static/nope.js"):
        assert client.get(path).status_code == 404


def test_pages_need_nothing_from_elsewhere(browser: TestClient) -> None:
    for path in PATHS:
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", browser.get(path).text)
    for name in ("app.js", "perdure.css", "theme.js", "upload.js"):
        assert "//" not in re.sub(r"(?m)^\s*//.*$|\s//\s.*$", "", (STATIC / name).read_text())


# -- listings: sorted, narrowed, as a file


def names_in(text: str) -> list[Any]:
    return re.findall(r'<span class="job-name">([^<]*)</span>', text)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Seven jobs of two users and partitions, an hour apart."""
    place = site(tmp_path_factory.mktemp("listed"))
    for number, name in enumerate(("delta", "alpha", "echo", "bravo", "golf", "charlie", "foxtrot")):
        place.world.submit(str(number), name, ("mira", "jonas")[number % 2], number % 3)
        job = place.world.jobs[str(number)]
        place.world.jobs[str(number)] = replace(job, partition=("gpu", "debug")[number > 3])
        place.world.look()
        place.world.pass_time(HOUR)
    return browser_of(place)


def test_a_table_is_sorted_by_plain_links_to_and_fro(listed: TestClient) -> None:
    by_name = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf"]
    assert names_in(listed.get("/jobs?sort=job").text) == by_name
    text = listed.get("/jobs?sort=-job").text
    assert names_in(text) == by_name[::-1]
    assert '<th scope="col" aria-sort="descending"><a class="sort" href="/jobs?sort=job">' in text
    assert listed.get("/jobs?sort=nonsense").status_code == 422


@pytest.mark.parametrize("column", [*job_queries.SORTED_BY, *(f"-{name}" for name in job_queries.SORTED_BY)])
def test_pages_of_a_sorted_listing_hold_every_row_once(where: Path | str, tmp_path: Path, column: str) -> None:
    place = site(tmp_path, where=where)
    for number in range(23):
        place.world.submit(str(number), f"n{number % 4}", f"u{number % 3}", number % 2, look=False)
    place.world.look()
    reader = Reader(place.world.journal.engine, CLUSTER)
    order, cursor, found = SortOrder(column.removeprefix("-"), column.startswith("-")), None, []
    while True:
        page = job_queries.find_jobs(reader, order=order, cursor=cursor, limit=5)
        found += [row.job for row in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert len({job.job_id for job in found}) == len(found) == 23
    name = {"job": "name", "submitted": "submit_s"}.get(order.column, order.column)
    values = [getattr(job, name) for job in found]
    assert values == sorted(values, reverse=order.falling)
    place.world.journal.close()


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("user=jonas", ["charlie", "bravo", "alpha"]),
        ("partition=debug&sort=job", ["charlie", "foxtrot", "golf"]),
        ("user=mira&partition=debug", ["foxtrot", "golf"]),
        ("last=24h&sort=job&user=jonas", ["alpha", "bravo", "charlie"]),
        ("last=1h", ["foxtrot"]),
    ],
)
def test_a_listing_is_narrowed_by_user_partition_and_time(listed: TestClient, query: str, shown: list[str]) -> None:
    text = listed.get(f"/jobs?{query}").text
    assert names_in(text) == shown
    number = sum(name in query for name in ("user", "partition", "last"))
    assert f'Filter <span class="filters-set">{number}<span' in text


def test_a_listing_of_a_stretch_of_time_is_asked_for_by_the_clock(listed: TestClient) -> None:
    moments = [datetime.fromtimestamp(1_790_000_000.0 + h * HOUR).strftime("%Y-%m-%dT%H:%M:%S") for h in (1.5, 3.5)]
    assert names_in(listed.get("/jobs?from={}&to={}".format(*moments)).text) == ["bravo", "echo"]
    refused = listed.get("/jobs?from=yesterday")
    assert refused.status_code == 422
    assert "is not a date and time" in refused.text


LISTINGS = ["/jobs", "/nodes", "/actions", "/exceptions", "/nodes/gpu03"]


@pytest.mark.parametrize("path", LISTINGS)
def test_a_table_is_a_file_too_with_the_rows_it_shows(browser: TestClient, path: str) -> None:
    answer = browser.get(path, params={"format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(r'attachment; filename="perdure-[a-z-]+\.csv"', answer.headers["content-disposition"])
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)
    if path == "/jobs":
        failed = csv.DictReader(io.StringIO(browser.get("/jobs?state=failed&format=csv").text))
        assert [row["job_id"] for row in failed] == [row["job_id"] for row in rows if row["state"] == "failed"]


def test_a_file_holds_more_than_a_page_and_no_formula(tmp_path: Path) -> None:
    place = site(tmp_path)
    for number in range(260):
        place.world.submit(str(number), "=HYPERLINK(0)" if number else " \t@SUM(1)", "-1+2", look=False)
    place.world.look()
    rows = list(csv.DictReader(io.StringIO(browser_of(place).get("/jobs?format=csv").text)))
    assert len(rows) == 260
    assert {row["name"] for row in rows} == {"'=HYPERLINK(0)", "' \t@SUM(1)"}
    assert {row["user"] for row in rows} == {"'-1+2"}


@given(st.text())
def test_no_text_in_a_file_begins_as_a_formula(text: str) -> None:
    written = str(listing.cell(text))
    assert not written.lstrip().startswith(listing.FORMULA)
    assert all(c.isprintable() or c in "\n\t" for c in written)


def test_a_viewers_file_of_exceptions_holds_no_lines_of_others(place: Site) -> None:
    def says(token: str) -> dict[Any, Any]:
        text = browser_of(place, token).get("/exceptions?format=csv").text
        return {row["user"]: row["says"] for row in csv.DictReader(io.StringIO(text))}

    assert "mat1 and mat2" in browser_of(place, place.operator).get("/exceptions?format=csv").text
    assert set(says(place.mira)) == {"mira"}


# -- a node


def test_a_nodes_page_shows_what_runs_failed_and_waits_there(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    text = browser_of(place).get("/nodes/gpu05").text
    assert names_in(text) == ["llm-7b"]
    assert "8 of 8 GPUs in use" in text
    assert "Node lost" in browser_of(place).get("/nodes/gpu03").text
    assert browser_of(place).get("/nodes/none").status_code == 404
    assert "/do/" not in browser_of(place, place.mira).get("/nodes/gpu05").text


def nodes_on(text: str) -> list[Any]:
    return re.findall(r'<h2><a class="quiet mono" href="/nodes/([^"]+)"', text)


def test_nodes_are_narrowed_by_partition_and_state(tmp_path: Path) -> None:
    place = site(tmp_path)
    partitions = {"gpu01": ("a",), "gpu02": ("a", "b"), "gpu03": ("b",)}
    for name, node in place.world.nodes.items():
        state = NodeState.DOWN if name == "gpu02" else NodeState.UP
        place.world.nodes[name] = replace(node, partitions=partitions.get(name, ("c",)), state=state)
    place.world.look()
    browser = browser_of(place)
    assert nodes_on(browser.get("/nodes?partition=b").text) == ["gpu02", "gpu03"]
    assert nodes_on(browser.get("/nodes?partition=b&state=down").text) == ["gpu02"]
    assert nodes_on(browser.get("/nodes?partition=b&sort=-name").text) == ["gpu03", "gpu02"]
    assert 'href="/nodes?state=down&amp;partition=a"' in browser.get("/nodes?state=down&partition=b").text
    assert "Choose another state or partition" in browser.get("/nodes?partition=none").text
    first = node_queries.find_nodes(Reader(place.world.journal.engine, CLUSTER), partition="c", limit=2)
    rest = node_queries.find_nodes(
        Reader(place.world.journal.engine, CLUSTER), partition="c", limit=2, cursor=first.next_cursor
    )
    assert [row.node.name for row in (*first.items, *rest.items)] == ["gpu04", "gpu05", "gpu06"]
    assert rest.next_cursor is None


def test_a_job_that_waits_for_a_drained_node_says_so_and_who_drained_it(tmp_path: Path) -> None:
    place = site(tmp_path)
    world = place.world
    world.submit("1", "pinned", "mira", required=("gpu02",))
    world.order_drain("gpu02", "fan is loud", by="root")
    world.carry_out()
    world.nodes["gpu02"] = replace(world.nodes["gpu02"], state=NodeState.DRAINED, reason="fan is loud")
    world.submit("2", "free", "mira")
    since_s = world.nodes["gpu02"].since_s
    assert since_s is not None
    clock = datetime.fromtimestamp(since_s).strftime("%H:%M")
    said = f"aits for gpu02, which is drained since {clock} by root: fan is loud"
    browser = browser_of(place)
    for path in ("/", "/jobs", "/jobs/1"):
        assert browser.get(path).text.count(said) == 1, path
    assert browser.get("/jobs?format=csv").text.count(said) == 1
    assert "aits for gpu02" not in browser.get("/jobs/2").text
    assert names_in(browser.get("/nodes/gpu02").text) == ["pinned"]
    assert "by root" in browser.get("/nodes").text


@pytest.mark.parametrize(
    ("job", "blocking"),
    [
        ({"required": ("n1",)}, ()),
        ({"required": ("n1", "n3")}, ("n3",)),
        ({"node_count": 2, "gpus": 8}, ()),
        ({"node_count": 3, "gpus": 12}, ("n3",)),
        ({"node_count": 4, "gpus": 12}, ()),  # no cluster could
        ({"node_count": 2, "gpus": 8, "excluded": ("n1",)}, ("n3", "n1")),
        ({"excluded": ("n1", "n2")}, ("n3", "n1", "n2")),
        ({"excluded": ("n1", "n3")}, ()),
        ({"node_count": 2, "gpus": 8, "partition": "b"}, ("n3",)),
        ({"node_count": 2, "gpus": 8, "partition": "c,b"}, ("n3",)),  # it may start in either
        ({"node_count": 2, "gpus": 8, "partition": "b,a"}, ()),
        ({"required": ("n3",), "state": JobState.RUNNING}, ()),
    ],
)
def test_a_job_waits_for_nodes_out_of_service_only_where_others_would_not_do(
    job: dict[str, Any], blocking: tuple[str, ...]
) -> None:
    there = [
        Node("n1", NodeState.UP, gpus=4, partitions=("a",)),
        Node("n2", NodeState.UP, gpus=4, partitions=("a", "b")),
        Node("n3", NodeState.DRAINED, gpus=4, partitions=("a", "b")),
    ]
    state = job.pop("state", JobState.PENDING)
    found = waiting.blocked_by(Job("c", "1", "", "", state, 0.0, **job), there)
    assert tuple(node.name for node in found) == blocking


def test_a_job_says_which_nodes_it_is_kept_off() -> None:
    job = Job("c", "1", "", "", JobState.PENDING, 0.0, excluded=("n1",))
    found = waiting.blocked_by(job, [Node("n1", NodeState.UP), Node("n2", NodeState.DOWN, "no power")])
    assert waiting.in_words(found, {}) == "waits for n2, which is down: no power; n1, which it is kept off"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("PartitionDown", "waits for its partition, which is down"),  # also once the node is back
        ("BeginTime", "waits for n2, which is down"),
        ("Resources", "waits for n2, which is down"),
        ("PartitionTimeLimit", "waits because the time limit is above the partition's (PartitionTimeLimit)"),
        ("AccountNotAllowed", "waits because the partition does not admit the account (AccountNotAllowed)"),
        ("QOSNotAllowed", "waits because the account or the partition does not admit the QOS (QOSNotAllowed)"),
        ("InvalidQOS", "waits because the QOS is not valid (InvalidQOS)"),
        ("QOSMaxGRESPerUser", "waits because of a limit of the QOS (QOSMaxGRESPerUser)"),
        ("AssocGrpCpuLimit", "waits because of a limit of the account or user (AssocGrpCpuLimit)"),
        ("PartitionNodeLimit", "waits for n2, which is down"),  # Slurm says so of missing nodes, too
    ],
)
def test_what_no_node_would_change_comes_before_the_nodes_that_a_job_waits_for(reason: str, said: str) -> None:
    job = Job("c", "1", "", "", JobState.PENDING, 0.0, reason=reason)
    down = [Node("n2", NodeState.DOWN)]
    assert waiting.waits_in_words(job, down, {}) == said
    assert waiting.waits_in_words(replace(job, state=JobState.RUNNING), down, {}) == ""


def test_a_job_that_asks_for_too_much_time_waits_for_no_node() -> None:
    job = Job("c", "1", "", "", JobState.PENDING, 0.0, excluded=("n1",))
    nodes = [Node("n1", NodeState.UP), Node("n2", NodeState.DRAINED)]
    assert len(waiting.blocked_by(job, nodes)) == 2
    assert waiting.blocked_by(replace(job, reason="PartitionTimeLimit"), nodes) == ()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("BeginTime", "waits for the time at which it may start"),
        (
            "PartitionNodeLimit",
            "waits because the number of nodes is outside the partition's limits (PartitionNodeLimit)",
        ),
        ("Resources", "waits for nodes, GPUs or memory that others use (Resources)"),
    ],
)
def test_a_time_to_wait_for_is_said_where_no_node_is_missing(reason: str, said: str) -> None:
    job = Job("c", "1", "", "", JobState.PENDING, 0.0, reason=reason)
    assert waiting.waits_in_words(job, (), {}) == said


REASONS = """
AccountNotAllowed AccountingPolicy AssocGrpCpuLimit AssocMaxJobsLimit AssociationJobLimit AssociationResourceLimit
AssociationTimeLimit BadConstraints BeginTime BlockFreeAction BlockMaxError BurstBufferOperation BurstBufferResources
BurstBufferStageIn Cleaning Dependency DependencyNeverSatisfied FedJobLock FrontEndDown InvalidAccount InvalidQOS
JobArrayTaskLimit Licenses MaxGRESPerAccount MaxCpuRunMinsPerUser MaxMemPerLimit MaxPoweredUpNodes MpiPortsBusy NodeDown
PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit Priority Prolog QOSGrpNodeLimit
QOSJobLimit QOSMaxCpuPerJobLimit QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
ReqNodeNotAvail,_UnavailableNodes:n7 Reservation ReservationDeleted ReservationInvalid Resources SchedDefer
WaitingForScheduling
"""
HELD_FOR = """
JobHeldUser JobHeldAdmin JobHoldMaxRequeue BadConstraints SpecialExit job_requeued_in_held_state
launch_failed_requeued_held
"""


@pytest.mark.parametrize(
    ("reason", "state"),
    [(reason, JobState.PENDING) for reason in REASONS.split()]
    + [(reason, JobState.HELD) for reason in HELD_FOR.split()],
)
def test_no_reason_of_slurm_is_shown_bare(reason: str, state: JobState) -> None:
    """Those of squeue(1) and of the library in 22.05 and 24.11, for jobs that wait."""
    job = Job("c", "1", "", "", state, 0.0, reason=reason)
    said = waiting.waits_in_words(job, (), {})
    assert said.startswith("is held " if state is JobState.HELD else "waits ")
    assert len(said.partition(" (")[0].split()) >= 3


def test_what_a_person_ordered_says_who_did(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    browser = browser_of(place)
    csrf = csrf_of(browser.get("/").text)
    browser.post("/do/jobs/107", data={"kind": "hold", "reason": "too early", "csrf": csrf})
    assert re.search(r"<dt>Ordered by root</dt><dd>Hold, .*: too early", browser.get("/jobs/107").text)
    assert "Ordered by" not in browser.get("/jobs/103").text  # that was Perdure


def test_a_held_job_says_whether_perdure_holds_it_and_who_had_it_do_so(tmp_path: Path) -> None:
    place = site(tmp_path)
    world = place.world
    fill(world)  # somebody holds 106
    world.carry_out()
    attempt = AttemptId(world.cluster, "107", 0)
    world.take(Ordered(world.now, Hold(attempt), "root", "too early"))
    world.carry_out()
    world.jobs["107"] = replace(world.jobs["107"], state=JobState.HELD, reason="JobHeldUser")
    world.look()
    browser = browser_of(place)
    for path in ("/", "/jobs", "/jobs/107", "/jobs?format=csv"):
        assert "s held by root: too early" in browser.get(path).text, path
    assert "it is held by a person (JobHeldUser)" in browser.get("/jobs/106").text
    world.take(Ordered(world.now, Release(attempt), "root", ""))
    world.carry_out()
    assert "it is held by a person (JobHeldUser)" in browser.get("/jobs/107").text  # who did is not known


def test_a_job_that_is_held_while_it_is_put_back_says_so(tmp_path: Path) -> None:
    place = site(tmp_path)
    world = place.world
    fill(world)
    row = next(row for row in world.journal.planned() if row.action.kind == "requeue")
    world.journal.begin(row.key, world.now)
    assert row.attempt is not None
    job_id = row.attempt.job_id
    world.jobs[job_id] = replace(world.jobs[job_id], state=JobState.HELD, reason="JobHeldUser")
    world.look()
    assert "it is held by Perdure while it is put back: " in browser_of(place).get(f"/jobs/{job_id}").text


# -- when something does not answer


def test_an_unreachable_manager_does_not_look_like_a_calm_cluster(tmp_path: Path) -> None:
    place = site(tmp_path)
    fill(place.world)
    place.world.unseen = {"controller": "no answer in 10 s"}
    place.commands.answered_s = place.world.now - 600
    browser = browser_of(place)
    since = labels.instant(place.world.now - 600)
    for path in ("/", "/jobs", "/nodes", "/jobs/101"):
        assert f"The resource manager does not answer since {since}." in browser.get(path).text
    text = browser.get("/").text
    assert "The resource manager answered last" in text
    assert f"as of {since[11:16]}" in text
    assert "No contact" in text
    assert "Looked at the cluster" not in text


def test_a_service_that_is_not_ready_says_why_on_every_page(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.commands.unready = ("the journal cannot be written",)
    browser = browser_of(place)
    for path in ("/", "/actions"):
        assert "Not ready:</strong> the journal cannot be written" in browser.get(path).text


def test_every_page_says_in_which_zone_its_times_are(browser: TestClient) -> None:
    for path in PATHS:
        if not path.endswith("/log"):
            assert f"all times in {labels.zone(1.79e9)}" in browser.get(path).text, path


@pytest.mark.parametrize("path", ["/jobs/none", "/nowhere", "/nodes/none", "/jobs?cursor=x"])
def test_an_error_keeps_the_navigation_for_who_is_logged_in(place: Site, browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code in (404, 422)
    assert all(f'href="{entry.path}"' in answer.text for entry in NAVIGATION)
    assert 'id="live"' not in answer.text  # nothing to keep current
    assert "<nav" not in place.client(place.operator).get(path).text


def test_a_refusal_keeps_the_navigation_too(place: Site) -> None:
    viewer = browser_of(place, place.mira)
    csrf = csrf_of(viewer.get("/").text)
    answer = viewer.post("/do/kill-switch", data={"on": "true", "csrf": csrf})
    assert answer.status_code == 403
    assert "a viewer may not do this" in answer.text
    assert all(f'href="{entry.path}"' in answer.text for entry in NAVIGATION if not entry.for_operators)


# -- the log


def test_a_jobs_page_opens_the_log_of_the_attempt_that_failed(browser: TestClient) -> None:
    frame = found_in(browser.get("/jobs/102").text, r'<div id="log"[^>]* hx-get="([^"]*)"')
    assert frame == "/jobs/102/log?incarnation=1"
    assert 'hx-get="/jobs/104/log"' in browser.get("/jobs/104").text  # nothing has failed


def test_a_log_is_shown_at_its_cause_however_long_it_goes_on() -> None:
    raw = b"".join(b"line %d\n" % i for i in range(1, 5001))
    lines = log_lines(raw, (Evidence(2000, "line 2000", CauseRole.ROOT, "r"),), whole=True)
    assert len(lines) == MAX_LINES + 1
    (root,) = [line for line in lines if line.role == CauseRole.ROOT]
    assert (root.number, root.text) == (2000, "line 2000")
    assert lines[-1].text == "line 5000"
    (gap,) = [line for line in lines if line.role == "gap"]
    shown = [line.number for line in lines if line.number is not None]
    assert gap.text == f"… {5000 - shown[0] + 1 - len(shown):,} lines left out …"


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/7", "/nodes/gpu01", "/exceptions"])
def test_a_long_name_of_a_job_is_shown_in_part_and_downloaded_whole(tmp_path: Path, path: str) -> None:
    place, name = site(tmp_path), "sweep" * 1000
    place.world.submit("7", name)
    place.world.start("7")
    place.world.end("7", SHAPE)
    browser = browser_of(place)
    text = browser.get(path).text
    assert f"{name[:79]}…" in text
    assert name[:81] not in text
    assert name in browser.get("/jobs?format=csv").text
    assert name in browser.get("/api/v1/jobs/7").text


def test_an_address_at_which_nothing_is_says_so_once(tmp_path: Path) -> None:
    answer = browser_of(site(tmp_path)).get("/nosuch")
    assert answer.status_code == 404
    assert answer.text.count("Not Found") == 2  # the page's title and its heading
    assert "nothing is at this address" in answer.text


def test_the_chance_of_a_retry_stands_in_one_line(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    place.world.end("7", SHAPE)
    text = browser_of(place).get("/").text
    assert re.search(r"\(p&nbsp;=&nbsp;0\.\d\d\)", text)
    assert "(p = " not in text


def test_of_an_attempt_that_is_over_no_more_is_expected(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    place.world.end("7", b"", AttemptState.COMPLETED)
    text = browser_of(place).get("/jobs/7/log").text
    assert "The log is empty" in text
    assert "yet" not in text


def test_what_somebody_cancelled_is_not_said_to_fail_again(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("7")
    place.world.start("7")
    place.world.pass_time(60)
    place.world.end("7", b"slurmstepd: error: *** JOB 7 ON gpu01 CANCELLED AT 2026-11-22T16:43:28 ***\n")
    page = place.client(place.operator).get("/jobs/7").text
    why = page[page.index('id="why"') :].partition("</div>")[0]
    assert "Cancelled" in why
    assert "Would fail again" not in why


def test_on_a_node_s_card_only_failures_of_infrastructure_are_red(browser: TestClient) -> None:
    """Jobs 101 (its own shapes) and 102 (a reset connection) failed in the last 24 hours."""
    text = browser.get("/nodes").text
    found = re.findall(r'class="node-failure( node-failure-of-site)?" href="/jobs/(\d+)', text)
    assert ("", "101") in found
    assert all(job != "101" for red, job in found if red)
    assert any(red for red, _ in found)


def test_a_node_s_card_says_how_many_failures_it_does_not_show(tmp_path: Path) -> None:
    place = site(tmp_path)
    for job in range(6):
        place.world.submit(f"{job}")
        place.world.start(f"{job}")
        place.world.pass_time(5)
        place.world.end(f"{job}", b"IndexError: list index out of range\n")
    text = browser_of(place).get("/nodes").text
    shown = re.findall(r'class="node-failure" href="/jobs/(\d+)', text)
    (more,) = re.findall(r'class="node-failure muted" href="/nodes/[^"]+">and (\d+) more', text)
    assert (len(shown), int(more)) == (4, 2)
