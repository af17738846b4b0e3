"""What is before every route: whose name was called, how much may be said, and headers that bind the browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.service.web.problems import Problem, answer

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MAX_BODY_BYTES = 1024 * 1024
MOST_DIGITS = 18  # of a length

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class HostGuard:
    """Middleware around the whole application.

    A page of some other site can make a browser call this service under a name that leads to 127.0.0.1 (DNS
    rebinding); such a request still carries that name as its host, and is refused.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), larger: Mapping[str, int] | None = None) -> None:
        """`larger` names paths that take larger bodies than others, in bytes."""
        self._app = app
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._larger = dict(larger or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        most_bytes = self._larger.get(scope["path"], MAX_BODY_BYTES)

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                _bind(MutableHeaders(scope=message))
            await send(message)

        if problem := self._refusal(headers, most_bytes):
            await answer(problem)(scope, receive, send_bound)
            return
        await self._app(scope, _bounded(receive, most_bytes), send_bound)

    def _refusal(self, headers: Headers, most_bytes: int) -> Problem | None:
        host = _name(headers.get("host", ""))
        if host not in self._hosts:
            fix = "Use http://127.0.0.1:PORT, or name the host in service.hosts."
            return Problem(title="Bad Request", status=400, detail="not a name of this service", where=host, fix=fix)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > MOST_DIGITS or int(length) > most_bytes:
            what = f"a body may have at most {most_bytes} bytes"
            return Problem(title="Content Too Large", status=413, detail=what, where="body", fix="Send less.")
        return None


def _name(host: str) -> str:
    """The host without its port, in small letters.

    >>> _name("LOCALHOST:8470"), _name("[::1]:80"), _name("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _bind(headers: MutableHeaders) -> None:
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")


def _bounded(receive: Receive, most_bytes: int) -> Receive:
    """A body without a length is cut off where it grows too long; what is left of it is malformed and refused."""
    taken = 0

    async def receive_bounded() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > most_bytes:
                return {"type": "http.disconnect"}
        return message

    return receive_bounded
