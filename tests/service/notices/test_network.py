"""Where notices may go: schemes, hosts, addresses, redirects, and how long the other side may take."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError, NotDelivered, NoticeRefused
from perdure.service.notices import network
from perdure.service.notices.network import AllowedNetwork
from tests.service.notices.receivers import receiving

NET = AllowedNetwork(timeout_s=5.0)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/", "ftp://example.org/", "file:///etc/passwd", "https://", "example.org", "https://u:p@h/",
        "https://u@h/", "https://h/a b", "https://h/\r\nX: y", "https://h:99999/", "https://[::1/", "https://hé/", "",
    ],
)  # fmt: skip
def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NET.checked(url)
    assert "p@h" not in str(caught.value)


def test_plain_http_goes_to_this_machine_alone_unless_it_is_allowed() -> None:
    NET.checked("http://127.0.0.1:8080/x")
    NET.checked("http://localhost/x")
    AllowedNetwork(allow_http=True).checked("http://example.org/x")


@pytest.mark.parametrize(("host", "allowed"), [
    ("hooks.slack.com", True), ("HOOKS.slack.com", True), ("a.site.org", True), ("b.a.site.org", True),
    ("site.org", False), ("evilsite.org", False), ("hooks.slack.com.evil.org", False), ("127.0.0.1", False),
])  # fmt: skip
def test_only_allowed_hosts_are_connected_to(host: str, allowed: bool) -> None:
    strict = AllowedNetwork(allow_hosts=("hooks.slack.com", "*.site.org"))
    if allowed:
        strict.checked(f"https://{host}/")
    else:
        with pytest.raises(ConfigError, match="not an allowed host"):
            strict.checked(f"https://{host}/")


ADDRESSES = [
    "169.254.169.254", "169.254.0.1", "fe80::1", "::ffff:169.254.169.254", "2002:a9fe:a9fe::1", "100.100.100.200",
    "168.63.129.16", "fd00:ec2::254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("others", [(), ("127.0.0.1",)])
def test_a_name_that_leads_to_a_metadata_service_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, address: str, others: tuple[str, ...]
) -> None:
    def lookup(*_: object, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 80)) for each in (*others, address)]

    def connect(*_: object, **__: Any) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(NotDelivered, match="leads to"):
        NET.post("https://innocent.example.org/", {}, b"")


def test_an_address_in_a_secret_is_refused_for_good() -> None:
    with pytest.raises(NoticeRefused, match="a link-local address"):
        NET.post("https://169.254.169.254/", {}, b"")


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere when it is looked up again helps nobody."""
    asked = []
    real = socket.getaddrinfo

    def lookup(host: str, *rest: Any, **more: Any) -> list[Any]:
        asked.append(host)
        return [*real("127.0.0.1" if host == "innocent" else host, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with receiving() as receiver:
        port = receiver.url.rpartition(":")[2]
        AllowedNetwork(allow_http=True).post(f"http://innocent:{port}/", {}, b"x")
    ((_, headers, _),) = receiver.got
    assert headers["host"] == f"innocent:{port}"
    assert asked.count("innocent") == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiving() as goal, receiving(status, headers={"Location": goal.url}) as receiver:
        with pytest.raises(NotDelivered, match="not followed"):
            NET.post(receiver.url, {"Authorization": "Bearer x"}, b"x")
        assert not goal.got


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_whoever_cannot_take_it_now_is_asked_again(status: int) -> None:
    with receiving(status) as receiver, pytest.raises(NotDelivered, match=str(status)) as caught:
        NET.post(receiver.url, {}, b"x")
    assert not isinstance(caught.value, NoticeRefused)


@pytest.mark.parametrize("status", [199, 302, 400, 401, 403, 404, 410, 413, 422])
def test_whoever_refuses_it_would_refuse_it_again(status: int) -> None:
    with receiving(status) as receiver, pytest.raises(NoticeRefused, match=str(status)):
        NET.post(receiver.url, {}, b"x")


class Rude:
    """A server that answers a connection in a rude way."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/s3cr3t"
        self.thread = threading.Thread(target=self.run, args=(answer,), daemon=True)
        self.thread.start()

    def run(self, answer: Callable[[Any], Any]) -> None:
        connection, _ = self.socket.accept()
        with connection:
            connection.recv(65536)
            with suppress(OSError):
                answer(connection)

    def end(self) -> None:
        self.socket.close()
        self.thread.join()


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


@pytest.mark.parametrize("answer", [
    drip, lambda connection: time.sleep(0.1), lambda connection: connection.sendall(b"\0" * 100_000),
    lambda connection: connection.sendall(b"HTTP/1.1 200 " + b"x" * 100_000),
])  # fmt: skip
def test_a_rude_server_holds_nobody_up_and_learns_nothing_for_the_log(answer: Callable[[Any], Any]) -> None:
    server = Rude(answer)
    with pytest.raises(NotDelivered) as caught:
        AllowedNetwork(timeout_s=1.0).post(server.url, {}, b"x")
    server.end()
    assert "s3cr3t" not in str(caught.value)


def test_a_silent_server_is_said_to_be_slow() -> None:
    server = Rude(lambda connection: all(iter(lambda: connection.recv(1), b"")))  # until it is hung up
    with pytest.raises(NotDelivered, match=r"did not answer within 0\.3 s"):
        AllowedNetwork(timeout_s=0.3).post(server.url, {}, b"x")
    server.end()


def test_an_endless_answer_is_not_read() -> None:
    server = Rude(flood)
    AllowedNetwork(timeout_s=5.0).post(server.url, {}, b"x")
    server.end()


def test_a_secret_that_is_no_header_is_told_by_nobody() -> None:
    with receiving() as receiver, pytest.raises(NotDelivered) as caught:
        NET.post(receiver.url, {"Authorization": "Bearer s3cr3t\u2028"}, b"x")
    assert "s3cr3t" not in str(caught.value)


def test_a_file_of_certificates_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(ConfigError, match="certificates"):
        network.tls_context(tmp_path / "ca.pem")
