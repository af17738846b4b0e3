"""Entity tags for the API's JSON: who asks again for what has not changed gets told so, without the body."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ETags:
    """Middleware for the paths below `prefix`. Only whole JSON answers to GET are tagged; streams pass as they are."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        await self._app(scope, receive, _tagging(send, known))


def _tagging(send: Send, known: str) -> Send:
    start: Message | None = None

    async def send_tagged(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start" and _is_json(message):
            start = message  # held back until the body is there
            return
        if start is None or message["type"] != "http.response.body" or message.get("more_body"):
            await _flush(send, start)
            start = None
            await send(message)
            return
        tag = f'"{hashlib.blake2b(message.get("body", b""), digest_size=12).hexdigest()}"'
        headers = MutableHeaders(scope=start)
        headers["ETag"] = tag
        headers["Cache-Control"] = "private, no-cache"
        if tag in known or known.strip() == "*":
            start["status"], message = 304, {**message, "body": b""}
            del headers["content-length"]
        await send(start)
        start = None
        await send(message)

    return send_tagged


async def _flush(send: Send, start: Message | None) -> None:
    if start is not None:
        await send(start)


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return start["status"] == 200 and headers.get("content-type", "").startswith("application/json")
