"""Who may ask what: every route, with every role, and what a browser must show beside its cookie."""

import re
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.requests import Request

from perdure.service.access.auth import Identity, Role
from perdure.service.web.app import API, API_ROUTERS, health
from perdure.service.web.host_guard import POLICY
from perdure.service.web.pages import site as pages
from perdure.service.web.roles import check_every_route_declares, is_still_known, needs
from tests.service.web_world import Site, TestClient, csrf_of, fill, routes_of, site

CASES = [
    (method, prefix + route.path, needs(route)[0])
    for prefix, routers in ((API, API_ROUTERS), ("", (health, *pages.ROUTERS)))
    for router in routers
    for method, route in routes_of(router)
]
IDS = [f"{method} {path}" for method, path, _ in CASES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("roles"), max_streams=0)
    fill(place.world)
    return place


def concrete(path: str) -> str:
    return re.sub(r"{[^}]*}", "x", path)


def test_every_route_says_who_may_ask() -> None:
    assert len(CASES) > 30
    check_every_route_declares([*API_ROUTERS, health, *pages.ROUTERS])


def test_a_route_that_says_nothing_keeps_the_service_from_starting() -> None:
    forgetful = APIRouter()
    forgetful.get("/secret")(lambda: None)
    with pytest.raises(RuntimeError, match="/secret"):
        check_every_route_declares([forgetful])


def test_the_app_answers_to_no_other_routes(place: Site) -> None:
    paths = {path.replace(":path", "") for _, path, _ in CASES}
    documented = set(place.app.openapi()["paths"])
    assert documented <= paths


@pytest.mark.parametrize(("method", "path", "role"), CASES, ids=IDS)
def test_nobody_gets_past_without_a_token(place: Site, method: str, path: str, role: Role | None) -> None:
    answer = place.client().request(method, concrete(path))
    if role is None:
        assert answer.status_code not in (401, 403) or path == "/login"
    elif path.startswith(API):
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"] == "Bearer"
    else:
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")


@pytest.mark.parametrize(("method", "path", "role"), CASES, ids=IDS)
def test_a_wrong_token_is_no_token(place: Site, method: str, path: str, role: Role | None) -> None:
    if role is not None:
        answer = place.client("pdr_wrong").request(method, concrete(path))
        assert answer.status_code == (401 if path.startswith(API) else 303)


@pytest.mark.parametrize(("method", "path", "role"), CASES, ids=IDS)
def test_a_viewer_may_not_act(place: Site, method: str, path: str, role: Role | None) -> None:
    answer = place.client(place.mira).request(method, concrete(path))
    assert (answer.status_code == 403 and "viewer" in answer.text) == (role is Role.OPERATOR)


@pytest.mark.parametrize(("method", "path", "role"), CASES, ids=IDS)
def test_an_operator_may_do_all(place: Site, method: str, path: str, role: Role | None) -> None:
    answer = place.client(place.operator).request(method, concrete(path))
    assert answer.status_code not in (401, 500)
    assert answer.status_code != 403 or path == "/login"


@pytest.mark.parametrize(("method", "path"), [c[:2] for c in CASES if c[0] == "POST" and c[1] != "/login"])
@pytest.mark.parametrize("csrf", [None, "wrong"])
def test_a_cookie_alone_changes_nothing(place: Site, method: str, path: str, csrf: str | None) -> None:
    browser = place.client()
    browser.post("/login", data={"token": place.operator})
    answer = browser.request(method, concrete(path), headers={"X-CSRF-Token": csrf} if csrf else {})
    assert answer.status_code == 403


def logged_in(place: Site) -> tuple[TestClient, Any, str]:
    browser = place.client()
    answer = browser.post("/login", data={"token": place.operator})
    cookie = answer.headers["set-cookie"]
    page = browser.get("/")
    return browser, cookie, csrf_of(page.text)


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(place: Site) -> None:
    _, cookie, _ = logged_in(place)
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert cookie.startswith("perdure_8470=")


