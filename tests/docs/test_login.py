"""The log-in by OpenID Connect that the how-to sets up: its nginx between a browser, oauth2-proxy and Perdure.

Where nginx is not installed, only what its configuration says is looked at.
"""

import contextlib
import getpass
import http.client
import re
import socket
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.service.access.proxy.settings import ProxySettings, check_proxy
from tests.attacks.test_proxy import serving
from tests.conftest import require_program
from tests.docs.test_examples import examples
from tests.service.web_world import fill, site

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to.md").read_text()
(NGINX,) = [example.text for example in examples(PAGE) if example.mark == "nginx"]
(TOML,) = [example.text for example in examples(PAGE) if example.mark == "toml" and "user_header" in example.text]
GIVEN: dict[str, Any] = tomllib.loads(TOML)["proxy"]
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # what nginx may write down, each in a folder
WITHIN_S = 60.0


def headers_set(text: str) -> dict[Any, Any]:
    return dict(re.findall(r"proxy_set_header\s+(\S+)\s+([^;]+);", text))


def test_the_proxy_names_the_user_in_the_headers_that_the_settings_name() -> None:
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in GIVEN.items()}
    check_proxy(ProxySettings(**given), "how-to")
    pages = headers_set(NGINX[NGINX.index("location / {") :])
    assert pages[GIVEN["user_header"]] == "$user"
    assert pages[GIVEN["groups_header"]] == "$groups"
    for header in (GIVEN["user_header"], GIVEN["groups_header"]):
        assert f"RequestHeader set {header} " in PAGE  # Apache: set replaces what a client sends


class Provider(BaseHTTPRequestHandler):
    """Answers as oauth2-proxy does, for whoever has a cookie that says who it is."""

    def do_GET(self) -> None:
        who = re.search(r"who=(\w+):([\w,-]*)", self.headers.get("Cookie", ""))
        self.send_response(202 if who else 401)
        if who:
            self.send_header("X-Auth-Request-Preferred-Username", who[1])
            self.send_header("X-Auth-Request-Groups", who[2])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def provider() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def free_port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextlib.contextmanager
def nginx(folder: Path, provider_port: int, path: Path) -> Iterator[Any]:
    """nginx with the page's own configuration, but for TLS, addresses and the socket; yields its port."""
    port = free_port()
    text = re.sub(r"\n\s+ssl_\w+[^;]*;", "", NGINX).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    text = text.replace("127.0.0.1:4180", f"127.0.0.1:{provider_port}").replace("/run/perdure/perdure.sock", str(path))
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in TEMPORARY)
    main = f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
    config = folder / "nginx.conf"
    config.write_text(f"{main}http {{ access_log off;\n{temporary}{text}\n}}\n")
    process = subprocess.Popen([require_program("nginx"), "-e", str(folder / "error.log"), "-c", str(config)])
    try:
        await_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(WITHIN_S)


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        assert process.poll() is None
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def get(port: int, path: str, **headers: Any) -> tuple[int, HTTPMessage, str]:
    given = {"Host": "perdure.site.org", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)) as connection:
        connection.request("GET", path, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Any]:
    settings = ProxySettings(
        GIVEN["user_header"], GIVEN["groups_header"], tuple(GIVEN["operators"]), tuple(GIVEN["viewers"]),
        users=(getpass.getuser(),),
    )  # fmt: skip
    place, path = site(tmp_path, time.time(), proxy=settings, hosts=("perdure.site.org",)), tmp_path / "s.sock"
    fill(place.world)
    with serving(place, path), provider() as provider_port, nginx(tmp_path, provider_port, path) as found:
        yield found


def test_who_is_not_logged_in_is_sent_to_the_provider_and_back(port: int) -> None:
    status, headers, _ = get(port, "/jobs?state=failed", X_Forwarded_User="root", X_Forwarded_Groups="hpc-admins")
    assert status == 302
    assert headers["Location"].endswith("/oauth2/sign_in?rd=/jobs?state=failed")


def test_who_is_logged_in_is_who_the_provider_says_with_the_role_of_the_groups(port: int) -> None:
    assert get(port, "/api/v1/notices", Cookie="who=mira:hpc-users")[0] == 403
    assert get(port, "/api/v1/jobs", Cookie="who=mira:hpc-users")[0] == 200
    assert get(port, "/api/v1/notices", Cookie="who=root:hpc-users,hpc-admins")[0] == 200
    assert get(port, "/api/v1/jobs", Cookie="who=mira:others")[0] == 403


def test_a_client_s_own_headers_count_for_nothing(port: int) -> None:
    forged = {"X_Forwarded_User": "root", "X_Forwarded_Groups": "hpc-admins"}
    assert get(port, "/api/v1/notices", Cookie="who=mira:hpc-users", **forged)[0] == 403
