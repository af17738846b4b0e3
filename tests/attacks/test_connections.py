"""Connections that say nothing, or only half of it, stop neither decisions nor who has something to ask."""

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from perdure.log import Repeats
from perdure.service.web import connections
from perdure.service.web.connections import BoundedProtocol, most_connections, raise_descriptor_limit
from tests.attacks.service import Attacked, await_

HALVES = (
    b"",
    b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-",
    b"POST /api/v1/exceptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 900000\r\n\r\n{",
)
FAILS = "echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2; sleep 1; exit 1"


def said_of_connections(service: Attacked) -> int:
    """How many lines of the log are not about jobs, of which those of tests before may still be decided on."""
    return sum(" INFO job " not in line and " INFO action " not in line for line in service.log.splitlines())


def test_half_open_connections_stop_no_decision(service: Attacked) -> None:
    """1,200 of them under a limit of 1,024 descriptors."""
    said = said_of_connections(service)
    with ExitStack() as stack:
        for i in range(1200):
            try:
                half = stack.enter_context(service.connect(2))
                half.sendall(HALVES[i % 3])
            except OSError:
                continue  # it was refused: as good
        job = service.submit(FAILS, user="mira")
        assert service.await_decision(job)

        def last_look_s() -> float:
            return service.ask("GET", "/status")[1]["last_look_s"]

        before_s = last_look_s()
        await_(lambda: last_look_s() > before_s)
    assert said_of_connections(service) < said + 20, service.log[-2000:]
    assert "Traceback" not in service.log


def test_garbage_fills_no_log(service: Attacked) -> None:
    for _ in range(300):
        with service.connect(5) as stranger:
            stranger.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            stranger.recv(1000)
    assert service.log.count("Invalid HTTP") <= 1
    assert service.ask("GET", "/status")[0] == 200


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/echo":
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1000):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Callable[[], socket.socket]]]:
    """Serve an application with these limits; yields how to connect to it."""
    ends = []

    def start(app: Any) -> Callable[[], socket.socket]:
        config = uvicorn.Config(app, http=BoundedProtocol, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        ends.append((server, thread))
        return lambda: socket.create_connection(listener.getsockname(), timeout=20)

    yield start
    for server, thread in ends:
        server.should_exit = True
        thread.join(20)


def is_ended(half: socket.socket, within_s: float) -> bool:
    """Whether the other side has ended a connection."""
    half.settimeout(within_s)
    try:
        while half.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_is_not_waited_for_long(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch, half: bytes
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 0.3)
    with serve(app)() as stranger:
        stranger.sendall(half.replace(b"/api/v1/exceptions", b"/echo"))
        assert is_ended(stranger, 60)


def test_a_second_request_has_a_time_of_its_own(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 4.0)
    with serve(app)() as client:
        for _ in range(5):
            time.sleep(1.0)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200")
            if not answer.endswith(b"ok"):
                assert client.recv(1000) == b"ok"
        client.sendall(HALVES[1])
        assert is_ended(client, 60)


def test_a_body_that_comes_at_a_fair_rate_may_take_long(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 3.0)
    with serve(app)() as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 80000\r\n\r\n")
        for _ in range(10):
            client.sendall(b"x" * 8000)
            time.sleep(0.4)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_reads_is_not_kept_for_long(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STUCK_S", 0.3)
    with serve(flood)() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.5)
        assert is_ended(client, 60)


def test_an_answer_that_is_read_slowly_is_sent_to_its_end(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be written on again and again, for longer in all than one that nobody reads is kept."""
    monkeypatch.setattr(connections, "STUCK_S", 2.0)
    with serve(flood)() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        taken = 0
        while piece := client.recv(1_000_000):
            taken += len(piece)
            time.sleep(0.04)
    assert taken > 1000 * 100_000


def test_the_oldest_half_open_ones_give_way(
    serve: Callable[[Any], Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 8)
    connect = serve(app)
    with ExitStack() as stack:
        halves = [stack.enter_context(connect()) for _ in range(8)]
        client = stack.enter_context(connect())
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert is_ended(halves[0], 60)
        assert not any(is_ended(half, 0.2) for half in halves[1:])


def test_the_limit_is_raised_and_leaves_descriptors_for_all_else() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
        assert 0 < most_connections() <= 1024 - 256
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(connections.WANTED_DESCRIPTORS, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_cannot_be_accepted_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_repeats", Repeats())
    full = OSError(24, "Too many open files")
    loop = asyncio.new_event_loop()
    with closing(loop):
        connections.accept_quietly(loop)
        for _ in range(1000):
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": full})
    assert len([record for record in caplog.records if "accept" in record.getMessage()]) == 1