@pytest.mark.parametrize("how", ["header", "field"])
def test_a_browser_acts_with_its_csrf_token(place: Site, how: str) -> None:
    browser, _, csrf = logged_in(place)
    given = {"headers": {"X-CSRF-Token": csrf}} if how == "header" else {}
    form = {"on": "true"} if how == "header" else {"on": "true", "csrf": csrf}
    assert browser.post("/do/kill-switch", data=form, **given).status_code == 303
    assert place.commands.stopped
    place.commands.stopped = False


def test_a_login_code_opens_the_door_once(place: Site) -> None:
    code = place.tokens.login_code(Identity("root", Role.OPERATOR))
    browser = place.client()
    first = browser.get(f"/?code={code}")
    assert first.headers["location"] == f"/login?code={code}"
    welcome = browser.get(first.headers["location"])
    assert welcome.status_code == 200
    assert code not in welcome.text
    assert browser.get("/").status_code == 200
    assert browser.get(f"/?code={code}").headers["location"] == "/"
    again = place.client().get(f"/login?code={code}")
    assert again.status_code == 403
    assert "perdure open prints a new one" in again.text


def test_logging_out_ends_the_session(place: Site) -> None:
    browser, _, csrf = logged_in(place)
    secret = browser.cookies["perdure_8470"]
    assert browser.post("/logout", data={"csrf": csrf}).status_code == 303
    again = place.client(Cookie=f"perdure_8470={secret}")
    assert again.get("/").status_code == 303


def test_whoever_logs_out_is_known_no_more_to_an_answer_that_still_goes_on(place: Site) -> None:
    """A stream of events asks so every few seconds; what was opened with a token of its own goes by that token."""
    browser, _, csrf = logged_in(place)
    cookie = (b"cookie", f"perdure_8470={browser.cookies['perdure_8470']}".encode())
    token = (b"authorization", f"Bearer {place.operator}".encode())
    who = place.tokens.find(place.operator)
    assert who is not None
    listening = [streaming(place, cookie), streaming(place, cookie, token)]
    assert [is_still_known(request, who) for request in listening] == [True, True]
    browser.post("/logout", data={"csrf": csrf})
    assert [is_still_known(request, who) for request in listening] == [False, True]


def streaming(place: Site, *headers: tuple[bytes, bytes]) -> Request[Any]:
    host = (b"host", b"127.0.0.1:8470")
    scope = {"type": "http", "method": "GET", "path": "/api/v1/events/stream", "headers": [host, *headers]}
    return Request({**scope, "scheme": "http", "query_string": b"", "app": place.app})


def test_another_sites_form_does_not_log_in(place: Site) -> None:
    answer = place.client(**{"Sec-Fetch-Site": "cross-site"}).post("/login", data={"token": place.operator})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_login_leads_to_pages_of_this_service_alone(place: Site, to: str) -> None:
    answer = place.client().post("/login", data={"token": place.operator, "next": to})
    assert 'content="0;url=/"' in answer.text
    assert "evil" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8470", "127.0.0.1.evil.example", "", "[::2]"])
def test_another_hosts_name_is_refused(place: Site, host: str) -> None:
    answer = place.client(place.operator, Host=host).get("/api/v1/status")
    assert answer.status_code == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8470", "[::1]:8470", "LocalHost:1"])
def test_names_of_this_machine_are_taken(place: Site, host: str) -> None:
    assert place.client(place.operator, Host=host).get("/api/v1/status").status_code == 200


@pytest.mark.parametrize("path", ["/", "/login", "/api/v1/jobs", "/metrics", "/static/app.js", "/nowhere"])
def test_every_answer_binds_the_browser(place: Site, path: str) -> None:
    answer = place.client(place.operator).get(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY


def test_a_body_without_end_is_refused(place: Site) -> None:
    client = place.client(place.operator)
    assert client.post("/api/v1/jobs", content=b"x" * 2_000_000).status_code == 413
    endless = (b"[" * 65536 for _ in range(64))
    answer = client.post("/api/v1/jobs", content=endless, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
