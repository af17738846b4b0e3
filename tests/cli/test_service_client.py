"""How a command finds the service and what it makes of its answers."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.service_client import Client, segment
from perdure.client import Service
from perdure.errors import ClusterBusy, ClusterError, InputError, NotFound, NotPermitted, PerdureError, StateError
from perdure.service.access.service_file import ServiceFile

FILE = ServiceFile("http://127.0.0.1:1", 42, "secret")


class Server(ThreadingHTTPServer):
    """A service that answers as its `answers` say, and keeps what it was asked."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.heard, self.answers = [], []
        self.withheld = 0  # bytes of an answer that it announces and does not send


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        server: Server

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            heard = (self.command, self.path, self.headers["Authorization"], self.rfile.read(length))
            self.server.heard.append(heard)
            status, body, headers = self.server.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + self.server.withheld))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    with Server(Handler) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def answer(server: Server, status: int, value: dict[Any, Any] | bytes, **headers: Any) -> None:
    server.answers.append((status, value if isinstance(value, bytes) else json.dumps(value).encode(), headers))


def test_the_file_is_read_back_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = FILE.write(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ServiceFile.read(tmp_path) == FILE
    assert os.listdir(tmp_path) == ["service.json"]


def test_the_file_of_a_service_that_came_later_stays(tmp_path: Path) -> None:
    FILE.write(tmp_path)
    later = ServiceFile(FILE.url, 43, "other")
    later.write(tmp_path)
    FILE.remove(tmp_path)
    assert ServiceFile.read(tmp_path) == later
    later.remove(tmp_path)
    later.remove(tmp_path)
    assert os.listdir(tmp_path) == []


def test_no_file_means_that_no_service_runs(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"no service runs .* Start it: perdure up --state {tmp_path}"):
        Client.of(tmp_path, {})


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"url": "x", "pid": "y", "token": ""}', "\xff"])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "service.json").write_bytes(text.encode("latin-1"))
    (tmp_path / "service.json").chmod(0o600)
    with pytest.raises(StateError, match="is not a service's file"):
        ServiceFile.read(tmp_path)


def test_it_cannot_be_written_where_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot be written"):
        FILE.write(tmp_path / "none")


def test_who_has_no_token_is_told_where_it_is_looked_for(server: Server) -> None:
    answer(server, 401, {"detail": "nobody is logged in", "fix": "Send Authorization: Bearer TOKEN, or log in."})
    with pytest.raises(NotPermitted, match="PERDURE_TOKEN is not set"):
        Client(server.url, "").get("/jobs")


def test_a_request_carries_the_token_the_query_and_the_body(server: Server) -> None:
    client = Client(server.url, "t0ken")
    answer(server, 200, {"a": 1})
    assert client.get(f"/jobs/{segment('4711/../x y?')}", user="ada", state=None) == {"a": 1}
    answer(server, 202, b"")
    assert client.post("/stop", {"on": True}) is None
    assert server.heard == [
        ("GET", "/api/v1/jobs/4711%2F..%2Fx%20y%3F?user=ada", "Bearer t0ken", b""),
        ("POST", "/api/v1/stop", "Bearer t0ken", b'{"on": true}'),
    ]


def test_a_listing_is_followed_to_its_end_or_the_limit(server: Server) -> None:
    client = Client(server.url, "t")
    answer(server, 200, {"items": [{"n": 1}, {"n": 2}], "next_cursor": "c"})
    answer(server, 200, {"items": [{"n": 3}], "next_cursor": None})
    assert [item["n"] for item in client.pages("/jobs", 10)] == [1, 2, 3]
    assert [path for _, path, _, _ in server.heard] == ["/api/v1/jobs?limit=10", "/api/v1/jobs?limit=8&cursor=c"]
    answer(server, 200, {"items": [{"n": 1}, {"n": 2}], "next_cursor": "c"})
    assert len(list(client.pages("/jobs", 2))) == 2


