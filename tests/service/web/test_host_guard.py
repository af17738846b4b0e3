"""A body is bounded, also where it does not say how long it is."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from perdure.service.web.host_guard import HostGuard

HOST = (b"host", b"127.0.0.1")


def asked(
    chunks: list[Any], headers: list[Any] | tuple[()] = (), path: str = "/", larger: dict[Any, Any] | None = None
) -> tuple[int, Any]:
    """What the application gets of a body that comes in these chunks, and the status of the answer."""
    coming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    got, statuses = [], []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request":
            got.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[Any, Any]:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if message["type"] == "http.response.start" else [])

    scope = {"type": "http", "method": "POST", "path": path, "headers": [HOST, *headers]}
    with ThreadPoolExecutor(1) as elsewhere:  # a browser's test leaves a running loop in this thread
        elsewhere.submit(asyncio.run, HostGuard(application, larger=larger)(scope, receive, send)).result()
    return sum(map(len, got)), statuses[0]


MIB = 1024 * 1024


def test_a_body_without_a_length_is_cut_off_where_it_grows_too_long() -> None:
    assert asked([b"x" * (MIB // 2)] * 2) == (MIB, 200)
    got, _ = asked([b"x" * (MIB // 2)] * 100)
    assert got == MIB


def test_some_paths_take_more() -> None:
    got, _ = asked([b"x" * MIB] * 5, path="/large", larger={"/large": 3 * MIB})
    assert got == 3 * MIB
    got, _ = asked([b"x" * MIB] * 5, path="/other", larger={"/large": 3 * MIB})
    assert got == MIB


@pytest.mark.parametrize("length", [b"1048577", b"-1", b"1e3", b"", b"9" * 5000])
def test_a_length_that_is_too_much_or_none_is_refused(length: bytes) -> None:
    assert asked([b"x"], [(b"content-length", length)]) == (0, 413)
