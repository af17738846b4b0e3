"""Login by a reverse proxy's header: nobody else can name a user, and a name alone changes nothing."""

import contextlib
import getpass
import http.client
import logging
import re
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from perdure.errors import ConfigError
from perdure.service.access.peers import PEER, Peer
from perdure.service.access.proxy.settings import ProxySettings, check_proxy
from perdure.service.runtime.serving import unix_socket
from perdure.service.settings import load
from perdure.service.web.connections import BoundedProtocol
from tests.copying import replace
from tests.service.web_world import BASE, Site, fill, site

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PROXY, STRANGER = "10.0.0.5", "10.0.0.6"
SETTINGS = ProxySettings(
    user_header="X-Forwarded-User", groups_header="X-Forwarded-Groups", operators=("admins",), viewers=("hpc",),
    addresses=(PROXY, "fd00::/64"),
)  # fmt: skip
NAME, GROUPS = "X-Forwarded-User", "X-Forwarded-Groups"
JOBS = "/api/v1/jobs"


@pytest.fixture
def place(tmp_path: Path) -> Site:
    found = site(tmp_path, proxy=SETTINGS)
    fill(found.world)
    return found


def browser(place: Site, address: str = PROXY, uid: int | None = None) -> TestClient:
    """Somebody who connects from there, with the cookies of a browser."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "state": {**scope.get("state", {}), PEER: Peer(uid, address)}}
        await place.app(scope, receive, send)

    return TestClient(app, base_url=BASE, follow_redirects=False, raise_server_exceptions=False)


def named(user: str = "mira", groups: str = "hpc") -> dict[Any, Any]:
    return {NAME: user, GROUPS: groups}


def log_in(client: TestClient, **given: Any) -> TestClient:
    answer = client.get("/login", headers=named(**given))
    assert (answer.status_code, "Logged in" in answer.text) == (200, True), answer.text
    return client


def csrf_of(client: TestClient, **given: Any) -> re.Match[str] | None:
    page = client.get("/", headers=named(**given))
    assert page.status_code == 200
    return re.search(r'name="csrf"[^>]*(?:value|content)="([^"]+)"|"X-CSRF-Token": "([^"]+)"', page.text)


# -- who may name a user


def test_the_proxy_s_word_reads_the_api(place: Site) -> None:
    client = browser(place)
    assert client.get(JOBS, headers=named()).status_code == 200
    assert client.get("/api/v1/notices", headers=named()).status_code == 403  # a viewer
    assert client.get("/api/v1/notices", headers=named(groups="hpc, admins")).status_code == 200


@pytest.mark.parametrize("address", [STRANGER, "127.0.0.1", "::1", "", "10.0.0.50", "fd01::1", "nonsense"])
def test_a_header_from_anybody_else_is_ignored_and_logged_without_its_text(
    place: Site, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = browser(place, address)
    with caplog.at_level(logging.WARNING, "perdure"):
        for _ in range(3):
            answer = client.get(JOBS, headers=named("evil-name", "admins"))
    assert answer.status_code == 401
    assert client.get("/", headers=named()).status_code == 303
    assert "Logged in" not in client.get("/login", headers=named()).text
    assert caplog.text.count("is ignored") == 1
    assert "evil-name" not in caplog.text


@pytest.mark.parametrize("address", [PROXY, f"::ffff:{PROXY}", "fd00::7", "fd00::7%eth0"])
def test_the_proxy_is_known_however_its_address_is_written(place: Site, address: str) -> None:
    assert browser(place, address).get(JOBS, headers=named()).status_code == 200


def test_an_address_in_a_header_is_not_the_one_of_the_connection(place: Site) -> None:
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded"):
        headers = {**named(), name: PROXY}
        assert browser(place, STRANGER).get(JOBS, headers=headers).status_code == 401


def test_without_the_setting_no_header_names_anybody(tmp_path: Path) -> None:
    place = site(tmp_path)
    for name in (NAME, "Remote-User", ""):
        headers = {name: "root"} if name else {}
        assert browser(place).get(JOBS, headers=headers).status_code == 401


@pytest.mark.parametrize("user", [
    "", " ", "mira, root", "mira root", "mira\troot", "-mira", "root:", "mira+x", "m\xeftra", "a" * 129, "../root",
])  # fmt: skip
def test_a_header_that_names_no_one_user_logs_nobody_in(place: Site, user: str) -> None:
    client = browser(place)
    headers = [(NAME.encode(), user.encode("latin-1")), (GROUPS.encode(), b"hpc")]
    assert client.get(JOBS, headers=headers).status_code == 401
    answer = client.get("/login", headers=headers)
    assert (answer.status_code, "Logged in" in answer.text) == (403, False)


def test_a_header_that_is_there_twice_logs_nobody_in(place: Site) -> None:
    client = browser(place)
    for headers in (
        [(NAME, "mira"), (NAME, "root"), (GROUPS, "hpc")],
        [(NAME, "mira"), (NAME.lower(), "mira"), (GROUPS, "hpc")],
        [(NAME, "mira"), (GROUPS, "hpc"), (GROUPS, "admins")],
    ):
        assert client.get(JOBS, headers=headers).status_code == 401


# -- which role


@pytest.mark.parametrize("groups", [
    "", "Admins", "admins2", "xadmins", "admin s", "admins;hpc", "nobody", "hpc2", "admins/sub", "\xa0",
])  # fmt: skip
def test_a_group_that_is_another_gives_no_role(place: Site, groups: str) -> None:
    client = browser(place)
    headers = [(NAME.encode(), b"mira"), (GROUPS.encode(), groups.encode("latin-1"))]
    assert client.get(JOBS, headers=headers).status_code == 403


def test_groups_that_are_too_many_are_not_cut_into_another(place: Site) -> None:
    groups = "x" * 32_761 + ",admins-not"
    assert browser(place).get("/api/v1/notices", headers=named(groups=groups)).status_code in (401, 431)


def test_where_no_viewers_are_named_everybody_is_one_and_nobody_an_operator(tmp_path: Path) -> None:
    settings = ProxySettings(user_header=NAME, addresses=(PROXY,))
    client = browser(site(tmp_path, proxy=settings))
    assert client.get(JOBS, headers=named(groups="admins")).status_code == 200
    assert client.get("/api/v1/notices", headers=named(groups="admins")).status_code == 403


def test_a_viewer_cannot_act_by_asking_for_it(place: Site) -> None:
    client = log_in(browser(place))
    for headers in ({}, {"X-Role": "operator"}, {"X-CSRF-Token": "x"}):
        answer = client.post("/api/v1/kill-switch", json={"on": True}, headers={**named(), **headers})
        assert answer.status_code == 403
    assert not place.commands.stopped


# -- sessions


def test_a_session_counts_only_with_the_same_word_of_the_proxy(place: Site) -> None:
    client = log_in(browser(place), groups="admins")
    assert client.get("/", headers=named(groups="admins")).status_code == 200
    for headers in ({}, named("jonas", "admins"), named("mira", "hpc")):
        assert client.get("/", headers=headers).status_code == 303
    assert client.get("/", headers=named("mira", "nobody")).status_code == 403


def test_a_stolen_cookie_is_worth_nothing_past_the_proxy(place: Site) -> None:
    client = log_in(browser(place), groups="admins")
    thief = browser(place, STRANGER)
    thief.cookies.update(client.cookies)
    for headers in ({}, named(groups="admins")):
        assert thief.get("/", headers=headers).status_code == 303
        assert thief.get(JOBS, headers=headers).status_code == 401


def test_another_user_at_the_same_browser_gets_a_session_of_its_own(place: Site) -> None:
    client = log_in(browser(place), groups="admins")
    log_in(client, user="jonas")
    assert client.get("/", headers=named("jonas")).status_code == 200
    assert client.get("/", headers=named(groups="admins")).status_code == 303


def test_after_a_restart_a_kept_session_still_needs_the_proxy(place: Site) -> None:
    from perdure.service.access.sessions import Sessions

    client = log_in(browser(place), groups="admins")
    place.app.state.sessions = Sessions(place.tokens)
    assert client.get("/", headers=named(groups="admins")).status_code == 200
    assert client.get("/").status_code == 303


def test_a_page_leads_through_the_login_back_to_itself(place: Site) -> None:
    client = browser(place)
    first = client.get("/jobs", headers=named())
    assert (first.status_code, first.headers["location"]) == (303, "/login?next=%2Fjobs")
    second = client.get(first.headers["location"], headers=named())
    assert "url=/jobs" in second.text
    assert client.get("/jobs", headers=named()).status_code == 200


def test_the_cookie_is_for_tls_alone_where_the_proxy_speaks_it(place: Site) -> None:
    for given, is_secure in (({"X-Forwarded-Proto": "https"}, True), ({}, False)):
        cookie = browser(place).get("/login", headers={**named(), **given}).headers["set-cookie"]
        assert ("Secure" in cookie, "HttpOnly" in cookie, "SameSite=strict" in cookie) == (is_secure, True, True)


# -- what a browser adds unasked is not enough


def test_a_header_alone_changes_nothing(place: Site) -> None:
    client = browser(place)
    answer = client.post("/api/v1/kill-switch", json={"on": True}, headers=named(groups="admins"))
    assert answer.status_code == 401
    assert not place.commands.stopped


def test_csrf_holds_for_who_is_logged_in_by_the_proxy(place: Site) -> None:
    client = log_in(browser(place), groups="admins")
    headers = named(groups="admins")
    for given in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x" * 32}):
        answer = client.post("/api/v1/kill-switch", json={"on": True}, headers={**headers, **given})
        assert answer.status_code == 403
    assert not place.commands.stopped
    csrf = next(iter(place.app.state.sessions._sessions.values())).csrf
    answer = client.post("/api/v1/kill-switch", json={"on": True}, headers={**headers, "X-CSRF-Token": csrf})
    assert (answer.status_code, place.commands.stopped) == (200, True)


def test_tokens_go_on_to_work_through_the_proxy_and_past_it(place: Site) -> None:
    for address, given in ((PROXY, {}), (PROXY, named()), (STRANGER, {}), (STRANGER, named())):
        headers = {**given, "Authorization": f"Bearer {place.operator}"}
        assert browser(place, address).get("/api/v1/notices", headers=headers).status_code == 200
    headers = {**named(groups="admins"), "Authorization": "Bearer pdr_wrong"}
    assert browser(place).get(JOBS, headers=headers).status_code == 401


# -- what the settings let in


@pytest.mark.parametrize(("settings", "said"), [
    (ProxySettings(NAME), "no proxy is trusted"),
    (ProxySettings(NAME, addresses=("127.0.0.1",)), "every user of this machine"),
    (ProxySettings(NAME, addresses=("0.0.0.0/0",)), "every user of this machine"),
    (ProxySettings(NAME, addresses=("::/0",)), "every user of this machine"),
    (ProxySettings(NAME, addresses=("10.0.0.1/8",)), "host bits"),
    (ProxySettings(NAME, addresses=("proxy.site.org",)), "does not appear to be"),
    (ProxySettings(NAME, operators=("a",), users=("nginx",)), "no header that tells them"),
    (ProxySettings("Cookie", users=("nginx",)), "not a header that can name a user"),
    (ProxySettings("X User", users=("nginx",)), "not a header that can name a user"),
    (ProxySettings(NAME, NAME.lower(), users=("nginx",)), "cannot tell user and groups"),
])  # fmt: skip
def test_settings_that_would_let_in_others_are_refused(settings: ProxySettings, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_proxy(settings, "config.toml:1")


def test_the_settings_are_checked_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[proxy]\nuser_header = "X-Forwarded-User"\naddresses = ["127.0.0.1"]\n')
    with pytest.raises(ConfigError, match=r"config.toml:2.*every user"):
        load({"HOME": str(tmp_path)}, path)


# -- over real sockets


@contextlib.contextmanager
def serving(place: Site, path: Path) -> Iterator[Any]:
    """The application behind uvicorn as the service runs it; yields the TCP port."""
    config = uvicorn.Config(place.app, http=BoundedProtocol, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with unix_socket(path, shared=True) as local, socket.create_server(("127.0.0.1", 0)) as tcp:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [tcp, local]}, daemon=True)
        thread.start()
        try:
            yield tcp.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)


def status(port: int = 0, path: Path | None = None, **headers: Any) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if path is not None:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
    with contextlib.closing(connection):
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", JOBS, headers={"Host": "localhost", **given})
        return connection.getresponse().status


def test_a_proxy_without_the_secret_is_told_what_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = tmp_path / "proxy-secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    settings = ProxySettings(NAME, addresses=(PROXY,), secret_file=secret)
    with caplog.at_level(logging.WARNING, "perdure"):
        assert browser(site(tmp_path, proxy=settings)).get(JOBS, headers=named()).status_code == 401
    assert "is ignored: it came without the text of proxy.secret_file in X-Perdure-Proxy" in caplog.text
    assert "hunter2" not in caplog.text


def test_over_the_socket_the_kernel_knows_the_proxy_and_over_tcp_the_secret_does(tmp_path: Path) -> None:
    secret = tmp_path / "proxy-secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    mira: dict[str, Any] = {"X_Forwarded_User": "mira"}
    settings = ProxySettings(NAME, users=(getpass.getuser(),), addresses=("127.0.0.1",), secret_file=secret)
    place, path = site(tmp_path, now=time.time(), proxy=settings), tmp_path / "s.sock"
    with serving(place, path) as port:
        assert status(path=path, **mira) == 200
        assert status(path=path) == 401  # the proxy itself is nobody
        assert status(port, **mira) == 401
        assert status(port, X_Perdure_Proxy="wrong", **mira) == 401
        assert status(port, X_Perdure_Proxy="", **mira) == 401
        assert status(port, X_Perdure_Proxy="hunter2", **mira) == 200
        secret.chmod(0o644)
        assert status(port, X_Perdure_Proxy="hunter2", **mira) == 401


def test_over_real_tcp_no_header_makes_a_stranger_the_proxy(tmp_path: Path) -> None:
    """uvicorn believes what a client on loopback says of its address; nobody here does."""
    settings = ProxySettings(NAME, users=("no-such-user", "nobody"), addresses=(PROXY,))
    place, path = site(tmp_path, now=time.time(), proxy=settings), tmp_path / "s.sock"
    with serving(place, path) as port:
        assert status(port, X_Forwarded_User="root", X_Forwarded_For=PROXY) == 401
        assert status(path=path, X_Forwarded_User="root", X_Forwarded_For=PROXY) in (200, 403)  # as oneself


def test_a_group_without_a_name_is_none(tmp_path: Path) -> None:
    """Not even where a comma too many is in the settings."""
    place = site(tmp_path, proxy=replace(SETTINGS, operators=("admins", "")))
    for groups in ("", "hpc,", " ,hpc", ",,"):
        answer = browser(place).get(JOBS, headers=named(groups=groups))
        assert answer.status_code == (200 if "hpc" in groups else 403), groups
        for_operators = browser(place).get("/api/v1/notices", headers=named(groups=groups))
        assert for_operators.status_code == 403, groups