@pytest.mark.parametrize(
    ("where", "told"),
    [("query.state.0", "state"), ("query.limit", "limit"), ("10.0.0.7", "10.0.0.7"), ("job 1", "job 1")],
)
def test_a_part_of_a_request_is_told_as_an_option_and_nothing_else_is_shortened(
    server: Server, where: str, told: str
) -> None:
    answer(server, 422, {"title": "T", "detail": "is wrong", "fix": "See it.", "where": where})
    with pytest.raises(InputError, match=rf"^{re.escape(told)}: is wrong"):
        Client(server.url, "t").get("/jobs")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InputError),
        (401, NotPermitted),
        (403, NotPermitted),
        (404, NotFound),
        (409, ClusterError),
        (422, InputError),
        (500, ClusterError),
        (503, ClusterBusy),
    ],
)
def test_a_refusal_keeps_the_words_of_the_service(server: Server, status: int, kind: type[PerdureError]) -> None:
    answer(server, status, {"title": "T", "detail": "job 1 is unknown.", "fix": "See it.", "where": "job 1"})
    with pytest.raises(kind, match=r"^job 1: job 1 is unknown\. See it\.$"):
        Client(server.url, "t").get("/jobs/1")
    answer(server, status, b"<html>")
    with pytest.raises(kind, match=f"HTTP {status}"):
        Client(server.url, "t").get("/jobs/1")


def test_a_redirect_is_not_followed_for_it_would_carry_the_token_away(server: Server) -> None:
    answer(server, 302, b"", Location=f"{server.url}/elsewhere")
    with pytest.raises(ClusterError, match="HTTP 302"):
        Client(server.url, "t").get("/jobs")
    assert len(server.heard) == 1


def test_an_answer_that_is_not_json_is_refused(server: Server) -> None:
    answer(server, 200, b"hello")
    with pytest.raises(ClusterError, match="not JSON"):
        Client(server.url, "t").get("/jobs")


@pytest.mark.parametrize("begun", [b"", b'{"id": "a"'])
def test_an_answer_that_breaks_off_is_no_answer(server: Server, begun: bytes) -> None:
    """The service was killed while it answered: what was sent may be sent again."""
    server.withheld = 5
    answer(server, 201, begun)
    with pytest.raises(ClusterBusy, match="does not answer"):
        Client(server.url, "t").post("/exceptions", {})
    answer(server, 201, begun)
    with pytest.raises(ClusterBusy, match="does not answer"):
        Service(server.url, "t").ask("POST", "/exceptions", {})


def test_a_service_that_is_gone_is_to_be_started(tmp_path: Path) -> None:
    FILE.write(tmp_path)
    with pytest.raises(ClusterBusy, match=r"does not answer .*refused.*\. Start it: perdure up --state"):
        Client.of(tmp_path, {}).get("/jobs")


def test_the_environment_names_another_service_or_token(server: Server, tmp_path: Path) -> None:
    answer(server, 200, {})
    Client.of(tmp_path, {"PERDURE_URL": server.url, "PERDURE_TOKEN": "mine"}).get("/jobs")
    ServiceFile(server.url, 1, "theirs").write(tmp_path)
    answer(server, 200, {})
    Client.of(tmp_path, {}).get("/jobs")
    answer(server, 200, {})
    Client.of(tmp_path, {"PERDURE_TOKEN": "mine"}).get("/jobs")
    assert [token for _, _, token, _ in server.heard] == ["Bearer mine", "Bearer theirs", "Bearer mine"]


def test_a_proxy_in_the_environment_is_not_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer(server, 200, {})
    assert Client(server.url, "t").get("/jobs") == {}


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x", "127.0.0.1:80", ""])
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(InputError, match="is not an http or https URL"):
        Client(url, "t")


@pytest.mark.parametrize("token", ["a\r\nX: y", "ü\u2028"])
def test_a_token_that_no_header_can_carry_is_refused(server: Server, token: str) -> None:
    with pytest.raises(InputError):
        Client(server.url, token).get("/jobs")
